/*
 * conn_impl.h - what the files of a connection share: conn_open.c (creating and closing),
 * conn_end.c (deadlines and ending), conn_read.c (input), conn_output.c (output).
 */
#ifndef DDPI_CONN_IMPL_H
#define DDPI_CONN_IMPL_H

#include "conn.h"

#define CONN_STATES(X)                                                                     \
    X(CONN, GREETING,                                                                      \
      DDPI_SM_TO(CONN_OPEN) | DDPI_SM_TO(CONN_DENYING) | DDPI_SM_TO(CONN_LINGERING) |      \
          DDPI_SM_TO(CONN_CLOSING),                                                        \
      DDPI_SM_INITIAL)                                                                     \
    X(CONN, OPEN,                                                                          \
      DDPI_SM_TO(CONN_DENYING) | DDPI_SM_TO(CONN_LINGERING) | DDPI_SM_TO(CONN_CLOSING), 0) \
    X(CONN, DENYING, DDPI_SM_TO(CONN_LINGERING) | DDPI_SM_TO(CONN_CLOSING), 0)             \
    X(CONN, LINGERING, DDPI_SM_TO(CONN_CLOSING), 0)                                        \
    X(CONN, CLOSING, 0, DDPI_SM_FINAL)

/* The most that is sealed at once. */
enum { DDPI_CONN_SEAL_MAX = 64 * 1024 };

DDPI_SM_DECLARE(ddpi_conn, CONN_STATES);

static inline bool ddpi_conn_serving(const struct ddpi_conn *conn)
{
    return conn->sm.state == CONN_GREETING || conn->sm.state == CONN_OPEN;
}

/* conn_end.c */
void ddpi_conn_log_end(const struct ddpi_conn *conn, const char *why);
/* Close the handles at once, without a log line. */
void ddpi_conn_close_handles(struct ddpi_conn *conn);
/* The same, logging @why. */
void ddpi_conn_end(struct ddpi_conn *conn, const char *why);
/* Queue the dialect's farewell. */
void ddpi_conn_farewell(struct ddpi_conn *conn, ddp_status status, const char *text);
/* Serve nothing more, send what is queued, then close. */
void ddpi_conn_linger(struct ddpi_conn *conn);
/* Ignore the peer for a random time, then tell it that it is denied. */
void ddpi_conn_deny(struct ddpi_conn *conn, const char *why);
/* @progress: a frame was completed, so the frame deadline starts again. */
void ddpi_conn_update_deadline(struct ddpi_conn *conn, bool progress);
/* Free the memory of an empty buffer that has grown. */
void ddpi_conn_trim(struct ddpi_buf *buf);
/* Report the sizes of the buffers to the budgets; false: the input of all connections exceeds its
 * budget. */
bool ddpi_conn_update_budgets(struct ddpi_conn *conn);

/* conn_output.c: output after the first @before bytes does not depend on the store's contents. */
void ddpi_conn_put_free(struct ddpi_conn *conn, size_t before);
/* Drop all output that is not with libuv or TLS yet. */
void ddpi_conn_drop_output(struct ddpi_conn *conn);

/* conn_read.c */
int ddpi_conn_start_reading(struct ddpi_conn *conn);
/* Output has left: serve the buffered input and read on. */
void ddpi_conn_resume(struct ddpi_conn *conn);

#endif
