/*
 * world_store.c - the store of a world where ranks meet on files (file_store.c): a port that no
 * other world of this run has. Nobody listens there.
 */
#include "world.h"

#include <unistd.h>

enum { PORTS = 60000, FIRST_PORT = 1024 };

void world_serve(int out)
{
    char endpoint[64];
    int len = snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", FIRST_PORT + getpid() % PORTS);
    if (write(out, endpoint, (size_t)len) < 0)
        _exit(1);
    close(out);
    for (;;)
        pause(); /* until it is killed */
}
