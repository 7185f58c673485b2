/*
 * replicate.h - --replicate: the command of the keeper (cmd/keeper) that runs beside the agent, as
 * the guard's sidecar. Every node starts one; it ends at once where the node is not listed.
 */
#ifndef CMD_REPLICATE_H
#define CMD_REPLICATE_H

#include "ddprun_options.h"
#include "spawn.h"

enum { REPLICATE_WORDS = 12, REPLICATE_STATE_LEASE_MS = 2000 };

/* Zeroed: there is no keeper. */
struct replicate {
    char *words[REPLICATE_WORDS]; /* NULL-terminated */
    char *path;                   /* of the program; NULL: not looked for yet */
    unsigned count;
    bool complete;
    char **envp;
    char *notify_word; /* of envp: where the keeper says that it is ready */
    int notify;        /* the datagrams that it sends there come here; 0: not open */
    int null;          /* 0: not open */
    struct spawn_request request;
};

/* Whether the options allow it, if they ask for it. DDP_E_INVALID: one does not, or is missing.
 * Pure. */
DDP_MUST_CHECK ddp_status replicate_check(const struct ddprun_options *options,
                                          struct ddp_error *err);

/* If the options ask for a keeper, make its command. On failure, too, call replicate_finish(). */
DDP_MUST_CHECK ddp_status replicate_plan(struct replicate *replicate,
                                         const struct ddprun_options *options,
                                         const struct ddpi_endpoints *endpoints, const char *job,
                                         struct ddp_error *err);

/* Find the program. *@ret is what the guard is to start; NULL: no keeper was asked for. Valid until
 * replicate_finish(). DDP_E_NOT_FOUND, DDP_E_SYSTEM, DDP_E_NOMEM.
 *
 * The keeper says at @notify, as services say to systemd (sd_notify(3)), that this machine is fit
 * to keep the store, or that another keeper does, or that none is to be here. */
DDP_MUST_CHECK ddp_status replicate_open(struct replicate *replicate,
                                         const struct spawn_request **ret, struct ddp_error *err);

/* Take one datagram from @notify, without waiting. True: it says READY=1, and a process of this
 * user has sent it. */
bool replicate_hears_ready(int notify);

void replicate_finish(struct replicate *replicate);

#endif
