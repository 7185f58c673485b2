/*
 * node_starter.h - becomes the scheduler's own command, which starts ddprun on each node of an
 * allocation.
 */
#ifndef CMD_NODE_STARTER_H
#define CMD_NODE_STARTER_H

#include "scheduler.h"

/* Execute srun, with this program and @argv for each node of @job, which is an allocation. Returns
 * only if that fails; @err says why. */
ddp_status node_starter_exec(const struct scheduler_job *job, char **argv, struct ddp_error *err);

#endif
