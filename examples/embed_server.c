/*
 * embed_server.c - a program that embeds a ddprun store server and also connects to it as a client.
 *
 *     cc embed_server.c $(pkg-config --cflags --libs ddpstore libuv) -o embed_server
 *     ./embed_server 29400
 *
 * It serves at [HOST:]PORT until SIGINT or SIGTERM, and prints each change of the keys below
 * "job/". Try it from another terminal:
 *
 *     ddpctl store --no-auth --endpoint=127.0.0.1:29400 set job/a 1
 *
 * --no-auth is needed where you have a token, as this server has none to prove it by. PyTorch finds
 * it too: torch.distributed.TCPStore("127.0.0.1", 29400, is_master=False).
 */
#include <ddprun/store_server.h>
#include <ddprun/store_uv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct program {
    uv_loop_t loop;
    uv_signal_t signals[2];
    ddp_store_server *server;
    ddp_store_uv *client;
    int code;
};

static int fail(const struct ddp_error *err)
{
    fprintf(stderr, "embed_server: %s\n", err->msg);
    return EXIT_FAILURE;
}

static void on_log(void *data, enum ddp_store_server_log_level level, const char *line)
{
    (void)data;
    if (level <= DDP_STORE_SERVER_LOG_WARNING)
        fprintf(stderr, "embed_server: %s\n", line);
}

/* Closes the server and the client; the loop ends when both are closed. */
static void stop(struct program *program)
{
    for (size_t i = 0; i < 2; i++)
        if (!uv_is_closing((uv_handle_t *)&program->signals[i]))
            uv_close((uv_handle_t *)&program->signals[i], NULL);
    if (program->client != NULL)
        ddp_store_uv_close(program->client, NULL, NULL);
    if (program->server != NULL)
        ddp_store_server_close(program->server, NULL, NULL);
    program->client = NULL;
    program->server = NULL;
}

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)signum;
    stop(handle->data);
}

/* ---- the client, on the same loop ---- */

static void on_event(void *data, ddp_store_uv *client, const struct ddp_store_event *event)
{
    (void)data;
    (void)client;
    if (event->kind == DDP_STORE_EVENT_SET)
        printf("%s is %.*s\n", event->key, (int)event->value_len, (const char *)event->value);
    else if (event->kind == DDP_STORE_EVENT_DELETED)
        printf("%s is gone\n", event->key);
    else
        printf("changes were missed\n");
    fflush(stdout);
}

/* Print the address only now, so that the watch sees all changes by other clients. */
static void on_watching(void *data, const struct ddp_store_result *result)
{
    struct program *program = data;
    if (result->status == DDP_OK) {
        printf("listening on %s\n", ddp_store_server_endpoint(program->server, 0));
        fflush(stdout);
    }
    if (result->status == DDP_OK || result->status == DDP_E_CANCELED)
        return;
    fprintf(stderr, "embed_server: %s\n", result->message);
    program->code = EXIT_FAILURE;
    stop(program);
}

static ddp_status watch(struct program *program, struct ddp_error *err)
{
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = ddp_store_server_endpoint(program->server, 0)};
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .event = on_event, .data = program};
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = DDP_STORE_OP_WATCH,
                                              .key = "job/",
                                              .flags = DDP_STORE_WATCH_PREFIX,
                                              .timeout_ms = 5000};
    ddp_status status = ddp_store_uv_open(&program->loop, &options, &hooks, &program->client, err);
    if (status != DDP_OK)
        return status;
    return ddp_store_uv_submit(program->client, &request, on_watching, program, NULL, err);
}

/* ---- the server ---- */

static ddp_status serve(struct program *program, const char *host, uint16_t port,
                        struct ddp_error *err)
{
    const struct ddp_store_server_options options = {
        .size = sizeof options, .max_bytes = (size_t)64 << 20, .log = on_log};
    ddp_status status = ddp_store_server_open(&program->loop, &options, &program->server, err);
    if (status == DDP_OK)
        status = ddp_store_server_listen(program->server, host, port, NULL, err);
    return status;
}

int main(int argc, char **argv)
{
    struct program program = {.code = EXIT_SUCCESS};
    struct ddp_error err;
    char host[64] = "127.0.0.1";
    char *colon = argc == 2 ? strrchr(argv[1], ':') : NULL;
    if (argc != 2) {
        fputs("usage: embed_server [HOST:]PORT\n", stderr);
        return EXIT_FAILURE;
    }
    if (colon != NULL)
        snprintf(host, sizeof host, "%.*s", (int)(colon - argv[1]), argv[1]);
    unsigned long port = strtoul(colon != NULL ? colon + 1 : argv[1], NULL, 10);
    signal(SIGPIPE, SIG_IGN); /* libuv writes to clients that may be gone */
    if (port > UINT16_MAX || uv_loop_init(&program.loop) != 0)
        return EXIT_FAILURE;
    static const int signums[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < 2; i++) {
        uv_signal_init(&program.loop, &program.signals[i]);
        program.signals[i].data = &program;
        uv_signal_start(&program.signals[i], on_signal, signums[i]);
    }
    ddp_status status = serve(&program, host, (uint16_t)port, &err);
    if (status == DDP_OK)
        status = watch(&program, &err);
    if (status != DDP_OK) {
        program.code = fail(&err);
        stop(&program);
    }
    uv_run(&program.loop, UV_RUN_DEFAULT);
    uv_loop_close(&program.loop);
    return program.code;
}
