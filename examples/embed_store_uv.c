/*
 * embed_store_uv.c - a program with its own libuv loop that keeps a list of its peers.
 *
 *     cc embed_store_uv.c $(pkg-config --cflags --libs ddpstore libuv) -o embed_store_uv
 *     ./embed_store_uv --endpoint=HOST:PORT NAME
 *
 * It registers itself under NAME until it ends, and prints each peer that joins or leaves. Ctrl-C
 * ends it.
 */
#include <ddprun/store_uv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { LEASE_MS = 3000, TIMEOUT_MS = 30000 };

struct member {
    uv_loop_t loop;
    uv_signal_t interrupt;
    ddp_store_uv *store;
    const char *name;
    struct ddp_store_session session;
    int exit_code;
};

static void on_closed(void *data)
{
    struct member *self = data;
    uv_close((uv_handle_t *)&self->interrupt, NULL); /* the last handle: the loop ends */
}

static void leave(struct member *self, int exit_code)
{
    self->exit_code = exit_code;
    if (self->store != NULL)
        ddp_store_uv_close(self->store, on_closed, self);
    self->store = NULL;
}

/* A failed request ends the program; requests that fail because it is leaving are not reported. */
static int check_answer(struct member *self, const struct ddp_store_result *result)
{
    if (result->status == DDP_OK)
        return 1;
    if (self->store != NULL)
        fprintf(stderr, "embed_store_uv: %s\n", result->message);
    leave(self, EXIT_FAILURE);
    return 0;
}

static void submit(struct member *self, struct ddp_store_request request, ddp_store_uv_done *done)
{
    struct ddp_error err;
    request.size = sizeof request;
    request.timeout_ms = TIMEOUT_MS;
    if (self->store == NULL ||
        ddp_store_uv_submit(self->store, &request, done, self, NULL, &err) == DDP_OK)
        return;
    fprintf(stderr, "embed_store_uv: %s\n", err.msg);
    leave(self, EXIT_FAILURE);
}

static void on_listed(void *data, const struct ddp_store_result *result)
{
    if (!check_answer(data, result))
        return;
    for (size_t i = 0; i < result->count; i++)
        printf("= %s\n", result->keys[i]);
    fflush(stdout);
}

static void list(struct member *self)
{
    submit(self, (struct ddp_store_request){.op = DDP_STORE_OP_LIST, .key = ""}, on_listed);
}

/* Watch first, then list, so that no peer that joins in between is missed. */
static void on_watching(void *data, const struct ddp_store_result *result)
{
    if (check_answer(data, result))
        list(data);
}

static void on_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    (void)store;
    if (event->kind == DDP_STORE_EVENT_LOST)
        list(data);
    else
        printf("%c %s\n", event->kind == DDP_STORE_EVENT_SET ? '+' : '-', event->key);
    fflush(stdout);
}

static void on_registered(void *data, const struct ddp_store_result *result)
{
    (void)check_answer(data, result);
}

static void on_session(void *data, const struct ddp_store_result *result)
{
    struct member *self = data;
    if (!check_answer(self, result))
        return;
    self->session = *result->session;
    submit(self,
           (struct ddp_store_request){
               .op = DDP_STORE_OP_SET_EPHEMERAL, .key = self->name, .session = &self->session},
           on_registered);
}

static void register_self(struct member *self)
{
    submit(self,
           (struct ddp_store_request){
               .op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = LEASE_MS, .flags = DDP_STORE_KEEP},
           on_session);
}

/* The store was unreachable for longer than the lease, or was restarted. */
static void on_session_ended(void *data, ddp_store_uv *store,
                             const struct ddp_store_session *session)
{
    (void)store;
    (void)session;
    register_self(data);
}

/* The session is closed, so that no peer waits for the lease. Leave even if that failed. */
static void on_session_closed(void *data, const struct ddp_store_result *result)
{
    (void)result;
    leave(data, EXIT_SUCCESS);
}

static void on_interrupt(uv_signal_t *signal, int number)
{
    struct member *self = signal->data;
    (void)number;
    submit(self,
           (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_CLOSE, .session = &self->session},
           on_session_closed);
}

int main(int argc, char **argv)
{
    static const char flag[] = "--endpoint=";
    if (argc != 3 || strncmp(argv[1], flag, strlen(flag)) != 0) {
        fprintf(stderr, "usage: embed_store_uv --endpoint=HOST:PORT NAME\n");
        return 2;
    }
    struct member self = {.name = argv[2]};
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = argv[1] + strlen(flag), .prefix = "members/"};
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .data = &self, .event = on_event, .session_ended = on_session_ended};
    struct ddp_error err;
    signal(SIGPIPE, SIG_IGN); /* libuv writes without MSG_NOSIGNAL */
    uv_loop_init(&self.loop);
    uv_signal_init(&self.loop, &self.interrupt);
    if (ddp_store_uv_open(&self.loop, &options, &hooks, &self.store, &err) != DDP_OK) {
        fprintf(stderr, "embed_store_uv: %s\n", err.msg);
        return EXIT_FAILURE;
    }
    self.interrupt.data = &self;
    uv_signal_start(&self.interrupt, on_interrupt, SIGINT);
    submit(&self,
           (struct ddp_store_request){
               .op = DDP_STORE_OP_WATCH, .key = "", .flags = DDP_STORE_WATCH_PREFIX},
           on_watching);
    register_self(&self);
    uv_run(&self.loop, UV_RUN_DEFAULT);
    uv_loop_close(&self.loop);
    return self.exit_code;
}
