/*
 * agent_exits.h - the end of a worker: waitpid() reported it, its death was seen early, or its MPI
 * program aborted. Records the first failure and tells the owner.
 *
 * Nothing here changes the agent's state: callers take the next step with agent_advance().
 */
#ifndef DAEMON_AGENT_EXITS_H
#define DAEMON_AGENT_EXITS_H

#include "agent_state.h"

/* Wait for @worker if it has ended. */
void agent_collect_worker(struct agent *agent, struct worker_proc *worker);

/* Wait for every child that has ended. Returns false when no child is left but the warm process.
 * While a process is being started its pid is not known yet, so nothing is collected. */
bool agent_collect_children(struct agent *agent);

/* Tell the owner which failure ends this generation. */
void agent_report_failure(struct agent *agent);

/* Early exit detection (death_watch.h): the worker at @local_rank may be dying. */
void agent_on_death_hint(void *ctx, uint32_t local_rank);

/* pmix_host_hooks: MPI programs cannot be served because of @why, so a worker fails. */
void agent_on_pmix_failed(void *ctx, const char *why);

/* pmi_hooks: an MPI program has called MPI_Abort, or has closed its PMI connection too early. */
void agent_on_mpi_abort(void *ctx, uint32_t local_rank, int exit_code);
void agent_on_mpi_unplugged(void *ctx, uint32_t local_rank);

#endif
