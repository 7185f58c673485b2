/*
 * keeper_none.c - replaces keeper.c in a build without libcurl.
 */
#include "keeper.h"

#include "exit_codes.h"

#include <stdio.h>

int keeper_run(uv_loop_t *loop, const struct keeper_options *options)
{
    (void)loop;
    (void)options;
    fputs("ddprund: this build has no etcd, which --cluster needs; rebuild it with "
          "-Detcd=enabled, which needs libcurl\n",
          stderr);
    return EXIT_CONFIG;
}
