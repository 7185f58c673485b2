/*
 * horovod.c - see horovod.h. Owns the listening socket, the HTTP server and a client of the store.
 *
 * A worker asks for a key that does not exist yet again and again, over a new connection each time.
 * So the answer "not there" is late: it waits for the key for a moment.
 */
#include "horovod.h"

#include "horovod_key.h"
#include "listen.h"
#include "mem.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    FOR_A_MOMENT_MS = 100,
    STORE_MS = 10000,  /* for the store to answer */
    CONNECTIONS = 512, /* fewer than a connection to the store may have waits */
    CLIENT_MS = 10000,
    BODY_MAX = 4 << 20, /* addresses of one rank for 30,000 others */
    BODY_TOTAL = 64 << 20,
};

enum { DONE = 200, BAD_PATH = 400, NOT_THERE = 404, BAD_METHOD = 405, NO_STORE = 503 };

/* ---- requests ---- */

/* A request of a worker while the store is asked. */
struct asked {
    struct horovod *horovod;
    struct http_request *http;
    char key[HOROVOD_KEY_SIZE];
};

static void tell_failure(struct horovod *horovod, const char *why)
{
    if (!horovod->told_failure)
        membership_say(horovod->membership, "Horovod's rendezvous cannot use the job's store: %s",
                       why);
    horovod->told_failure = true;
}

static bool ask_store(struct asked *asked, enum ddp_store_op op, uint32_t timeout_ms,
                      ddp_store_uv_done *done)
{
    struct ddp_error err;
    struct ddp_store_request request = {
        .size = sizeof request, .op = op, .timeout_ms = timeout_ms, .key = asked->key};
    if (op == DDP_STORE_OP_SET) {
        request.value = asked->http->body_len > 0 ? asked->http->body : "";
        request.value_len = asked->http->body_len;
    }
    ddp_store_uv *store = asked->horovod->store;
    if (store == NULL) /* it is being closed */
        return false;
    if (ddp_store_uv_submit(store, &request, done, asked, NULL, &err) == DDP_OK)
        return true;
    tell_failure(asked->horovod, err.msg);
    return false;
}

static void answer(struct asked *asked, unsigned status, const struct ddp_store_result *result)
{
    if (status == NO_STORE && asked->horovod->store != NULL)
        tell_failure(asked->horovod, result->message);
    http_answer(asked->http, status, NULL, result->value, result->value_len);
    ddpi_free(asked);
}

/* It was not there before: if the store does not answer now, it still is not, as far as we know. */
static void on_awaited(void *data, const struct ddp_store_result *result)
{
    answer(data, result->status == DDP_OK ? DONE : NOT_THERE, result);
}

static void on_value(void *data, const struct ddp_store_result *result)
{
    if (result->status == DDP_E_NOT_FOUND &&
        ask_store(data, DDP_STORE_OP_GET, FOR_A_MOMENT_MS, on_awaited))
        return;
    answer(data,
           result->status == DDP_OK            ? DONE
           : result->status == DDP_E_NOT_FOUND ? NOT_THERE
                                               : NO_STORE,
           result);
}

static void on_changed(void *data, const struct ddp_store_result *result)
{
    bool done = result->status == DDP_OK || result->status == DDP_E_NOT_FOUND;
    answer(data, done ? DONE : NO_STORE, result);
}

static const struct method {
    const char *name;
    enum ddp_store_op op;
    ddp_store_uv_done *done;
} methods[] = {
    {"GET", DDP_STORE_OP_TRY_GET, on_value},
    {"PUT", DDP_STORE_OP_SET, on_changed},
    {"DELETE", DDP_STORE_OP_DELETE, on_changed},
};

static const struct method *find_method(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, name) == 0)
            return &methods[i];
    return NULL;
}

static unsigned on_request(void *ctx, struct http_request *http)
{
    struct horovod *horovod = ctx;
    const struct ddp_round_seat *seat = &horovod->membership->agent.seat;
    const struct method *method = find_method(http->method);
    char key[HOROVOD_KEY_SIZE];
    if (method == NULL)
        return BAD_METHOD;
    if (!horovod_key_make(http->path, seat->generation, seat->node_rank, key))
        return BAD_PATH;
    struct asked *asked = ddpi_calloc(1, sizeof *asked);
    if (asked == NULL)
        return NO_STORE;
    asked->horovod = horovod;
    asked->http = http;
    memcpy(asked->key, key, sizeof key);
    if (ask_store(asked, method->op, STORE_MS, method->done))
        return 0;
    ddpi_free(asked);
    return NO_STORE;
}

