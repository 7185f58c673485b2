/*
 * slurm.c - reads Slurm's variables. srun starts one launcher for each node of a step; the script
 * of sbatch and the shell of salloc are alone, and must start such a step.
 *
 * The script of sbatch has SLURM_PROCID and SLURM_NODEID too, so only SLURM_STEP_NUM_NODES, which
 * srun sets, tells the two apart.
 */
#include "scheduler_vars.h"
#include "slurm_hosts.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

struct node_list {
    uint32_t count;
    char first[DDPI_HOST_MAX];
};

static ddp_status take_node(void *ctx, const char *name, size_t len, struct ddp_error *err)
{
    struct node_list *list = ctx;
    return list->count++ == 0 ? scheduler_host(name, len, "the list of nodes", list->first, err)
                              : DDP_OK;
}

static ddp_status read_nodes(char *const *envp, const char *name, struct scheduler_job *ret,
                             struct ddp_error *err)
{
    struct node_list list = {0};
    const char *text = scheduler_var(envp, name);
    if (text == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "%s is not set", name);
    ddp_status status = slurm_hosts_each(text, SCHEDULER_NODES_MAX, take_node, &list, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "%s", name);
    if (list.count != ret->nodes)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s lists %u nodes, but the number of nodes is %u", name, list.count,
                              ret->nodes);
    memcpy(ret->host, list.first, sizeof ret->host);
    return DDP_OK;
}

/* ddprun starts the workers, so srun must not start several ddpruns on a node. */
static ddp_status check_tasks(char *const *envp, uint32_t nodes, struct ddp_error *err)
{
    uint32_t tasks;
    ddp_status status =
        scheduler_number(envp, "SLURM_STEP_NUM_TASKS", 1, SCHEDULER_NODES_MAX, &tasks, err);
    if (status == DDP_OK && tasks != nodes)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "srun starts %u tasks on %u nodes, and each would start all workers "
                              "of its node: give srun --ntasks-per-node=1, and ddprun "
                              "--nproc-per-node=N",
                              tasks, nodes);
    return status;
}

static ddp_status read_step(char *const *envp, const char *job, struct scheduler_job *ret,
                            struct ddp_error *err)
{
    char id[128];
    const char *step = scheduler_var(envp, "SLURM_STEP_ID");
    snprintf(id, sizeof id, "%.60s.%.60s", job, step != NULL ? step : "0");
    scheduler_id(ret->id, "slurm", id);
    ret->port = scheduler_port(ret->id);
    ddp_status status = check_tasks(envp, ret->nodes, err);
    if (status == DDP_OK)
        status =
            scheduler_number(envp, "SLURM_NODEID", 0, SCHEDULER_NODES_MAX, &ret->node_rank, err);
    return status == DDP_OK ? read_nodes(envp, "SLURM_STEP_NODELIST", ret, err) : status;
}

ddp_status slurm_read(char *const *envp, const char *host_fqdn, struct scheduler_job *ret,
                      struct ddp_error *err)
{
    (void)host_fqdn;
    const char *job = scheduler_var(envp, "SLURM_JOB_ID");
    bool in_step = scheduler_var(envp, "SLURM_STEP_NUM_NODES") != NULL;
    const char *count = in_step ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES";
    if (scheduler_var(envp, count) == NULL)
        return DDP_OK; /* a variable that was passed on by hand */
    ddp_status status = scheduler_number(envp, count, 1, SCHEDULER_NODES_MAX, &ret->nodes, err);
    if (status != DDP_OK)
        return status;
    if (ret->nodes > 1 && scheduler_var(envp, "SLURM_HET_SIZE") != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "SLURM_HET_SIZE says that this is a heterogeneous job, whose parts "
                              "count their nodes by themselves");
    if (in_step)
        return read_step(envp, job, ret, err);
    ret->is_allocation = true;
    return DDP_OK;
}
