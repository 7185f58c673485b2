/*
 * rdzv_conf.h - the value of --rdzv-conf, torchrun's settings KEY=VALUE,...: which of them mean
 * something here.
 */
#ifndef CMD_RDZV_CONF_H
#define CMD_RDZV_CONF_H

#include <ddprun/status.h>
#include <stdint.h>

enum { RDZV_CONF_UNKNOWN_MAX = 200 };

/* UINT64_MAX: not said. */
struct rdzv_conf {
    uint64_t join_timeout_ms;            /* --join-timeout */
    uint64_t settle_ms;                  /* --settle */
    uint64_t lease_ms;                   /* --lease */
    int is_host;                         /* 1 yes, 0 no, -1 not said */
    char unknown[RDZV_CONF_UNKNOWN_MAX]; /* the keys that nobody knows, ", " between them; "..." at
                                            the end if there are more */
};

/*
 * Read @text as torchrun does: blanks around keys and values do not count, the last of two equal
 * keys does, and a key that torchrun does not know is no error. DDP_E_INVALID, DDP_E_UNSUPPORTED:
 * torchrun would refuse it as well, or it asks for what is not served, as is a lease beyond the
 * limit of --lease; the sentence quotes the key and the value.
 */
DDP_MUST_CHECK ddp_status rdzv_conf_parse(const char *text, struct rdzv_conf *ret_conf,
                                          struct ddp_error *err);

#endif
