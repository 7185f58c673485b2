/*
 * agent_impl.h - what the files of the agent offer each other, for this folder alone.
 */
#ifndef DAEMON_AGENT_IMPL_H
#define DAEMON_AGENT_IMPL_H

#include "agent.h"

/* ---- the start of a generation: from agent_run() to RUNNING (agent_start.c) ---- */

/* worker_starter_hooks. */
void agent_on_worker_started(void *ctx, struct worker_proc *worker);
void agent_on_starter_over(void *ctx, ddp_status status);

/* ---- the end of a worker (agent_exits.c) ---- */

/* waitpid() reported it, its death was seen early, or its MPI program aborted. The first failure is
 * recorded, and the owner told. Nothing here changes the agent's state: callers take the next step
 * with agent_advance(). */

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

/* ---- the end of a generation, and of the agent (agent_stop.c) ---- */

/* Take every step that is possible now. To be called after each event that may allow one. */
void agent_advance(struct agent *agent);

/* Enter SWEEPING from STARTING: a worker could not be started. */
void agent_abort_start(struct agent *agent);

/* SIGKILL every process below the agent. */
void agent_kill_everything(struct agent *agent);

/* The signal that asks workers to stop. */
int agent_stop_signal(const struct agent *agent);

/* Drop output that nobody reads, so that it cannot hold up the agent. */
void agent_drop_output(struct agent *agent);

/* Hook of parts that start a process: its pid is known now, so children that ended meanwhile can be
 * waited for. Takes the next step. */
void agent_collect_late(void *ctx);

/* ---- the check of the node (agent_check.c) ---- */

DDP_MUST_CHECK ddp_status agent_open_check(struct agent *agent, struct ddp_error *err);

/* The steps out of CHECKING and CLEARING. */
bool agent_clear_when_checked(struct agent *agent);
bool agent_finish_check(struct agent *agent);

/* ---- signals: SIGCHLD, the end of the job, and those for the workers (agent_signals.c) ---- */

/* Handle the signals of agent->config from now on; sigwatch_close() ends that. */
DDP_MUST_CHECK ddp_status agent_watch_signals(struct agent *agent, struct ddp_error *err);

/* All workers run: forward the signals that arrived while they were being started. */
void agent_forward_held_signals(struct agent *agent);

/* ---- what the PMIx server of Open MPI's programs gets from the agent (agent_pmix.c) ---- */

DDP_MUST_CHECK ddp_status agent_open_pmix(struct agent *agent, struct ddp_error *err);

/* A generation begins: the port for its workers; 0: there is none. */
uint16_t agent_open_pmix_port(struct agent *agent);

#endif
