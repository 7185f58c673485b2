/*
 * jobs.c - the blocking client's calls on whole jobs: their data ports and epochs. A job's name is
 * not a key, so the handle's prefix does not apply.
 */
#include "blocking_call.h"
#include "error.h"

#include <string.h>

static struct ddpi_bytes job_bytes(const char *job)
{
    return ddpi_bytes_of(job, job != NULL ? strlen(job) : 0);
}

ddp_status ddp_store_open_port(ddp_store *store, const struct ddp_store_session *session,
                               const char *job, uint32_t timeout_ms, uint16_t *ret_port,
                               struct ddp_error *err)
{
    if (session == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no session is given; open one with ddp_store_session_open()");
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_OPEN_PORT, .key = job_bytes(job),
                                     .session = {session->token, sizeof session->token})};
    ddp_status status = ddpi_store_run(store, &call, timeout_ms, err);
    if (status != DDP_OK)
        return status;
    if (call.number <= 0 || call.number > UINT16_MAX)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the store at %s opened the port %lld",
                              store->target.endpoint, (long long)call.number);
    *ret_port = (uint16_t)call.number;
    return DDP_OK;
}

ddp_status ddp_store_fence(ddp_store *store, const char *job, uint64_t epoch, uint32_t timeout_ms,
                           uint64_t *ret_epoch, struct ddp_error *err)
{
    if (epoch > INT64_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "an epoch beyond 2^63-1");
    struct call call = {
        CALL_MESSAGE(.op = DDPI_OP_FENCE, .key = job_bytes(job), .number = (int64_t)epoch)};
    ddp_status status = ddpi_store_run(store, &call, timeout_ms, err);
    if ((status == DDP_OK || status == DDP_E_CONFLICT) && ret_epoch != NULL)
        *ret_epoch = call.version;
    return status;
}
