/*
 * descriptors.c - counts what the kernel lists; the one by which it does so is counted as well.
 */
#include "descriptors.h"

#include <dirent.h>
#include <stdlib.h>

unsigned open_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL)
        abort();
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}
