/*
 * parent_call.c - operations of the parent, and findings as bytes. Owns nothing.
 */
#include "api_impl.h"

#include "error.h"
#include "mem.h"
#include "operate.h"
#include "runs.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

ddp_status ddpi_parent_call(struct ddp_comm *parent, const struct ddpi_call *call, const void *send,
                            void *recv, struct ddp_error *err)
{
    DDPI_UNINITIALIZED struct ddpi_run run;
    run.task = (struct ddpi_task){.call = *call, .send = send, .recv = recv};
    run.task.call.dtype = DDP_UINT8;
    run.task.timeout_ms = parent->timeout_ms;
    return ddpi_operate(parent, &run, NULL, err);
}

ddp_status ddpi_parent_give_up(struct ddp_comm *parent, unsigned long long bytes,
                               struct ddp_error *err)
{
    ddpi_runs_drain(parent);
    (void)ddpi_comm_fail(parent, NULL, DDP_E_NOMEM, "rank %u: no memory for %llu bytes",
                         parent->rank, bytes);
    return ddpi_comm_report(parent, err);
}

void ddpi_put32(uint8_t bytes[4], uint32_t value)
{
    uint32_t wire = htole32(value);
    memcpy(bytes, &wire, sizeof wire);
}

uint32_t ddpi_get32(const uint8_t bytes[4])
{
    uint32_t wire;
    memcpy(&wire, bytes, sizeof wire);
    return le32toh(wire);
}

void ddpi_finding_fill(struct ddpi_finding *finding, ddp_status status, const char *text)
{
    memset(finding, 0, sizeof *finding);
    ddpi_put32(finding->status, (uint32_t)status);
    snprintf(finding->text, sizeof finding->text, "%s", text);
}

ddp_status ddpi_finding_result(const struct ddpi_finding *finding, struct ddp_error *err)
{
    ddp_status status = (ddp_status)(int32_t)ddpi_get32(finding->status);
    char text[DDPI_FINDING_TEXT];
    if (status == DDP_OK)
        return DDP_OK;
    memcpy(text, finding->text, sizeof text);
    text[sizeof text - 1] = '\0';
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ')
            *at = '?';
    bool is_known = status == DDP_E_SYSTEM || status == DDP_E_NOMEM || status == DDP_E_MISMATCH;
    return ddpi_error_set(err, is_known ? status : DDP_E_PROTOCOL, "%s", text);
}
