/*
 * pmix_folder.h - a folder for the files of this node's ranks, such as shared memory of Open MPI's.
 * It is removed with all that is in it when the ranks have ended, unless this process is
 * killed before.
 */
#ifndef CMD_PMIX_FOLDER_H
#define CMD_PMIX_FOLDER_H

#include <ddprun/status.h>
#include <stdint.h>

enum { PMIX_FOLDER_SIZE = 256 };

/* Make the folder, in TMPDIR or /tmp, and one in it for each of @nproc ranks: "PATH/LOCAL_RANK".
 * DDP_E_LIMIT: the path is too long. DDP_E_SYS: it cannot be made. @ret_path is "" if nothing was
 * made. */
DDP_MUST_CHECK ddp_status pmix_folder_make(uint32_t nproc, char ret_path[PMIX_FOLDER_SIZE],
                                           struct ddp_error *err);
/* Remove what can be removed of it. Blocks. */
void pmix_folder_remove(const char *path);

#endif
