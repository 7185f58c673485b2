/*
 * client_impl.h - what the files of the blocking client share: client_sync.c (the handle, and calls
 * on keys), client_txn.c (transactions), client_session.c (sessions) and client_watch.c (watches).
 * Nobody else includes it.
 */
#ifndef DDPI_CLIENT_IMPL_H
#define DDPI_CLIENT_IMPL_H

#include "client_auth.h"
#include "client_frame.h"
#include "link.h"
#include "parse.h"
#include "proto.h"

#include <ddprun/store.h>

struct ddp_store {
    struct ddpi_link link; /* fd -1 once the handle is of no further use */
    struct ddpi_client_auth auth;
    struct ddpi_seals seals; /* of this connection */
    struct ddpi_welcome limits;
    uint64_t next_id;
    size_t held;            /* bytes at the head of link.in to which the last reply points */
    struct ddpi_buf events; /* frames of watches that came while something else was asked */
    char endpoint[DDPI_HOST_MAX + 16];
    char *prefix;
    size_t prefix_len;
};

/* One request and its reply; what the reply points to stays until the next one. */
struct call {
    struct ddpi_message request;
    struct ddpi_message reply;
    uint32_t timeout_ms;
};

/* "prefix" "key" as one new string, which is also *@ret_bytes. */
ddp_status ddpi_client_key(const ddp_store *store, const char *key, char **ret,
                           struct ddpi_bytes *ret_bytes, struct ddp_error *err);
ddp_status ddpi_client_check_value(const ddp_store *store, const void *value, size_t len,
                                   struct ddp_error *err);

/* Serve @call and forget the frame before it, whose bytes the last reply pointed to. */
ddp_status ddpi_client_run(ddp_store *store, struct call *call, struct ddp_error *err);
/* The same for an operation on one key, or name. */
ddp_status ddpi_client_run_key(ddp_store *store, const char *key, struct call *call,
                               struct ddp_error *err);

/* Receive one whole frame, which stays at the head of link.in. One that is not whole at the
 * deadline stays there too. */
ddp_status ddpi_client_receive(ddp_store *store, uint64_t deadline_ms,
                               struct ddpi_client_frame *ret, struct ddp_error *err);
/* Put the frame at the head of the input aside, without its seal, for ddp_store_next_event(). */
ddp_status ddpi_client_keep_event(ddp_store *store, const struct ddpi_client_frame *frame,
                                  struct ddp_error *err);
/* The server's BYE as an error. */
ddp_status ddpi_client_farewell(const struct ddpi_client_frame *frame, struct ddp_error *err);

#endif
