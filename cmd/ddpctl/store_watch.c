/*
 * store_watch.c - "ddpctl store watch": prints a line for each change as it arrives. Existing keys
 * are listed after the watch has begun, so that no change is lost between the two.
 */
#include "error.h"
#include "job_json.h"
#include "mem.h"
#include "store_loop.h"

#include <inttypes.h>
#include <string.h>

/* Whether existing keys are being listed, and then read one by one. Another store, to which the
 * client has come meanwhile, has other keys: its answers do not go on with the old list. */
enum reading { NOT_READING, READING, READING_ANEW };

struct watching {
    struct ddpctl_loop loop;
    const char *name;
    uint64_t seen;
    bool lost; /* the connection is down */
    enum reading reading;
    char **keys;
    size_t count, next;
};

struct line {
    const char *kind;
    const char *key;
    size_t key_len;
    const void *value; /* NULL: no value */
    size_t value_len;
    uint64_t version;
};

/* ---- output ---- */

static ddp_status print_line(const struct line *line, bool json, struct ddp_error *err)
{
    if (json) {
        json_t *value =
            line->value != NULL ? json_bytes(line->value, line->value_len) : json_null();
        return ddpctl_print_json(
            json_pack("{s:o,s:o,s:I,s:s}", "key", json_bytes(line->key, line->key_len), "value",
                      value, "version", (json_int_t)line->version, "kind", line->kind),
            err);
    }
    printf("%" PRIu64 "\t%s\t", line->version, line->kind);
    ddpctl_print_bytes(stdout, line->key, line->key_len);
    if (line->value != NULL)
        putchar('\t');
    ddpctl_print_bytes(stdout, line->value, line->value_len);
    putchar('\n');
    return DDP_OK;
}

/* False: printing failed, and the watch ends. */
static bool print_watch_line(struct watching *watching, const struct line *line)
{
    struct ddp_error err;
    ddp_status status = print_line(line, watching->loop.call->options->json, &err);
    if (status != DDP_OK)
        ddpctl_loop_end(&watching->loop, status, err.msg);
    return status == DDP_OK && ddpctl_loop_flush(&watching->loop);
}

/* ---- the end ---- */

static void stop_watch(struct ddpctl_loop *loop)
{
    ddpctl_loop_end(loop, DDP_OK, NULL);
}

static void on_quiet(uv_timer_t *timer)
{
    ddpctl_loop_end(timer->data, DDP_E_TIMEOUT, "nothing has changed within --timeout");
}

/* Start --timeout again, after an event. */
static void restart_timer(struct watching *watching)
{
    uint64_t timeout_ms = watching->loop.call->options->timeout_ms;
    if (timeout_ms != UINT64_MAX && !watching->loop.closing)
        uv_timer_start(&watching->loop.timer, on_quiet, timeout_ms, 0);
}

/* On failure, end the watch and return false. */
static bool watch_succeeded(struct watching *watching, const struct ddp_store_result *result)
{
    if (result->status != DDP_OK)
        ddpctl_loop_end(&watching->loop, result->status, result->message);
    return result->status == DDP_OK;
}

/* ---- existing keys ---- */

static void forget_keys(struct watching *watching)
{
    for (size_t i = 0; i < watching->count; i++)
        ddpi_free(watching->keys[i]);
    ddpi_free(watching->keys);
    watching->keys = NULL;
    watching->count = watching->next = 0;
}

static void read_next(struct watching *watching);
static void read_existing(struct watching *watching);

/* An answer has come. Whether it is not of use any more, and all is read anew. */
static bool begins_anew(struct watching *watching)
{
    if (watching->reading != READING_ANEW)
        return false;
    forget_keys(watching);
    read_existing(watching);
    return true;
}

static void on_value(void *data, const struct ddp_store_result *result)
{
    struct watching *watching = data;
    bool found = result->status != DDP_E_NOT_FOUND; /* else the watch reports its deletion */
    if ((found && !watch_succeeded(watching, result)) || begins_anew(watching))
        return;
    if (found) {
        const char *key = watching->keys[watching->next];
        const struct line line = {
            "set", key, strlen(key), result->value, result->value_len, result->version};
        if (!print_watch_line(watching, &line))
            return;
    }
    watching->next++;
    read_next(watching);
}

