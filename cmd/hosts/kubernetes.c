/*
 * kubernetes.c - reads what a pod of an indexed job knows: JOB_COMPLETION_INDEX, and its own name,
 * which is that of the job, '-', and the index; a headless service gives it a domain. How many pods
 * there are is not among it: --nnodes or PET_NNODES say that.
 */
#include "scheduler_vars.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

enum { PORT = 29400 }; /* a pod has its own address, so no other job is there */

ddp_status kubernetes_read(char *const *envp, const char *host_fqdn, struct scheduler_job *ret,
                           struct ddp_error *err)
{
    char end[16];
    const char *fqdn = host_fqdn != NULL ? host_fqdn : "";
    size_t name_len = strcspn(fqdn, ".");
    ddp_status status = scheduler_number(envp, "JOB_COMPLETION_INDEX", 0, SCHEDULER_NODES_MAX,
                                         &ret->node_rank, err);
    if (status != DDP_OK)
        return status;
    size_t end_len = (size_t)snprintf(end, sizeof end, "-%u", ret->node_rank);
    ret->port = PORT;
    if (name_len <= end_len || memcmp(fqdn + name_len - end_len, end, end_len) != 0)
        return DDP_OK; /* a pod with a name of its own: the endpoint must be given */
    size_t job_len = name_len - end_len;
    int len =
        snprintf(ret->host, sizeof ret->host, "%.*s-0%s", (int)job_len, fqdn, fqdn + name_len);
    if ((size_t)len >= sizeof ret->host)
        return ddpi_error_set(err, DDP_E_INVALID, "the name of this pod, '%.64s...', is too long",
                              fqdn);
    char job[DDPI_HOST_MAX];
    snprintf(job, sizeof job, "%.*s", (int)job_len, fqdn);
    scheduler_id(ret->id, "k8s", job);
    return DDP_OK;
}
