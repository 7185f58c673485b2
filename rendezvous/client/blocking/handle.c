/*
 * handle.c - the blocking client's handle: the client core (client_core.c) on a socket and
 * poll(2), for any number of threads. No thread of its own.
 *
 * Of the threads that wait, one leads: it dials, polls and reads for all, with the lock released
 * while it polls. The others sleep, each on its own condition variable, and are woken when their
 * answer is there. Who leads leaves when it has its own answer, and wakes the next. The leader
 * alone opens and closes the socket and moves the core's state (but for the time in which it
 * resolves a name, when there is no socket); others put their request into the
 * output and send it themselves. They poke the leader, by an eventfd, when the output is stuck or
 * their deadline comes before the leader would look again.
 *
 * What a call costs when it is alone: an uncontended mutex, one send, one poll, one recv. A handle
 * that was idle is read once more before it is used, so that a connection which has ended meanwhile
 * is not taken for a good one.
 */
#include "blocking_impl.h"
#include "client_store.h"
#include "clock.h"
#include "error.h"
#include "mem.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_MS = 10 };

/* --- who leads --- */

static void poke(ddp_store *store)
{
    if (!store->led || store->poked)
        return;
    store->poked = true;
    (void)!write(store->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void unpoke(ddp_store *store)
{
    if (store->poked)
        (void)!read(store->wake_fd, &(uint64_t){0}, sizeof(uint64_t));
    store->poked = false;
}

static void make_ready(struct waiter *waiter)
{
    waiter->ready = true;
    pthread_cond_signal(&waiter->cond);
}

static bool connected(const ddp_store *store)
{
    return store->core.sm.state == CLIENT_GREETING || store->core.sm.state == CLIENT_OPEN;
}

static void lose(ddp_store *store, const struct ddp_error *err, uint64_t now_ms)
{
    ddpi_client_lost(&store->core, err, now_ms);
    ddpi_link_close(&store->link);
}

static void received(ddp_store *store, size_t len, uint64_t now_ms)
{
    store->io_ms = now_ms;
    ddpi_client_received(&store->core, len, now_ms);
    if (!connected(store))
        ddpi_link_close(&store->link);
}

static void take_input(ddp_store *store, uint64_t now_ms)
{
    struct ddp_error err;
    for (size_t len = 1, room = 1; connected(store) && len == room;) {
        uint8_t *at = ddpi_client_room(&store->core, &room);
        ddp_status status = at != NULL ? ddpi_link_receive(&store->link, at, room, &len, &err)
                                       : ddpi_error_nomem(&err, room);
        if (status != DDP_OK)
            lose(store, &err, now_ms);
        else if (len > 0)
            received(store, len, now_ms);
    }
}

static bool has_output(ddp_store *store, uint64_t now_ms)
{
    return connected(store) && ddpi_buf_len(ddpi_client_output(&store->core, now_ms)) > 0;
}

/* DDP_OK although something is left: the connection takes no more at the moment. */
static ddp_status send_output(ddp_store *store, uint64_t now_ms, struct ddp_error *err)
{
    struct ddpi_client *core = &store->core;
    ddpi_client_fill(core, now_ms);
    while (has_output(store, now_ms)) {
        const struct ddpi_buf *out = ddpi_client_output(core, now_ms);
        size_t sent = 0;
        ddp_status status =
            ddpi_link_send(&store->link, ddpi_buf_head(out), ddpi_buf_len(out), &sent, err);
        if (status != DDP_OK || sent == 0)
            return status;
        ddpi_client_sent(core, sent);
        ddpi_client_fill(core, now_ms);
        store->io_ms = now_ms;
    }
    return DDP_OK;
}

static void lead_output(ddp_store *store, uint64_t now_ms)
{
    struct ddp_error err;
    if (send_output(store, now_ms, &err) == DDP_OK)
        return;
    take_input(store, now_ms); /* the reason may be there to be read */
    if (connected(store))
        lose(store, &err, now_ms);
}

static void greet(ddp_store *store, uint64_t now_ms)
{
    struct ddp_error err;
    struct ddpi_greet_terms terms;
    struct ddpi_address peer = ddpi_link_peer(&store->link);
    if (ddpi_client_auth_terms(&store->target.auth, &peer, &terms, &err) != DDP_OK)
        lose(store, &err, now_ms);
    else
        ddpi_client_connected(&store->core, &terms, now_ms);
}

static void dialled(ddp_store *store, ddp_status status, const struct ddp_error *err,
                    uint64_t now_ms)
{
    if (status != DDP_OK)
        lose(store, err, now_ms);
    else if (!store->link.dialling)
        greet(store, now_ms);
}

/* A resolver may take long: meanwhile each of the others looks after its own deadline. */
static ddp_status resolve_unlocked(ddp_store *store, struct addrinfo **ret, struct ddp_error *err)
{
    const struct ddpi_endpoint *address = &store->target.address;
    store->led = store->resolving = true;
    ddpi_list_for_each (node, &store->waiters)
        pthread_cond_signal(&ddpi_container_of(node, struct waiter, of_store)->cond);
    pthread_mutex_unlock(&store->lock);
    ddp_status status = ddpi_link_resolve(address->host, address->port, ret, err);
    pthread_mutex_lock(&store->lock);
    store->led = store->resolving = false;
    return status;
}

static void begin_dial(ddp_store *store)
{
    struct ddp_error err;
    struct addrinfo *infos;
    ddp_status status = resolve_unlocked(store, &infos, &err);
    uint64_t now_ms = ddpi_link_now();
    if (store->core.sm.state != CLIENT_DIALING) { /* that attempt has been given up */
        if (status == DDP_OK)
            freeaddrinfo(infos);
        return;
    }
    if (status == DDP_OK)
        status = ddpi_link_dial(&store->link, infos, now_ms, store->core.at_ms, &err);
    dialled(store, status, &err, now_ms);
}

/* Make of the link what the core's state says. */
static void follow_state(ddp_store *store)
{
    bool wanted = connected(store) || store->core.sm.state == CLIENT_DIALING;
    if (!wanted)
        ddpi_link_close(&store->link);
    else if (store->link.fd < 0)
        begin_dial(store);
}

static int poll_unlocked(ddp_store *store, struct pollfd *fds, uint64_t until_ms)
{
    struct timespec timeout = {0};
    uint64_t now_ms = ddpi_link_now();
    uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    bool limited = until_ms != UINT64_MAX;
    timeout.tv_sec = (time_t)(left_ms / 1000);
    timeout.tv_nsec = (long)(left_ms % 1000) * 1000000;
    store->led = true;
    store->led_until_ms = until_ms;
    pthread_mutex_unlock(&store->lock);
    int ready = ppoll(fds, 2, limited ? &timeout : NULL, NULL);
    pthread_mutex_lock(&store->lock);
    store->led = false;
    return ready;
}

static void wake_for_events(ddp_store *store)
{
    ddpi_list_for_each (node, &store->waiters) {
        struct waiter *waiter = ddpi_container_of(node, struct waiter, of_store);
        if (waiter->for_events)
            make_ready(waiter);
    }
}

/* One turn of who leads, for @waiter (NULL: for the first connection): carry what can be carried,
 * wait for more at most until @until_ms. */
static void lead(ddp_store *store, const struct waiter *waiter, uint64_t until_ms)
{
    struct ddpi_client *core = &store->core;
    struct ddpi_link *link = &store->link;
    uint64_t now_ms = ddpi_link_now();
    struct ddp_error err;
    unsigned state = core->sm.state;
    if (state == CLIENT_CLOSED) {
        wake_for_events(store); /* there will be none */
        return;
    }
    follow_state(store);
    if (connected(store))
        lead_output(store, now_ms);
    if (core->sm.state != state || (waiter != NULL && waiter->ready))
        return; /* there may be nothing to wait for */
    bool output = link->dialling || has_output(store, now_ms);
    struct pollfd fds[] = {
        {.fd = link->fd,
         .events = (short)(link->dialling ? POLLOUT
                           : output       ? POLLIN | POLLOUT
                                          : POLLIN)},
        {.fd = store->wake_fd, .events = POLLIN},
    };
    uint64_t next_ms = ddpi_client_next(core);
    next_ms = next_ms < until_ms ? next_ms : until_ms;
    if (link->dialling && link->until_ms < next_ms)
        next_ms = link->until_ms;
    bool ready = poll_unlocked(store, fds, next_ms) > 0 && fds[0].revents != 0;
    unpoke(store);
    now_ms = ddpi_link_now();
    if (link->dialling)
        dialled(store, ddpi_link_go_on(link, ready, now_ms, &err), &err, now_ms);
    else if (ready && (fds[0].revents & ~POLLOUT) != 0)
        take_input(store, now_ms);
    ddpi_client_tick(core, now_ms);
}

/* Another thread leads. */
static void follow(ddp_store *store, struct waiter *waiter, uint64_t until_ms)
{
    uint64_t next_ms = store->resolving ? ddpi_client_next(&store->core) : UINT64_MAX;
    until_ms = next_ms < until_ms ? next_ms : until_ms;
    const struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                                   .tv_nsec = (long)(until_ms % 1000) * 1000000};
    if (until_ms == UINT64_MAX)
        pthread_cond_wait(&waiter->cond, &store->lock);
    else
        pthread_cond_clockwait(&waiter->cond, &store->lock, CLOCK_MONOTONIC, &until);
    if (store->resolving)
        ddpi_client_tick(&store->core, ddpi_link_now());
}

static void wake_a_leader(ddp_store *store)
{
    if (store->led || ddpi_list_empty(&store->waiters))
        return;
    struct waiter *waiter = ddpi_container_of(store->waiters.next, struct waiter, of_store);
    pthread_cond_signal(&waiter->cond);
}

void ddpi_store_await(ddp_store *store, struct waiter *waiter, uint64_t until_ms)
{
    ddpi_list_append(&store->waiters, &waiter->of_store);
    for (uint64_t now_ms = 0; !waiter->ready && now_ms < until_ms;) {
        if (store->led)
            follow(store, waiter, until_ms);
        else
            lead(store, waiter, until_ms);
        if (until_ms != UINT64_MAX)
            now_ms = ddpi_link_now();
    }
    ddpi_list_remove(&waiter->of_store);
    wake_a_leader(store);
}

bool ddpi_store_met(ddp_store *store, uint64_t *ret_number)
{
    pthread_mutex_lock(&store->lock);
    bool met = ddpi_client_met(&store->core, ret_number);
    pthread_mutex_unlock(&store->lock);
    return met;
}

/* --- calls --- */

static void on_done(void *ctx, struct ddpi_client_request *request,
                    const struct ddpi_message *reply)
{
    ddp_store *store = ctx;
    struct call *call = ddpi_container_of(request, struct call, request);
    call->status = reply->status;
    call->version = reply->version;
    call->number = reply->number;
    if (reply->status == DDP_OK && call->take != NULL)
        call->status = call->take(store, call, reply, call->err);
    else if (reply->status != DDP_OK)
        ddpi_error_set(call->err, reply->status, "%.*s", (int)reply->text.len,
                       (const char *)reply->text.data);
    make_ready(&call->waiter);
}

/* While another thread leads: let it do for this request only what this one cannot. */
static void ask_beside(ddp_store *store, uint64_t now_ms)
{
    struct ddp_error err;
    if (store->core.sm.state == CLIENT_OPEN &&
        (send_output(store, now_ms, &err) != DDP_OK || has_output(store, now_ms)))
        poke(store);
    if (ddpi_client_next(&store->core) < store->led_until_ms)
        poke(store);
}

void ddpi_store_run_all(ddp_store *store, struct call *first, uint32_t timeout_ms)
{
    pthread_mutex_lock(&store->lock);
    uint64_t now_ms = ddpi_link_now();
    if (!store->led && connected(store) && now_ms - store->io_ms >= IDLE_MS)
        take_input(store, now_ms);
    for (struct call *call = first; call != NULL; call = call->next) {
        pthread_cond_init(&call->waiter.cond, NULL);
        ddpi_list_init(&call->waiter.of_store);
        call->status =
            ddpi_client_submit(&store->core, &call->request, timeout_ms, now_ms, call->err);
    }
    if (store->led)
        ask_beside(store, now_ms);
    for (struct call *call = first; call != NULL; call = call->next) {
        if (call->status == DDP_OK) /* it has been submitted, and may have been answered */
            ddpi_store_await(store, &call->waiter, UINT64_MAX);
        pthread_cond_destroy(&call->waiter.cond);
    }
    pthread_mutex_unlock(&store->lock);
}

ddp_status ddpi_store_tell(const ddp_store *store, const struct call *call,
                           const struct ddp_error *why, struct ddp_error *err)
{
    return ddpi_error_set(err, call->status, "%s at the store %s: %s",
                          ddpi_op_name(call->request.message.op), store->target.endpoint, why->msg);
}

ddp_status ddpi_store_run(ddp_store *store, struct call *call, uint32_t timeout_ms,
                          struct ddp_error *err)
{
    struct ddp_error why;
    call->err = &why;
    ddpi_store_run_all(store, call, timeout_ms);
    return call->status == DDP_OK ? DDP_OK : ddpi_store_tell(store, call, &why, err);
}

ddp_status ddpi_store_run_key(ddp_store *store, const char *key, struct call *call,
                              uint32_t timeout_ms, struct ddp_error *err)
{
    char *full;
    ddp_status status = ddpi_target_key(&store->target, &store->limits, key, &full,
                                        &call->request.message.key, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_store_run(store, call, timeout_ms, err);
    ddpi_free(full);
    return status;
}

static void cancel_all(ddp_store *store, struct ddpi_list *requests)
{
    while (!ddpi_list_empty(requests))
        ddpi_client_cancel(&store->core, ddpi_request_of(requests->next));
}

void ddp_store_cancel(ddp_store *store)
{
    pthread_mutex_lock(&store->lock);
    cancel_all(store, &store->core.requests.queued);
    cancel_all(store, &store->core.requests.pending);
    ddpi_list_for_each (node, &store->waiters) {
        struct waiter *waiter = ddpi_container_of(node, struct waiter, of_store);
        waiter->canceled = true;
        make_ready(waiter);
    }
    struct ddp_error err;
    if (connected(store)) /* the server need not wait for them either; a failure will be found */
        (void)send_output(store, ddpi_link_now(), &err);
    poke(store);
    pthread_mutex_unlock(&store->lock);
}

/* --- life --- */

/* splitmix64: enough to keep clients from dialling in step. */
static uint32_t next_random(void *ctx)
{
    ddp_store *store = ctx;
    uint64_t bits = store->jitter += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(bits >> 32);
}

/* A server that is starting, or ending before another takes its place, is worth another try. */
static bool passing(ddp_status status)
{
    return status == DDP_E_UNREACHABLE || status == DDP_E_CLOSED;
}

static ddp_status connect_until(ddp_store *store, struct ddp_error *err)
{
    struct ddpi_client *core = &store->core;
    uint32_t timeout_ms = store->target.connect_timeout_ms;
    uint64_t now_ms = ddpi_link_now(), deadline_ms = ddpi_deadline(now_ms, timeout_ms);
    struct ddp_error why;
    ddpi_client_start(core, now_ms);
    while (core->sm.state != CLIENT_OPEN && now_ms < deadline_ms &&
           (core->why.status == DDP_OK || passing(core->why.status))) {
        lead(store, NULL, deadline_ms);
        now_ms = ddpi_link_now();
    }
    if (core->sm.state == CLIENT_OPEN) {
        store->limits = core->welcome;
        return DDP_OK;
    }
    ddpi_client_why(core, &why);
    if (passing(why.status) && ddpi_link_lacks_descriptors(core->why.sys_errno))
        return ddpi_error_set(err, DDP_E_SYSTEM,
                              "no descriptor is left to connect to the store at %s (tried for %u "
                              "ms): %s",
                              store->target.endpoint, timeout_ms, why.msg);
    if (passing(why.status))
        return ddpi_error_set(err, DDP_E_UNREACHABLE,
                              "no store answers at %s (tried for %u ms; is the server running "
                              "there?): %s",
                              store->target.endpoint, timeout_ms, why.msg);
    return ddpi_error_set(err, why.status, "store at %s: %s", store->target.endpoint, why.msg);
}

static void init(ddp_store *store)
{
    const struct ddpi_client_hooks hooks = {
        .ctx = store, .done = on_done, .event = ddpi_store_on_event, .random = next_random};
    ddpi_client_init(&store->core, &hooks);
    ddpi_link_init(&store->link);
    ddpi_list_init(&store->waiters);
    ddpi_list_init(&store->events);
    pthread_mutex_init(&store->lock, NULL);
    if (getrandom(&store->jitter, sizeof store->jitter, GRND_NONBLOCK) < 0)
        store->jitter = ddpi_now_us(&ddpi_clock_monotonic);
}

static ddp_status make_wake_fd(ddp_store *store, struct ddp_error *err)
{
    char text[DDP_ERROR_TEXT / 2];
    store->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->wake_fd >= 0)
        return DDP_OK;
    ddpi_link_describe(errno, text, sizeof text);
    return ddpi_error_set(err, DDP_E_SYSTEM, "cannot make an eventfd: %s", text);
}

ddp_status ddp_store_connect(const struct ddp_store_options *options, ddp_store **ret_store,
                             struct ddp_error *err)
{
    ddp_store *store = ddpi_calloc(1, sizeof(*store));
    if (store == NULL)
        return ddpi_error_nomem(err, sizeof(*store));
    init(store);
    ddp_status status = make_wake_fd(store, err);
    if (status == DDP_OK)
        status = ddpi_target_init(&store->target, options, err);
    if (status == DDP_OK) {
        pthread_mutex_lock(&store->lock);
        status = connect_until(store, err);
        store->core.no_reconnect = store->target.flags & DDP_STORE_NO_RECONNECT;
        pthread_mutex_unlock(&store->lock);
    }
    if (status == DDP_OK)
        *ret_store = store;
    else
        ddp_store_close(store);
    return status;
}

void ddp_store_close(ddp_store *store)
{
    if (store == NULL)
        return;
    while (!ddpi_list_empty(&store->events)) {
        struct ddpi_event *event =
            ddpi_container_of(store->events.next, struct ddpi_event, of_store);
        ddpi_list_remove(&event->of_store);
        ddpi_free(event);
    }
    ddpi_client_finish(&store->core);
    ddpi_link_close(&store->link);
    if (store->wake_fd >= 0)
        close(store->wake_fd);
    pthread_mutex_destroy(&store->lock);
    ddpi_target_finish(&store->target);
    ddpi_free(store);
}

void ddp_store_free(void *memory)
{
    ddpi_free(memory);
}
