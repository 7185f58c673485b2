/*
 * launch.h - turns a worker's place in the job into a running process.
 */
#ifndef DAEMON_LAUNCH_H
#define DAEMON_LAUNCH_H

#include "agent.h"

/* Start @worker in the generation that @agent is in. On failure its streams may be open and will
 * end by themselves; no process is left. */
DDP_MUST_CHECK ddp_status launch_worker(struct agent *agent, struct worker_proc *worker,
                                        struct ddp_error *err);

#endif
