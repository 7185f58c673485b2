/*
 * conn_impl.h - what the files of a connection share: conn.c (its life, deadlines and output) and
 * conn_read.c (what it reads and serves). Nobody else includes it.
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

DDPI_SM_DECLARE(ddpi_conn, CONN_STATES);

static inline bool ddpi_conn_serving(const struct ddpi_conn *conn)
{
    return conn->sm.state == CONN_GREETING || conn->sm.state == CONN_OPEN;
}

/* conn.c */
void ddpi_conn_log_end(const struct ddpi_conn *conn, const char *why);
/* At once. */
void ddpi_conn_end(struct ddpi_conn *conn, const char *why);
/* Nothing more is served; what is queued leaves, then the connection closes. */
void ddpi_conn_part(struct ddpi_conn *conn);
/* Say nothing and hear nothing for a while; then part. */
void ddpi_conn_deny(struct ddpi_conn *conn, const char *why);
/* @progress: a frame was completed, so that another one is half there now. */
void ddpi_conn_update_deadline(struct ddpi_conn *conn, bool progress);
/* Give an empty buffer back if it had grown. */
void ddpi_conn_trim(struct ddpi_buf *buf);
/* Tell the budgets what the buffers take now; false: there is not so much input for all. */
bool ddpi_conn_count(struct ddpi_conn *conn);

/* conn_read.c */
void ddpi_conn_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret);
void ddpi_conn_on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf);
/* Output has left: serve what came in meanwhile, and read on. */
void ddpi_conn_resume(struct ddpi_conn *conn);

#endif
