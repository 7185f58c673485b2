/*
 * keeper_rival.h - one keeper of a machine's address at a time. Where two ddprun of a job run on
 * one machine, the keeper of the second waits, and begins when the first one is gone.
 *
 * The address is a name in the kernel, of a listening socket, which only one process of a network
 * namespace can have. The kernel gives it back when the process dies. Those that wait are connected
 * to it, and so learn whether the keeper has ended with its job, or died.
 */
#ifndef CMD_KEEPER_RIVAL_H
#define CMD_KEEPER_RIVAL_H

#include "keeper_peers.h"
#include "keeper_self.h"

struct keeper_rival_question {
    const struct ddpi_cluster_list *list;
    const struct keeper_self *self;
    const char *job; /* NULL: none, and then it does not wait */
    int token_fd;
    bool tls;
    const struct ddpi_log *log;
    void (*waits)(void *ctx); /* for a keeper that has proved to be of the same list and job */
    void *ctx;
};

/*
 * Take the address; *@ret is the socket that has it until it is closed. While another keeper of the
 * same list and job has it, this runs the loop, which must have no other handles; then SIGTERM and
 * SIGINT end the wait.
 *
 * DDP_E_CLOSED: the job is over, or a signal came. DDP_E_INVALID: the other keeper is one of
 * another list or job, or does not answer.
 */
DDP_MUST_CHECK ddp_status keeper_rival_await(uv_loop_t *loop,
                                             const struct keeper_rival_question *question, int *ret,
                                             struct ddp_error *err);

/* Tell those that wait for @fd, the socket, that the job is over. */
void keeper_rival_tell_over(int fd);

#endif
