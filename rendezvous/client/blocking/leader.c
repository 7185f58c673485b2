/*
 * leader.c - the client core (client_core.c) on a socket and poll(2), for any number of threads. No
 * thread of its own.
 *
 * Of the threads that wait, one leads: it dials, polls and reads for all, and releases the lock
 * while it polls. The others sleep, each on its own condition variable, until their reply is there.
 * A leader that has its own reply leaves and wakes the next one. Only the leader opens and closes
 * the socket and moves the core's state; while it resolves a name, the others watch the time.
 * Other threads write their requests into the output and send it themselves. They poke the leader,
 * by an eventfd, if the socket takes no more or if their deadline comes before the leader would
 * look again.
 *
 * A call that is alone costs an uncontended mutex, one send, one poll and one recv. A connection
 * that was idle is read once more before it is used, as it may have ended meanwhile.
 */
#include "blocking_state.h"

#include "clock.h"
#include "error.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_MS = 10 };

/* ---- poking and waking ---- */

static void poke_leader(ddp_store *store)
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

void ddpi_waiter_make_ready(struct waiter *waiter)
{
    waiter->ready = true;
    pthread_cond_signal(&waiter->cond);
}

/* ---- input and output ---- */

static bool is_connected(const ddp_store *store)
{
    return store->core.sm.state == CLIENT_GREETING || store->core.sm.state == CLIENT_OPEN;
}

static void lose_link(ddp_store *store, const struct ddp_error *err, uint64_t now_ms)
{
    ddpi_client_lost(&store->core, err, now_ms);
    ddpi_link_close(&store->link);
}

static void take_received(ddp_store *store, size_t len, uint64_t now_ms)
{
    store->io_ms = now_ms;
    ddpi_client_received(&store->core, len, now_ms);
    if (!is_connected(store))
        ddpi_link_close(&store->link);
}

static void read_link(ddp_store *store, uint64_t now_ms)
{
    struct ddp_error err;
    for (size_t len = 1, room = 1; is_connected(store) && len == room;) {
        uint8_t *at = ddpi_client_room(&store->core, &room);
        ddp_status status = at != NULL ? ddpi_link_receive(&store->link, at, room, &len, &err)
                                       : ddpi_error_nomem(&err, room);
        if (status != DDP_OK)
            lose_link(store, &err, now_ms);
        else if (len > 0)
            take_received(store, len, now_ms);
    }
}

static bool has_output(ddp_store *store, uint64_t now_ms)
{
    return is_connected(store) && ddpi_buf_len(ddpi_client_output(&store->core, now_ms)) > 0;
}

/* DDP_OK with output left: the connection takes no more at the moment. */
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

static void send_output_or_lose(ddp_store *store, uint64_t now_ms)
{
    struct ddp_error err;
    if (send_output(store, now_ms, &err) == DDP_OK)
        return;
    read_link(store, now_ms); /* the server may have sent the reason */
    if (is_connected(store))
        lose_link(store, &err, now_ms);
}

/* ---- dialling ---- */

static void greet_server(ddp_store *store, uint64_t now_ms)
{
    struct ddp_error err;
    struct ddpi_greet_terms terms;
    struct ddpi_address peer = ddpi_link_peer(&store->link);
    if (ddpi_client_auth_terms(&store->target.auth, &peer, &terms, &err) != DDP_OK)
        lose_link(store, &err, now_ms);
    else
        ddpi_client_connected(&store->core, &terms, now_ms);
}

static void take_dial_result(ddp_store *store, ddp_status status, const struct ddp_error *err,
                             uint64_t now_ms)
{
    if (status != DDP_OK)
        lose_link(store, err, now_ms);
    else if (!store->link.dialling)
        greet_server(store, now_ms);
}

/* A resolver may take long: meanwhile each other thread watches its own deadline, and the core
 * stays in DIALING. */
