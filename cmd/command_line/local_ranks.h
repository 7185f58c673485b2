/*
 * local_ranks.h - lists of local ranks, which --tee, --redirects and --local-ranks-filter take.
 */
#ifndef CMD_LOCAL_RANKS_H
#define CMD_LOCAL_RANKS_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stdint.h>

/* "3", or "0:3,1:2" (local rank:streams), into one byte per local rank: bit 0 stdout, bit 1
 * stderr. Ranks that are not named get 0. */
DDP_MUST_CHECK ddp_status local_ranks_parse_streams(const char *text, uint32_t nproc,
                                                    uint8_t *ret_bits, struct ddp_error *err);

/* "0,2": the local ranks that are shown; all others are marked in @ret_hidden. */
DDP_MUST_CHECK ddp_status local_ranks_parse_filter(const char *text, uint32_t nproc,
                                                   bool *ret_hidden, struct ddp_error *err);

#endif
