/*
 * ddpctl_job.h - what the verbs have in common that look at jobs and change them: options, the
 * call, a job's keys as they are read and then followed (job_read.c).
 */
#ifndef CMD_DDPCTL_JOB_H
#define CMD_DDPCTL_JOB_H

#include "ddpctl.h"
#include "job_view.h"

struct ddpctl_job_options {
    const char *endpoint;
    uint64_t timeout_ms; /* UINT64_MAX: not given */
    struct ddpctl_auth auth;
    bool json;
    bool no_wait;
    bool undo;
    bool force;
    bool help;
};

struct ddpctl_job_call {
    const struct ddpctl_job_options *options;
    ddp_store *store;
    uint64_t deadline_ms;
    const char *job;      /* NULL: not given */
    const char *word;     /* the other, which drain and scale have */
    struct job_view view; /* of the job, once it is read */
};

/* What is left of --timeout. */
uint32_t ddpctl_job_left_ms(const struct ddpctl_job_call *call);

/* All jobs of the store, sorted. The caller frees each name, and the array, with ddpi_free(). */
ddp_status ddpctl_job_list(struct ddpctl_job_call *call, char ***ret_names, size_t *ret_count,
                           struct ddp_error *err);

/* Read all of the job's keys into call->view, anew. */
ddp_status ddpctl_job_read(struct ddpctl_job_call *call, const char *job, struct ddp_error *err);

/* The same for the one job that is meant, or is there; DDP_E_NOT_FOUND if it is not. */
ddp_status ddpctl_job_find(struct ddpctl_job_call *call, struct ddp_error *err);

/* The same, and watch for changes. */
ddp_status ddpctl_job_watch(struct ddpctl_job_call *call, struct ddp_error *err);
/* Take all changes that have come; then, or if there were none, one that comes within @timeout_ms.
 * DDP_E_TIMEOUT: none has come. */
ddp_status ddpctl_job_follow(struct ddpctl_job_call *call, uint32_t timeout_ms,
                             struct ddp_error *err);

/* The verbs: they have the store, and their words. */
ddp_status ddpctl_job_status(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_stop(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_drain(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_scale(struct ddpctl_job_call *call, struct ddp_error *err);

#endif
