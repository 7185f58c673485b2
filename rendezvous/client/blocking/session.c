/*
 * session.c - the blocking client's sessions. The handle keeps no record of them: a session is its
 * token, which goes with each request, on any connection.
 */
#include "blocking_call.h"
#include "error.h"

static ddp_status set_session(const struct ddp_store_session *session, struct call *call,
                              struct ddp_error *err)
{
    if (session == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no session is given; open one with ddp_store_session_open()");
    call->request.message.session = ddpi_bytes_of(session->token, sizeof session->token);
    return DDP_OK;
}

static ddp_status take_session(const ddp_store *store, struct call *call,
                               const struct ddpi_message *reply, struct ddp_error *err)
{
    struct ddp_store_session *session = call->ret;
    if (reply->session.len != sizeof session->token)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the store at %s gave a malformed session",
                              store->target.endpoint);
    memcpy(session->token, reply->session.data, sizeof session->token);
    return DDP_OK;
}

ddp_status ddp_store_session_open(ddp_store *store, uint32_t lease_ms, uint32_t timeout_ms,
                                  struct ddp_store_session *ret_session, struct ddp_error *err)
{
    if (lease_ms == 0 || lease_ms > DDP_STORE_LEASE_MAX_MS)
        return ddpi_error_set(err, DDP_E_INVALID, "a lease of %u ms; it must be 1 to %d ms",
                              lease_ms, DDP_STORE_LEASE_MAX_MS);
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_SESSION_OPEN, .count = lease_ms),
                        .take = take_session, .ret = ret_session};
    return ddpi_store_run(store, &call, timeout_ms, err);
}

static ddp_status run_session(ddp_store *store, enum ddpi_op op,
                              const struct ddp_store_session *session, uint32_t timeout_ms,
                              struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = op)};
    ddp_status status = set_session(session, &call, err);
    return status == DDP_OK ? ddpi_store_run(store, &call, timeout_ms, err) : status;
}

ddp_status ddp_store_session_keep(ddp_store *store, const struct ddp_store_session *session,
                                  uint32_t timeout_ms, struct ddp_error *err)
{
    return run_session(store, DDPI_OP_SESSION_KEEP, session, timeout_ms, err);
}

ddp_status ddp_store_session_close(ddp_store *store, const struct ddp_store_session *session,
                                   uint32_t timeout_ms, struct ddp_error *err)
{
    return run_session(store, DDPI_OP_SESSION_CLOSE, session, timeout_ms, err);
}

ddp_status ddp_store_set_ephemeral(ddp_store *store, const struct ddp_store_session *session,
                                   const char *key, const void *value, size_t value_len,
                                   uint32_t timeout_ms, uint64_t *ret_version,
                                   struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_SET_EPHEMERAL, .value = {value, value_len})};
    ddp_status status = set_session(session, &call, err);
    if (status == DDP_OK)
        status = ddpi_target_check_value(&store->limits, value, value_len, err);
    if (status == DDP_OK)
        status = ddpi_store_run_key(store, key, &call, timeout_ms, err);
    if (status == DDP_OK && ret_version != NULL)
        *ret_version = call.version;
    return status;
}
