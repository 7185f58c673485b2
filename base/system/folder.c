/*
 * folder.c - see folder.h.
 */
#include "folder.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

enum { OPEN_FOLDERS = 8 }; /* while the tree is walked */

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *walk)
{
    (void)stat;
    (void)kind;
    (void)walk;
    remove(path); /* what is left is left */
    return 0;
}

void ddpi_folder_remove(const char *path)
{
    nftw(path, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