static void read_next(struct watching *watching)
{
    if (watching->next == watching->count) {
        forget_keys(watching);
        watching->reading = NOT_READING;
        return;
    }
    ddpctl_loop_ask(&watching->loop,
                    (struct ddp_store_request){.op = DDP_STORE_OP_TRY_GET,
                                               .key = watching->keys[watching->next]},
                    on_value, watching);
}

static void read_keys(struct watching *watching, const char *const *keys, size_t count)
{
    watching->keys = ddpi_calloc(count + 1, sizeof *watching->keys);
    bool copied = watching->keys != NULL;
    while (copied && watching->count < count) {
        char *key = ddpi_strdup(keys[watching->count]);
        copied = key != NULL;
        if (copied)
            watching->keys[watching->count++] = key;
    }
    if (copied)
        read_next(watching);
    else
        ddpctl_loop_end(&watching->loop, DDP_E_NOMEM, "out of memory for the names of all keys");
}

static void on_listed(void *data, const struct ddp_store_result *result)
{
    if (watch_succeeded(data, result) && !begins_anew(data))
        read_keys(data, (const char *const *)result->keys, result->count);
}

static void read_existing(struct watching *watching)
{
    watching->reading = READING;
    if (watching->loop.call->options->watch.key)
        read_keys(watching, &watching->name, 1);
    else
        ddpctl_loop_ask(&watching->loop,
                        (struct ddp_store_request){.op = DDP_STORE_OP_LIST, .key = watching->name},
                        on_listed, watching);
}

static void show_initial(struct watching *watching)
{
    if (!watching->loop.call->options->watch.initial)
        return;
    if (watching->reading == NOT_READING)
        read_existing(watching);
    else
        watching->reading = READING_ANEW;
}

/* ---- changes ---- */

static void on_watch_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    struct watching *watching = data;
    uint64_t count = watching->loop.call->options->watch.count;
    (void)store;
    if (watching->loop.closing)
        return;
    restart_timer(watching);
    if (event->kind == DDP_STORE_EVENT_LOST && event->value_len > 0) {
        ddpctl_loop_end(&watching->loop, DDP_E_CLOSED, event->value);
        return;
    }
    if (event->kind == DDP_STORE_EVENT_LOST) {
        fputs("ddpctl: changes were missed; continuing with new ones\n", stderr);
        show_initial(watching);
        return;
    }
    bool set = event->kind == DDP_STORE_EVENT_SET;
    const struct line line = {set ? "set" : "deleted",   event->key,       event->key_len,
                              set ? event->value : NULL, event->value_len, event->version};
    if (print_watch_line(watching, &line) && ++watching->seen == count)
        stop_watch(&watching->loop);
}

static void on_watch_state(void *data, ddp_store_uv *store, enum ddp_store_uv_state state,
                           const char *why)
{
    struct watching *watching = data;
    (void)store;
    if (watching->loop.closing || watching->lost == (state != DDP_STORE_UV_CONNECTED))
        return;
    watching->lost = !watching->lost;
    if (watching->lost)
        fprintf(stderr, "ddpctl: the connection is lost (%s); trying to connect again\n", why);
    else
        fputs("ddpctl: connected again\n", stderr);
}

static void on_watching(void *data, const struct ddp_store_result *result)
{
    if (watch_succeeded(data, result))
        show_initial(data);
}

static void begin_watch(struct ddpctl_loop *loop)
{
    struct watching *watching = (struct watching *)loop; /* its first member */
    const struct ddpctl_watch_options *given = &loop->call->options->watch;
    ddpctl_loop_ask(loop,
                    (struct ddp_store_request){.op = DDP_STORE_OP_WATCH,
                                               .key = watching->name,
                                               .flags = given->key ? 0 : DDP_STORE_WATCH_PREFIX,
                                               .version = given->from},
                    on_watching, watching);
    restart_timer(watching);
}

ddp_status ddpctl_run_watch(struct ddpctl_call *call, struct ddp_error *err)
{
    struct watching watching = {.loop = {.call = call, .stop = stop_watch},
                                .name = call->nwords > 0 ? call->words[0] : ""};
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .data = &watching, .event = on_watch_event, .state = on_watch_state};
    struct ddp_store_options options = *call->connect;
    options.flags &= ~DDP_STORE_NO_RECONNECT;
    if (call->options->watch.key && call->nwords == 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--key needs a key: 'ddpctl store watch --key KEY'");
    ddp_status status = ddpctl_loop_run(&watching.loop, &options, &hooks, begin_watch, err);
    forget_keys(&watching);
    return status;
}