/* ---- the first worker connects ---- */

static ddp_status connect_store(struct horovod *horovod, struct ddp_error *err)
{
    const struct http_options options = {.ctx = horovod,
                                         .request = on_request,
                                         .max_connections = CONNECTIONS,
                                         .limit_ms = CLIENT_MS,
                                         .max_body = BODY_MAX,
                                         .max_body_total = BODY_TOTAL,
                                         .methods = "GET, PUT, DELETE"};
    ddp_status status = http_server_create(horovod->loop, &options, &horovod->http, err);
    if (status == DDP_OK)
        status = ddp_store_uv_open(horovod->loop, &horovod->options, NULL, &horovod->store, err);
    return status;
}

static bool is_ready(struct horovod *horovod)
{
    struct ddp_error err;
    if (horovod->store != NULL)
        return true;
    if (horovod->broken)
        return false;
    horovod->broken = connect_store(horovod, &err) != DDP_OK;
    if (horovod->broken)
        membership_say(horovod->membership,
                       "a worker asks for Horovod's rendezvous, and gets no answer: %s", err.msg);
    return !horovod->broken;
}

static bool is_ours(struct horovod *horovod, int fd, const struct sockaddr *peer)
{
    struct sockaddr_storage own = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof own;
    uint32_t owner;
    bool known;
    (void)getsockname(fd, (struct sockaddr *)&own, &len);
    const struct ddpi_end there = ddpi_end_of(peer);
    const struct ddpi_end here = ddpi_end_of((const struct sockaddr *)&own);
    if (horovod->trust_local_users ||
        ddpi_owners_ours(&horovod->owners, &there, &here, &owner, &known))
        return true;
    if (known && !horovod->told_strangers) {
        membership_say(horovod->membership,
                       "user %" PRIu32 " of this machine is denied Horovod's rendezvous; "
                       "--trust-local-users admits all users",
                       owner);
        horovod->told_strangers = true;
    }
    return false;
}

static void on_connected(void *ctx, const struct ddpi_listener *listener, int fd,
                         const struct sockaddr *peer)
{
    struct horovod *horovod = ctx;
    (void)listener;
    if (is_ours(horovod, fd, peer) && is_ready(horovod))
        http_server_take(horovod->http, fd, peer);
    else
        close(fd);
}

/* ---- life ---- */

static void on_shed(void *ctx)
{
    (void)ctx; /* the worker tries again */
}

static void on_listener_closed(void *ctx)
{
    (void)ctx;
}

void horovod_open(struct horovod *horovod, uv_loop_t *loop, const struct ddp_store_options *options,
                  bool trust_local_users, struct membership *membership)
{
    int fd;
    *horovod = (struct horovod){
        .loop = loop,
        .membership = membership,
        .options = *options,
        .trust_local_users = trust_local_users,
        .env = {.loop = loop,
                .owner = horovod,
                .connected = on_connected,
                .shed = on_shed,
                .closed = on_listener_closed},
    };
    ddpi_owners_init(&horovod->owners);
    if (ddpi_listen("127.0.0.1", 0, true, &fd, NULL) == DDP_OK &&
        ddpi_listener_create(&horovod->env, fd, &horovod->listener, NULL) == DDP_OK)
        horovod->place.port = horovod->listener->port;
}

static void on_store_closed(void *data)
{
    struct horovod *horovod = data;
    http_server_destroy(horovod->http);
    horovod->http = NULL;
}

/* The store's client answers all requests before it is closed, as the HTTP server needs it. */
void horovod_close(struct horovod *horovod)
{
    ddp_store_uv *store = horovod->store;
    if (horovod->listener == NULL)
        return;
    ddpi_listener_close(horovod->listener);
    ddpi_owners_finish(&horovod->owners);
    horovod->listener = NULL;
    horovod->store = NULL;
    if (store != NULL)
        ddp_store_uv_close(store, on_store_closed, horovod);
    else
        on_store_closed(horovod);
}
