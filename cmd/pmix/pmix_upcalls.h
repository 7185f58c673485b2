/*
 * pmix_upcalls.h - what ranks ask of the host of their PMIx server: that they have connected and
 * finalized, and operations of groups of ranks (fence, connect, group). libpmix answers all other
 * questions itself. What ddprun does not serve, such as MPI_Comm_spawn(), is refused by name.
 *
 * libpmix calls from a thread of its own; operations of ranks on several nodes go on in the loop's.
 */
#ifndef CMD_PMIX_UPCALLS_H
#define CMD_PMIX_UPCALLS_H

#include "pmix_gather.h"
#include "pmix_place.h"
#include "pmix_tasks.h"
#include "pmix_waiting.h"

#include <pmix.h>
#include <pmix_server.h>

/* Ranks of this node. A rank that is SILENT is no MPI program, or none yet; one that is GONE has
 * ended before it was FINALIZED. */
enum pmix_rank_state { PMIX_RANK_SILENT, PMIX_RANK_CONNECTED, PMIX_RANK_FINALIZED, PMIX_RANK_GONE };

struct pmix_upcalls {
    const struct pmix_place *place;
    const struct pmix_node *nodes;
    struct pmix_gathering *gathering;
    struct pmix_tasks *tasks;
    struct pmix_waiting *waiting; /* hears of a rank that has left */
    /* Tell the agent: "say TEXT", "fail WHY", "abort LOCAL_RANK
     * EXIT_CODE". From any thread. */
    void (*tell)(const char *format, ...) DDP_PRINTF(1, 2);
};

/* The functions for PMIx_server_init(). */
extern pmix_server_module_t pmix_upcalls_module;

/* Before any rank connects. @upcalls stays with the caller. */
DDP_MUST_CHECK ddp_status pmix_upcalls_open(const struct pmix_upcalls *upcalls,
                                            struct ddp_error *err);

/* The rank has ended with exit code 0. From the loop's thread. */
void pmix_upcalls_rank_gone(uint32_t local_rank);

/* The ranks of this node that are in @state: how many, and the first of them. From any thread. */
uint32_t pmix_upcalls_count(enum pmix_rank_state state, uint32_t *ret_first_rank);

#endif
