/*
 * keeper_check.c - see keeper_check.h.
 */
#include "keeper_check.h"

#include "error.h"

#include <string.h>

ddp_status keeper_check_status(const struct keeper_check *check, unsigned machine,
                               const struct ddpi_keeper_status *status, struct ddp_error *err)
{
    const struct ddpi_keeper_status *own = &check->cluster->own;
    char text[DDPI_CLUSTER_ENDPOINT];
    ddpi_endpoint_text(&check->list->at[machine], text, sizeof text);
    if (strcmp(status->list, own->list) != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the list here is %s, and the one at %s is %s; give all three "
                              "machines the same",
                              own->list, text, status->list);
    if (status->self != machine)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "another machine of the list answers at %s; give each of them its "
                              "own name, or say which it is with %s",
                              text, check->option);
    if (own->job[0] != '\0' && status->job[0] != '\0' && strcmp(status->job, own->job) != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the keeper at %s is one of the job '%s', and this one of '%s'; give "
                              "one of the jobs another port, or wait for the end of the other",
                              text, status->job, own->job);
    return DDP_OK;
}

ddp_status keeper_check_job(const struct keeper_check *check, uint64_t now_ms,
                            struct ddp_error *err)
{
    if (!ddpi_cluster_is_of_no_job(check->cluster, now_ms))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "the other two machines of the list (%s) have a store that is for no "
                          "job: use it without --replicate, or give this job another port",
                          check->cluster->own.list);
}
