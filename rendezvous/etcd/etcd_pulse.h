/*
 * etcd_pulse.h - sees the death of another store's process by its connection, long before its lease
 * is over. It keeps a TCP connection to the store on which it says nothing, and replaces it before
 * the store ends it for that.
 *
 * A process is dead if a connection to it existed, and now nobody listens at its address: the
 * kernel of a machine whose process has died says so. A machine that is silent is not dead here.
 */
#ifndef DDPI_ETCD_PULSE_H
#define DDPI_ETCD_PULSE_H

#include <ddprun/status.h>
#include <uv.h>

struct ddpi_etcd_pulse;

/* Both are called from the loop, at most once for each ddpi_etcd_pulse_follow(): @alive when the
 * first connection exists, @dead only afterwards. */
struct ddpi_etcd_pulse_hooks {
    void (*alive)(void *ctx);
    void (*dead)(void *ctx);
    void *ctx;
};

ddp_status ddpi_etcd_pulse_create(uv_loop_t *loop, const struct ddpi_etcd_pulse_hooks *hooks,
                                  struct ddpi_etcd_pulse **ret, struct ddp_error *err);
/* The memory goes when the loop has closed the handles. */
void ddpi_etcd_pulse_destroy(struct ddpi_etcd_pulse *pulse);

/* Follow the process at @endpoint, "HOST:PORT", from now on; "": none. */
void ddpi_etcd_pulse_follow(struct ddpi_etcd_pulse *pulse, const char *endpoint);

#endif
