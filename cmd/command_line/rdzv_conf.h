/*
 * rdzv_conf.h - the value of --rdzv-conf: torchrun's settings KEY=VALUE,..., some of which
 * ddprun has options for.
 */
#ifndef CMD_RDZV_CONF_H
#define CMD_RDZV_CONF_H

#include <ddprun/status.h>
#include <stdint.h>

enum { RDZV_CONF_UNKNOWN_MAX = 200 };

/* UINT64_MAX: not given. */
struct rdzv_conf {
    uint64_t join_timeout_ms;            /* --join-timeout */
    uint64_t settle_ms;                  /* --settle */
    uint64_t lease_ms;                   /* --lease */
    int is_host;                         /* 1: yes, 0: no, -1: not given */
    char unknown[RDZV_CONF_UNKNOWN_MAX]; /* unknown keys, separated by ", ", with "..." at the end
                                            if there are more */
};

/*
 * Parse @text as torchrun does: ignore blanks around keys and values, use the last of equal keys,
 * and accept unknown keys. DDP_E_INVALID, DDP_E_UNSUPPORTED: torchrun would refuse it as well, or
 * ddprun does not support it, such as a lease beyond the limit of --lease; @err quotes key and
 * value.
 */
DDP_MUST_CHECK ddp_status rdzv_conf_parse(const char *text, struct rdzv_conf *ret_conf,
                                          struct ddp_error *err);

#endif
