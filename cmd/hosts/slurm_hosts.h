/*
 * slurm_hosts.h - Slurm's notation for many hosts, such as "n[01-04,7],gpu3". Pure.
 */
#ifndef CMD_SLURM_HOSTS_H
#define CMD_SLURM_HOSTS_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

/* Takes one name, which is @len bytes and not terminated. Anything but DDP_OK ends the list, and is
 * what slurm_hosts_each() returns. */
typedef ddp_status slurm_host_fn(void *ctx, const char *name, size_t len, struct ddp_error *err);

/*
 * Call @each for every host of @text, in its order; numbers keep their leading zeros.
 *
 * DDP_E_INVALID: the brackets do not match, a range runs backwards or is no number, or there are
 * more than @max hosts. @each may have been called before.
 */
DDP_MUST_CHECK ddp_status slurm_hosts_each(const char *text, uint32_t max, slurm_host_fn *each,
                                           void *ctx, struct ddp_error *err);

/* The length of the first item of @text, which ends at a comma outside brackets. */
size_t slurm_hosts_item(const char *text);

#endif
