/*
 * keeper_check.h - whether another keeper is the one that is meant, and its store one for the job.
 */
#ifndef CMD_KEEPER_CHECK_H
#define CMD_KEEPER_CHECK_H

#include "cluster.h"

struct keeper_check {
    const struct ddpi_cluster_list *list;
    const struct ddpi_cluster *cluster;
    const char *option; /* by which the user says which machine this is */
};

/* Whether the keeper that answers at @machine is the one that is meant, and says what
 * ddpi_cluster_hear() may hear. DDP_E_INVALID: another list, machine or job; the error says what a
 * person must mend. */
DDP_MUST_CHECK ddp_status keeper_check_status(const struct keeper_check *check, unsigned machine,
                                              const struct ddpi_keeper_status *status,
                                              struct ddp_error *err);

/* Whether the store of the other two, if they have one, can be that of the job. DDP_E_INVALID: it
 * is of none. */
DDP_MUST_CHECK ddp_status keeper_check_job(const struct keeper_check *check, uint64_t now_ms,
                                           struct ddp_error *err);

#endif