static ddp_status resolve_unlocked(ddp_store *store, struct addrinfo **ret, struct ddp_error *err)
{
    const struct ddpi_endpoint *address = &store->target.addresses.at[store->core.endpoint];
    store->led = store->resolving = true;
    ddpi_client_resolving(&store->core);
    ddpi_list_for_each (node, &store->waiters)
        pthread_cond_signal(&ddpi_container_of(node, struct waiter, of_store)->cond);
    pthread_mutex_unlock(&store->lock);
    ddp_status status = ddpi_link_resolve(address->host, address->port, ret, err);
    pthread_mutex_lock(&store->lock);
    store->led = store->resolving = false;
    ddpi_client_resolved(&store->core, ddpi_monotonic_ms());
    return status;
}

static void start_dial(ddp_store *store)
{
    struct ddp_error err;
    struct addrinfo *infos;
    ddp_status status = resolve_unlocked(store, &infos, &err);
    uint64_t now_ms = ddpi_monotonic_ms();
    if (status == DDP_OK)
        status = ddpi_link_dial(&store->link, infos, now_ms, store->core.at_ms, &err);
    take_dial_result(store, status, &err, now_ms);
}

/* Open or close the link as the core's state demands. */
static void follow_state(ddp_store *store)
{
    bool wanted = is_connected(store) || store->core.sm.state == CLIENT_DIALING;
    if (!wanted)
        ddpi_link_close(&store->link);
    else if (store->link.fd < 0)
        start_dial(store);
}

/* ---- leading and following ---- */

static int poll_unlocked(ddp_store *store, struct pollfd *fds, uint64_t until_ms)
{
    struct timespec timeout = {0};
    uint64_t now_ms = ddpi_monotonic_ms();
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
            ddpi_waiter_make_ready(waiter);
    }
}

void ddpi_store_lead(ddp_store *store, const struct waiter *waiter, uint64_t until_ms)
{
    struct ddpi_client *core = &store->core;
    struct ddpi_link *link = &store->link;
    uint64_t now_ms = ddpi_monotonic_ms();
    struct ddp_error err;
    unsigned state = core->sm.state;
    if (state == CLIENT_CLOSED) {
        wake_for_events(store); /* none will come */
        return;
    }
    follow_state(store);
    if (is_connected(store))
        send_output_or_lose(store, now_ms);
    if (core->sm.state != state || (waiter != NULL && waiter->ready))
        return; /* what @waiter waits for may have come */
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
    now_ms = ddpi_monotonic_ms();
    if (link->dialling)
        take_dial_result(store, ddpi_link_go_on(link, ready, now_ms, &err), &err, now_ms);
    else if (ready && (fds[0].revents & ~POLLOUT) != 0)
        read_link(store, now_ms);
    ddpi_client_tick(core, now_ms);
}

/* Another thread leads: sleep. */
static void follow_leader(ddp_store *store, struct waiter *waiter, uint64_t until_ms)
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
        ddpi_client_tick(&store->core, ddpi_monotonic_ms());
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
            follow_leader(store, waiter, until_ms);
        else
            ddpi_store_lead(store, waiter, until_ms);
        if (until_ms != UINT64_MAX)
            now_ms = ddpi_monotonic_ms();
    }
    ddpi_list_remove(&waiter->of_store);
    wake_a_leader(store);
}

/* ---- requests ---- */

void ddpi_store_read_if_idle(ddp_store *store, uint64_t now_ms)
{
    if (!store->led && is_connected(store) && now_ms - store->io_ms >= IDLE_MS)
        read_link(store, now_ms);
}

void ddpi_store_send_beside_leader(ddp_store *store, uint64_t now_ms)
{
    struct ddp_error err;
    if (!store->led)
        return;
    if (store->core.sm.state == CLIENT_OPEN &&
        (send_output(store, now_ms, &err) != DDP_OK || has_output(store, now_ms)))
        poke_leader(store);
    if (ddpi_client_next(&store->core) < store->led_until_ms)
        poke_leader(store);
}

void ddpi_store_send_cancellations(ddp_store *store)
{
    struct ddp_error err;
    if (is_connected(store)) /* the leader will find a failure */
        (void)send_output(store, ddpi_monotonic_ms(), &err);
    poke_leader(store);
}
