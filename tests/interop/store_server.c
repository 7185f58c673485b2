/*
 * store_server.c - the store's server as a program, for tests that speak to it from other
 * languages. Prints its endpoint, then serves until its standard input ends. A line there is a
 * prefix: from then on TCPStore clients see the keys with it; the answer is the same line.
 */
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_LEN = 256 };

struct program {
    struct ddpi_server *server;
    uv_poll_t input;
    char line[LINE_MAX_LEN];
    size_t len;
};

static void take_line(struct program *program)
{
    program->line[program->len] = '\0';
    program->len = 0;
    struct ddp_error err;
    if (ddpi_server_set_tcpstore_prefix(program->server, program->line, &err) != DDP_OK)
        fprintf(stderr, "store_server: %s\n", err.msg);
    printf("%s\n", program->line);
    fflush(stdout);
}

static void on_input(uv_poll_t *poll, int uv_err, int events)
{
    (void)events;
    struct program *program = poll->data;
    char byte;
    if (uv_err != 0 || read(STDIN_FILENO, &byte, 1) != 1) {
        uv_close((uv_handle_t *)poll, NULL);
        ddpi_server_close(program->server, NULL, NULL);
    } else if (byte == '\n') {
        take_line(program);
    } else if (program->len < LINE_MAX_LEN - 1) {
        program->line[program->len++] = byte;
    }
}

int main(void)
{
    static struct program program;
    const struct ddpi_server_options options = {0};
    struct ddp_error err;
    uv_loop_t loop;
    if (uv_loop_init(&loop) != 0)
        return EXIT_FAILURE;
    if (ddpi_server_create(&loop, &options, &program.server, &err) != DDP_OK) {
        fprintf(stderr, "store_server: %s\n", err.msg);
        return EXIT_FAILURE;
    }
    if (uv_poll_init(&loop, &program.input, STDIN_FILENO) != 0)
        return EXIT_FAILURE;
    program.input.data = &program;
    uv_poll_start(&program.input, UV_READABLE, on_input);
    printf("%s\n", ddpi_server_endpoint(program.server));
    fflush(stdout);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
