/*
 * refused_run.c - an operation that fails when its turn comes, as the algorithm of a run. Owns
 * nothing.
 */
#include "refused_run.h"

#include <stdio.h>

/* The state of a run. */
struct refused {
    ddp_status status;
    char why[DDPI_RUN_STATE - sizeof(ddp_status)]; /* cut off if it is longer */
};
DDPI_RUN_STATE_FITS(struct refused);

static struct refused *refused_of(struct ddpi_run *run)
{
    return (struct refused *)(void *)run->state;
}

static ddp_status refused_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    const struct refused *refused = refused_of(run);
    return ddpi_comm_fail(comm, NULL, refused->status, "rank %u: %s", comm->rank, refused->why);
}

static const struct ddpi_algorithm refused_algorithm = {
    .name = "refused", .takes_lists = true, .takes_turn = true, .begin = refused_begin};

void ddpi_refused_init(struct ddpi_run *run, ddp_status status, const char *why)
{
    struct refused *refused = refused_of(run);
    run->algorithm = &refused_algorithm;
    refused->status = status;
    (void)snprintf(refused->why, sizeof refused->why, "%s", why);
}
