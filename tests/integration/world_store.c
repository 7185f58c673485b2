/*
 * world_store.c - the store of a world: ddprun's own, on a port that the kernel chooses.
 */
#include "server.h"
#include "world.h"

#include <string.h>
#include <unistd.h>

void world_serve(int out)
{
    uv_loop_t loop;
    struct ddpi_server *server;
    const struct ddpi_server_options options = {0};
    if (uv_loop_init(&loop) != 0 || ddpi_server_create(&loop, &options, &server, NULL) != DDP_OK)
        _exit(1);
    const char *endpoint = ddpi_server_endpoint(server);
    if (write(out, endpoint, strlen(endpoint)) < 0)
        _exit(1);
    close(out);
    uv_run(&loop, UV_RUN_DEFAULT);
    _exit(0);
}
