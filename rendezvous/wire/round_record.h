/*
 * round_record.h - what is kept of rounds in keys, as text: what a member says of itself, the seat
 * that it is given, how the job stands. Pure.
 *
 * A record is lines, "FIELD VALUE", each ended by a newline; the value is all behind the first
 * blank. People read them with `ddpctl store get`, and later versions may append fields: those that
 * are not known are skipped. All that are known must be there, once; numbers are decimal, and
 * control characters have no place in it.
 */
#ifndef DDPI_ROUND_RECORD_H
#define DDPI_ROUND_RECORD_H

#include "buf.h"
#include "message.h"
#include "rounds.h"

enum { DDPI_ROUND_RECORD_MAX = 64 * 1024 };

/* Append the record to @buf, the whole or nothing. DDP_E_INVALID: a field breaks a rule of
 * <ddprun/round.h>; DDP_E_NOMEM. */
ddp_status ddpi_round_member_put(struct ddpi_buf *buf, const struct ddp_round_member *member,
                                 struct ddp_error *err);
ddp_status ddpi_round_seat_put(struct ddpi_buf *buf, const struct ddp_round_seat *seat,
                               struct ddp_error *err);
ddp_status ddpi_round_summary_put(struct ddpi_buf *buf, const struct ddpi_rounds_summary *summary,
                                  struct ddp_error *err);

/* The way back; texts are zero behind their ends. DDP_E_PROTOCOL: it is no such record. */
ddp_status ddpi_round_member_get(struct ddpi_bytes record, struct ddp_round_member *ret,
                                 struct ddp_error *err);
ddp_status ddpi_round_seat_get(struct ddpi_bytes record, struct ddp_round_seat *ret,
                               struct ddp_error *err);
ddp_status ddpi_round_summary_get(struct ddpi_bytes record, struct ddpi_rounds_summary *ret,
                                  struct ddp_error *err);

#endif
