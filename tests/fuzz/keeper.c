/*
 * keeper.c - fuzzes what another keeper tells, how a store says that it is kept, and lists of
 * keepers. A status that is taken is the same when it is written and read again; so are the others.
 */
#include "cluster_summary.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static void try_status(const char *text, size_t size)
{
    struct ddpi_keeper_status status, again;
    struct ddp_error err;
    char written[DDPI_KEEPER_STATUS_MAX];
    ddp_status result = ddpi_keeper_status_get(text, size, &status, &err);
    if (result != DDP_OK) {
        fuzz_check_error(&err, result);
        return;
    }
    HOLDS(status.self < DDPI_CLUSTER_SIZE);
    size_t len = ddpi_keeper_status_put(&status, written);
    if (len == 0) /* with escapes it has no room */
        return;
    HOLDS(ddpi_keeper_status_get(written, len, &again, &err) == DDP_OK);
    HOLDS(memcmp(&status, &again, sizeof status) == 0);
}

static void try_summary(const char *text, size_t size)
{
    struct ddpi_cluster_summary summary, again;
    struct ddp_error err;
    char written[DDPI_CLUSTER_SUMMARY_MAX], rewritten[DDPI_CLUSTER_SUMMARY_MAX];
    ddp_status result = ddpi_cluster_summary_get(text, size, &summary, &err);
    if (result != DDP_OK) {
        fuzz_check_error(&err, result);
        return;
    }
    HOLDS(summary.leader < DDPI_CLUSTER_SIZE);
    size_t len = ddpi_cluster_summary_put(&summary, written);
    if (len == 0)
        return;
    HOLDS(ddpi_cluster_summary_get(written, len, &again, &err) == DDP_OK);
    HOLDS(ddpi_cluster_summary_put(&again, rewritten) == len);
    HOLDS(memcmp(written, rewritten, len) == 0);
}

static void try_list(const char *text)
{
    struct ddpi_cluster_list list;
    struct ddp_error err;
    char written[DDPI_CLUSTER_LIST_TEXT], initial[DDPI_CLUSTER_LIST_TEXT + 64];
    ddp_status result = ddpi_cluster_list_parse(text, 29400, 0, &list, &err);
    if (result != DDP_OK) {
        fuzz_check_error(&err, result);
        return;
    }
    ddpi_cluster_list_put(&list, written);
    ddpi_cluster_list_initial(&list, initial);
    HOLDS(strlen(written) < sizeof written - 1 && strlen(initial) < sizeof initial - 1);
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        HOLDS(ddpi_cluster_list_find(&list, &list.at[i]) == i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_copy(data, size);
    try_status((const char *)copy, size);
    try_summary((const char *)copy, size);
    free(copy);
    char *text = fuzz_text(data, size);
    try_list(text);
    free(text);
    return 0;
}
