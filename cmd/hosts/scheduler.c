/*
 * scheduler.c - the table of schedulers, and what their readers have in common. Reads the
 * environment that it is given, never the process's own.
 *
 * The first row whose variable is set is taken: mpirun inside an allocation of Slurm has started
 * this process more recently than Slurm has.
 */
#include "scheduler_vars.h"

#include "bytes.h"
#include "error.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { PORT_FIRST = 29400, PORT_COUNT = 3000 };

static const struct {
    const char *name;
    const char *mark; /* a variable that is set wherever this scheduler runs a process */
    scheduler_reader *read;
    bool needs_fqdn;
} schedulers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", openmpi_read, false},
    {"Slurm", "SLURM_JOB_ID", slurm_read, false},
    {"LSF", "LSB_JOBID", lsf_read, true},
    {"Kubernetes", "JOB_COMPLETION_INDEX", kubernetes_read, true},
};

enum { SCHEDULERS = sizeof schedulers / sizeof *schedulers };

static size_t find_scheduler(char *const *envp)
{
    size_t i = 0;
    while (i < SCHEDULERS && scheduler_var(envp, schedulers[i].mark) == NULL)
        i++;
    return i;
}

bool scheduler_needs_fqdn(char *const *envp)
{
    size_t found = find_scheduler(envp);
    return found < SCHEDULERS && schedulers[found].needs_fqdn;
}

ddp_status scheduler_read(char *const *envp, const char *host_fqdn, struct scheduler_job *ret,
                          struct ddp_error *err)
{
    struct scheduler_job job = {0};
    size_t found = find_scheduler(envp);
    *ret = job;
    if (found == SCHEDULERS)
        return DDP_OK;
    job.scheduler = schedulers[found].name;
    ddp_status status = schedulers[found].read(envp, host_fqdn, &job, err);
    if (status == DDP_OK && job.nodes > 0 && job.node_rank >= job.nodes)
        status = ddpi_error_set(err, DDP_E_INVALID, "this is node %u of %u, counted from 0",
                                job.node_rank, job.nodes);
    if (status != DDP_OK) {
        ddpi_error_wrap(err, status, "the variables of %s cannot be used", job.scheduler);
        return ddpi_error_advise(err, status,
                                 "or give --nnodes, --node-rank and --rdzv-endpoint, or "
                                 "--standalone for a job of this node alone");
    }
    *ret = job;
    return DDP_OK;
}

const char *scheduler_var(char *const *envp, const char *name)
{
    const char *text = ddpi_parse_env(envp, name, strlen(name));
    return text != NULL && *text != '\0' ? text : NULL;
}

ddp_status scheduler_number(char *const *envp, const char *name, uint32_t min, uint32_t max,
                            uint32_t *ret, struct ddp_error *err)
{
    const char *text = scheduler_var(envp, name);
    int64_t value;
    if (text == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "%s is not set", name);
    ddp_status status = ddpi_parse_int(text, min, max, &value, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "%s", name);
    *ret = (uint32_t)value;
    return DDP_OK;
}

ddp_status scheduler_host(const char *host, size_t len, const char *from, char ret[DDPI_HOST_MAX],
                          struct ddp_error *err)
{
    bool ok = len > 0 && len < DDPI_HOST_MAX && *host != '-';
    for (size_t i = 0; i < len && ok; i++)
        ok = isalnum((unsigned char)host[i]) || strchr("._-:%", host[i]) != NULL;
    if (!ok)
        return ddpi_error_set(err, DDP_E_INVALID, "%s: '%.*s' is not the name of a host", from,
                              (int)(len < 64 ? len : 64), host);
    memcpy(ret, host, len);
    ret[len] = '\0';
    return DDP_OK;
}

void scheduler_id(char ret[DDPI_JOB_MAX + 1], const char *prefix, const char *id)
{
    int room = DDPI_JOB_MAX - (int)strlen(prefix) - 1;
    snprintf(ret, DDPI_JOB_MAX + 1, "%s-%.*s", prefix, room, id);
    for (char *c = ret; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            *c = '-';
}

/* Nothing depends on it but that neighbours differ. */
uint16_t scheduler_port(const char *id)
{
    return (uint16_t)(PORT_FIRST + ddpi_digest32(DDPI_DIGEST32_NONE, id, strlen(id)) % PORT_COUNT);
}
