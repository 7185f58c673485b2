/*
 * tree.c - removes a tree of files.
 */
#include "tree.h"

#include <ftw.h>
#include <stdio.h>

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)type;
    (void)at;
    return remove(path);
}

int tree_remove(const char *path)
{
    enum { OPEN_MAX_AT_ONCE = 16 };
    return nftw(path, remove_entry, OPEN_MAX_AT_ONCE, FTW_DEPTH | FTW_PHYS);
}
