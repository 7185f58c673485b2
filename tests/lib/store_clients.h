/*
 * store_clients.h - the clients of the store behind one table of functions. A request is the
 * asynchronous client's; the blocking client carries it out by the function of that name.
 */
#ifndef TESTS_STORE_CLIENTS_H
#define TESTS_STORE_CLIENTS_H

#include "store_uv_fixture.h"

#define AT_ONCE (UINT32_MAX - 1) /* as a request's timeout_ms: 0, since that means LONG_MS here */

struct store_client {
    ddp_store *blocking;
    ddp_store_uv *uv;
    /* What the asynchronous one has reported: states by their numbers, answers, events. */
    unsigned states[DDP_STORE_UV_REFUSED + 1], answers, sessions_ended;
    struct seen_event {
        enum ddp_store_event_kind kind;
        uint64_t watch, version;
        char key[32], value[32];
    } events[64];
    unsigned nevents, read;
};

/* What a request came to; valid until the test ends. */
struct outcome {
    bool there;
    ddp_status status;
    struct ddp_error err;
    uint64_t id; /* of the asynchronous client */
    size_t value_len, count;
    char *value; /* never NULL; of a list "a,b" */
    uint64_t version, watch;
    int64_t number;
    struct ddp_store_session session;

    struct store_client *client;
    struct ddp_store_request request;
    uv_thread_t thread;
    struct outcome *next;
};

struct client_row {
    const char *name;
    void (*setup)(void); /* with teardown() a checked fixture: a server, and this kind of client */
    void (*teardown)(void);
    ddp_status (*open)(const struct ddp_store_options *options, struct store_client *client,
                       struct ddp_error *err);
    void (*close)(struct store_client *client);
    void (*start)(struct outcome *outcome);
    void (*finish)(struct outcome *outcome);
    bool (*next_event)(struct store_client *client, uint32_t timeout_ms, struct seen_event *ret);
};

extern const struct client_row blocking_clients, uv_clients;

void clients_use(const struct client_row *row);

ddp_status client_try_open(const struct ddp_store_options *options, struct store_client **ret,
                           struct ddp_error *err);
/* Of the server at @endpoint, or of the fixture's with @endpoint NULL. */
struct store_client *client_open_at(const char *endpoint, const char *prefix, uint32_t flags);
struct store_client *client_open(const char *prefix);
void client_close(struct store_client *client);

struct outcome *client_start(struct store_client *client, struct ddp_store_request request);
/* Until it is answered. */
struct outcome *client_finish(struct outcome *outcome);
struct outcome *client_expect(ddp_status wanted, struct outcome *outcome);

#define REQUEST(...)                ((struct ddp_store_request){__VA_ARGS__})
#define START(client, ...)          client_start(client, REQUEST(__VA_ARGS__))
#define CALL(client, ...)           client_finish(START(client, __VA_ARGS__))
#define EXPECT(wanted, client, ...) client_expect(wanted, CALL(client, __VA_ARGS__))

/* For rows. What is kept has to end in a NUL. */
void client_keep_value(struct outcome *outcome, const char *value, size_t len);
void client_keep_keys(struct outcome *outcome, char *const *keys, size_t count);
void client_keep_event(struct seen_event *seen, const struct ddp_store_event *event);

struct seen_event client_next_event(struct store_client *client);
/* One that has arrived. */
bool client_has_event(struct store_client *client);
void client_await_waits(size_t wanted);

#endif
