/*
 * warm_fork.h - starts a worker by a fork of the warm process (warm_process.h).
 *
 * The agent sends the warm process a message with the worker's descriptors. It forks a child that
 * becomes a child of the agent, as its own parent ends at once, and answers with its pid. Only then
 * the agent sends that child its arguments and environment, through a socket of its own. So a
 * worker runs only if the agent knows it: when the warm process fails on the way, the child reads
 * the end of that socket and exits.
 */
#ifndef DAEMON_WARM_FORK_H
#define DAEMON_WARM_FORK_H

#include "spawn.h"

/*
 * Start @request, whose warm_fd is the socket to the warm process, and set ret_child->forked. If
 * that process fails or does not answer within 2 s, start @request with spawn_process() instead:
 * DDP_OK, not forked, and @err says why. Blocks; see spawn_process() for the thread and for errors.
 */
DDP_MUST_CHECK ddp_status warm_fork_or_spawn(const struct spawn_request *request,
                                             struct spawn_child *ret_child, struct ddp_error *err);

#endif
