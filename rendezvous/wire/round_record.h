/*
 * round_record.h - records of rounds, which keys hold as text: what a member says of itself, its
 * seat, the state of the job, and what is held against a node. Pure.
 *
 * A record has lines, "FIELD VALUE", each with a newline at its end; the value begins after the
 * first blank. Users read records with `ddpctl store get`. Later versions may append fields, so a
 * reader skips unknown ones. Each known field must occur once; numbers are decimal, and control
 * characters are not allowed.
 */
#ifndef DDPI_ROUND_RECORD_H
#define DDPI_ROUND_RECORD_H

#include "buf.h"
#include "message.h"
#include "rounds.h"

enum { DDPI_ROUND_RECORD_MAX = 64 * 1024 };

/* Appends the record to @buf, or nothing. DDP_E_INVALID: a field breaks a rule of
 * <ddprun/round.h>; DDP_E_NOMEM. */
ddp_status ddpi_round_member_put(struct ddpi_buf *buf, const struct ddp_round_member *member,
                                 struct ddp_error *err);
ddp_status ddpi_round_seat_put(struct ddpi_buf *buf, const struct ddp_round_seat *seat,
                               struct ddp_error *err);
ddp_status ddpi_round_summary_put(struct ddpi_buf *buf, const struct ddpi_rounds_summary *summary,
                                  struct ddp_error *err);
ddp_status ddpi_round_blame_put(struct ddpi_buf *buf, const struct ddpi_rounds_blame *blame,
                                struct ddp_error *err);

/* The reverse; texts are zero after their ends. DDP_E_PROTOCOL: it is no such record. */
ddp_status ddpi_round_member_get(struct ddpi_bytes record, struct ddp_round_member *ret,
                                 struct ddp_error *err);
ddp_status ddpi_round_seat_get(struct ddpi_bytes record, struct ddp_round_seat *ret,
                               struct ddp_error *err);
ddp_status ddpi_round_summary_get(struct ddpi_bytes record, struct ddpi_rounds_summary *ret,
                                  struct ddp_error *err);
ddp_status ddpi_round_blame_get(struct ddpi_bytes record, struct ddpi_rounds_blame *ret,
                                struct ddp_error *err);

#endif
