/*
 * agent_pmix.c - see agent_impl.h.
 */
#include "agent_impl.h"

#include "pmix_library.h"
#include "worker_env.h"

#include <unistd.h>

/* The environment of local rank 0, which names the job's store and its ranks, and the libpmix of
 * the rank that connects. */
static ddp_status prepare_pmix_server(void *ctx, struct pmix_host_start *ret, struct ddp_error *err)
{
    struct agent *agent = ctx;
    const struct agent_keys *keys = agent->config->keys;
    char library[PATH_MAX];
    struct worker_place place = {.config = agent->config,
                                 .seat = &agent->seat,
                                 .error_file = "",
                                 .pmix_port = agent->pmix.port,
                                 .library = pmix_library_of_ranks(library) ? library : NULL};
    ddp_status status = DDP_OK;
    if (keys != NULL)
        status = keys->make(keys->ctx, agent->seat.generation, &place.key, err);
    ret->key_fd = place.key.fd;
    if (status == DDP_OK)
        status = worker_env_make(&place, &ret->envp, err);
    if (status != DDP_OK && ret->key_fd > 0)
        close(ret->key_fd);
    return status;
}

static void release_pmix_start(void *ctx, struct pmix_host_start *start)
{
    (void)ctx;
    worker_env_free(start->envp);
    if (start->key_fd > 0)
        close(start->key_fd);
}

static bool is_ours(void *ctx, int fd)
{
    const struct agent *agent = ctx;
    return agent->config->is_ours(fd);
}

static void on_pmix_line(void *ctx, const char *line)
{
    struct agent *agent = ctx;
    logmux_say(&agent->mux, "%s", line);
}

ddp_status agent_open_pmix(struct agent *agent, struct ddp_error *err)
{
    const struct pmix_host_hooks hooks = {.ctx = agent,
                                          .say = on_pmix_line,
                                          .aborted = agent_on_mpi_abort,
                                          .failed = agent_on_pmix_failed,
                                          .is_ours = is_ours,
                                          .prepare = prepare_pmix_server,
                                          .release = release_pmix_start,
                                          .settled = agent_collect_late};
    return pmix_host_open(&agent->pmix, agent->loop, agent->config->pmix_server,
                          agent->config->nproc, &hooks, err);
}

/* Without a loopback interface there is no port. Only who has asked for PMIx alone hears of it. */
uint16_t agent_open_pmix_port(struct agent *agent)
{
    struct ddp_error err;
    if (!agent->config->serves_pmix)
        return 0;
    if (pmix_host_begin(&agent->pmix, &err) == DDP_OK)
        return agent->pmix.port;
    if (!agent->config->serves_pmi)
        logmux_say(&agent->mux, "%s", err.msg);
    return 0;
}
