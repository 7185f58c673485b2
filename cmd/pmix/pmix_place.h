/*
 * pmix_place.h - the place of this node's ranks in the job, from the environment that ddprun gives
 * to rank 0 of the node and to the PMIx server alike.
 */
#ifndef CMD_PMIX_PLACE_H
#define CMD_PMIX_PLACE_H

#include <ddprun/store.h>

enum { PLACE_NAME_SIZE = 256, PMIX_FOLDER_SIZE = 256 };

/* One node of the job. */
struct pmix_node {
    char host[PLACE_NAME_SIZE];
    uint32_t first_rank;
    uint32_t nproc;
};

struct pmix_place {
    char nspace[PLACE_NAME_SIZE]; /* PMIx's name of the job in this generation */
    uint32_t world_size;
    uint32_t node_rank;
    uint32_t node_count;
    struct pmix_node own;
    char folder[PMIX_FOLDER_SIZE];  /* of this node's ranks */
    struct ddp_store_options store; /* its texts are the environment's */
};

/* Reads the environment. DDP_E_INVALID: a variable is missing or no such number; @err names it. */
DDP_MUST_CHECK ddp_status pmix_place_read(struct pmix_place *place, struct ddp_error *err);

/* ---- a folder for the files of this node's ranks (pmix_folder.c) ---- */

/* Such as shared memory of Open MPI's. It is removed with all that is in it when the ranks have
 * ended, unless this process is killed before. */

/* Make the folder, in TMPDIR or /tmp, and one in it for each of @nproc ranks: "PATH/LOCAL_RANK".
 * DDP_E_LIMIT: the path is too long. DDP_E_SYS: it cannot be made. @ret_path is "" if nothing was
 * made. */
DDP_MUST_CHECK ddp_status pmix_folder_make(uint32_t nproc, char ret_path[PMIX_FOLDER_SIZE],
                                           struct ddp_error *err);

#endif
