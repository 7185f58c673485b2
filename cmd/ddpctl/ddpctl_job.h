/*
 * ddpctl_job.h - what status, top, dump, stop, drain, admit and scale share: their options, the
 * state of one call, and functions that read and watch a job's keys (job_read.c).
 */
#ifndef CMD_DDPCTL_JOB_H
#define CMD_DDPCTL_JOB_H

#include "cluster_summary.h"
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
    uint32_t last;      /* records of each rank */
    const char *output; /* directory for the dumps of ranks; NULL: none */
    bool help;
};

struct ddpctl_job_call {
    const struct ddpctl_job_options *options;
    ddp_store *store;
    uint64_t deadline_ms;
    const char *job;      /* NULL: not given */
    const char *word;     /* the second operand of drain, admit and scale */
    struct job_view view; /* filled by the functions below */
};

/* The address of the store of this user's jobs on this machine. DDP_E_INVALID: there is none, or
 * there are several; the sentence names two. */
enum { DDPCTL_ENDPOINT_MAX = 1024 };
ddp_status ddpctl_job_here(char ret_endpoint[DDPCTL_ENDPOINT_MAX], struct ddp_error *err);

/* The time left of --timeout. */
uint32_t ddpctl_job_left_ms(const struct ddpctl_job_call *call);

/* List all jobs of the store, sorted. The caller frees each name and the array with ddpi_free(). */
ddp_status ddpctl_job_list(struct ddpctl_job_call *call, char ***ret_names, size_t *ret_count,
                           struct ddp_error *err);

/* Replace call->view with the current keys of @job. */
ddp_status ddpctl_job_read(struct ddpctl_job_call *call, const char *job, struct ddp_error *err);

/* Read how keepers keep the store. False: none do, as far as it says. */
bool ddpctl_job_read_kept(struct ddpctl_job_call *call, struct ddpi_cluster_summary *ret);

/* Read the job given on the command line, or else the store's only job. DDP_E_NOT_FOUND: none. */
ddp_status ddpctl_job_find(struct ddpctl_job_call *call, struct ddp_error *err);

/* The same, and start to watch its keys. */
ddp_status ddpctl_job_watch(struct ddpctl_job_call *call, struct ddp_error *err);
/* Apply all pending changes to the view; if there are none, wait up to @timeout_ms for one.
 * DDP_E_TIMEOUT: no change arrived. */
ddp_status ddpctl_job_follow(struct ddpctl_job_call *call, uint32_t timeout_ms,
                             struct ddp_error *err);

/* The verbs; the caller has connected to the store and parsed the operands. */
ddp_status ddpctl_job_status(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_top(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_dump(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_stop(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_drain(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_admit(struct ddpctl_job_call *call, struct ddp_error *err);
ddp_status ddpctl_job_scale(struct ddpctl_job_call *call, struct ddp_error *err);

#endif
