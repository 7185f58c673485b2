/*
 * blocking_call.h - one request of one thread of the blocking client.
 */
#ifndef DDPI_BLOCKING_CALL_H
#define DDPI_BLOCKING_CALL_H

#include "blocking_state.h"

struct call {
    struct ddpi_client_request request;
    struct waiter waiter;
    ddp_status status;
    struct ddp_error *err; /* may be NULL */
    uint64_t version;
    int64_t number;
    /* Copies from a good reply what the fields above do not hold; NULL: nothing. The thread that
     * received the reply calls it. */
    ddp_status (*take)(const ddp_store *store, struct call *call, const struct ddpi_message *reply,
                       struct ddp_error *err);
    void *ret; /* where @take puts it, */
    size_t ret_len;
    struct call *next; /* to be sent together with this one; NULL: none */
};

#define CALL_MESSAGE(...) .request = {.message = {__VA_ARGS__}}

/* Send @call->request.message and wait for the reply. */
ddp_status ddpi_store_run(ddp_store *store, struct call *call, uint32_t timeout_ms,
                          struct ddp_error *err);
/* The same for an operation on one key or name. */
ddp_status ddpi_store_run_key(ddp_store *store, const char *key, struct call *call,
                              uint32_t timeout_ms, struct ddp_error *err);
/* Send @first and all that follow it, then wait for all replies. The caller has set @err of each,
 * and finds its status there. */
void ddpi_store_run_all(ddp_store *store, struct call *first, uint32_t timeout_ms);
/* Put the sentence of @call, which has failed because of @why, into @err. Returns its status. */
ddp_status ddpi_store_call_error(const ddp_store *store, const struct call *call,
                                 const struct ddp_error *why, struct ddp_error *err);

/* For call::take: a copy of the value. */
ddp_status ddpi_store_take_value(const ddp_store *store, struct call *call,
                                 const struct ddpi_message *reply, struct ddp_error *err);

/* The hook `done` of the client core. */
void ddpi_store_call_done(void *ctx, struct ddpi_client_request *request,
                          const struct ddpi_message *reply);

#endif
