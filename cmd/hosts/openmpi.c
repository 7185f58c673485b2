/*
 * openmpi.c - reads the variables that Open MPI's mpirun gives to each process. Nodes meet at the
 * machine that mpirun itself runs on, whose address is in the variable by which processes find it;
 * a launcher that runs there hosts the store.
 */
#include "scheduler_vars.h"

#include "error.h"

#include <string.h>

/* "JOBID.0;tcp://10.0.0.1,192.168.0.1:41234;tcp6://[fd00::2]:45671": the first address. */
static ddp_status read_uri(char *const *envp, struct scheduler_job *ret, struct ddp_error *err)
{
    static const char name[] = "OMPI_MCA_orte_hnp_uri";
    const char *uri = scheduler_var(envp, name);
    const char *at = uri != NULL ? strstr(uri, "://") : NULL;
    if (at == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s, which has the address of mpirun's machine, is %s", name,
                              uri == NULL ? "not set" : "not an address");
    at += 3;
    bool v6 = *at == '[';
    at += v6;
    size_t len = strcspn(at, v6 ? ",]" : ",:;");
    return scheduler_host(at, len, name, ret->host, err);
}

ddp_status openmpi_read(char *const *envp, const char *host_fqdn, struct scheduler_job *ret,
                        struct ddp_error *err)
{
    (void)host_fqdn;
    uint32_t of_node;
    const char *id = scheduler_var(envp, "PMIX_NAMESPACE");
    ddp_status status =
        scheduler_number(envp, "OMPI_COMM_WORLD_SIZE", 1, SCHEDULER_NODES_MAX, &ret->nodes, err);
    if (status != DDP_OK || ret->nodes == 1)
        return status;
    status =
        scheduler_number(envp, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, SCHEDULER_NODES_MAX, &of_node, err);
    if (status == DDP_OK && of_node != 1)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "mpirun starts %u processes on this node, and each would start all "
                              "workers of the node: give mpirun --map-by ppr:1:node, and ddprun "
                              "--nproc-per-node=N",
                              of_node);
    if (status == DDP_OK)
        status = scheduler_number(envp, "OMPI_COMM_WORLD_RANK", 0, SCHEDULER_NODES_MAX,
                                  &ret->node_rank, err);
    scheduler_id(ret->id, "mpirun", id != NULL ? id : "job");
    ret->port = scheduler_port(ret->id);
    ret->host_is_any = true; /* mpirun's machine need not be that of rank 0 */
    return status == DDP_OK ? read_uri(envp, ret, err) : status;
}
