/*
 * pmix_folder.c - see pmix_place.h.
 */
#include "pmix_place.h"

#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

ddp_status pmix_folder_make(uint32_t nproc, char ret_path[PMIX_FOLDER_SIZE], struct ddp_error *err)
{
    const char *above = getenv("TMPDIR");
    char path[PMIX_FOLDER_SIZE];
    ret_path[0] = '\0';
    if (above == NULL || above[0] != '/')
        above = "/tmp";
    int len = snprintf(path, sizeof path, "%s/ddprun-mpi-XXXXXX", above);
    if (len >= PMIX_FOLDER_SIZE)
        return ddpi_error_set(err, DDP_E_LIMIT, "the path in TMPDIR is too long for MPI programs");
    if (mkdtemp(path) == NULL)
        return ddpi_error_sys(err, errno, "cannot make a folder in '%s'", above);
    memcpy(ret_path, path, sizeof path);
    for (uint32_t i = 0; i < nproc; i++) {
        char own[PMIX_FOLDER_SIZE + 16];
        snprintf(own, sizeof own, "%s/%" PRIu32, ret_path, i);
        if (mkdir(own, 0700) != 0)
            return ddpi_error_sys(err, errno, "cannot make the folder '%s'", own);
    }
    return DDP_OK;
}
