/*
 * wait.c - the one place where a rank sleeps, and what ends the sleep: bytes, the death of a peer,
 * an abort, a failure that another rank reports, the deadline.
 */
#include "wait.h"

#include "clock.h"
#include "mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { ARENA_NAP_US = 500 }; /* between looks at an arena */

/* The operation that needs @need, one of those for which a rank sleeps in @wait. */
static const struct ddpi_wait *need_wait(const struct ddpi_need *need, const struct ddpi_wait *wait)
{
    return need->wait != NULL ? need->wait : wait;
}

static ddp_status judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                        const struct ddpi_needs *needs, uint64_t now, uint64_t *ret_wake_ms)
{
    uint64_t wake_ms = wait->until_ms != 0 ? wait->until_ms : UINT64_MAX;
    if (needs->count == 0 && now < wait->deadline_ms)
        ddpi_wake_by(&wake_ms, wait->deadline_ms);
    ddpi_wake_by(&wake_ms, ddpi_edges_wake_ms(&comm->edges));
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < needs->count && status == DDP_OK; i++)
        status =
            ddpi_judge_need(comm, need_wait(&needs->list[i], wait), &needs->list[i], now, &wake_ms);
    *ret_wake_ms = wake_ms;
    return status;
}

/* The bell; all control sockets and the listeners; then the data of each need. */
enum { POLL_BELL, POLL_CONTROLS, POLL_DATA };

/* Where those of need number @needs begin; how many there are for so many needs. */
static unsigned poll_place(unsigned needs)
{
    return POLL_DATA + DDPI_EDGE_POLLS * needs;
}

/* Room for @count needs in the communicator's list for poll(2); NULL: no memory. */
static struct pollfd *poll_room(struct ddp_comm *comm, unsigned count)
{
    unsigned wanted = poll_place(count);
    if (wanted <= comm->polled_room)
        return comm->polled;
    struct pollfd *fds = ddpi_calloc(2 * wanted, sizeof *fds);
    if (fds == NULL) {
        (void)ddpi_comm_fail(comm, NULL, DDP_E_NOMEM, "rank %u: no memory to wait for %u ranks",
                             comm->rank, count);
        return NULL;
    }
    ddpi_free(comm->polled);
    comm->polled = fds;
    comm->polled_room = 2 * wanted;
    return fds;
}

/* true if a need is met already. */
static bool arm_needs(const struct ddp_comm *comm, const struct ddpi_needs *needs,
                      struct pollfd *fds)
{
    bool ready = false;
    fds[POLL_BELL] = (struct pollfd){.fd = comm->bell, .events = POLLIN};
    fds[POLL_CONTROLS] = (struct pollfd){.fd = comm->edges.controls, .events = POLLIN};
    for (unsigned i = 0; i < needs->count; i++) {
        const struct ddpi_need *need = &needs->list[i];
        struct pollfd *polls = &fds[poll_place(i)];
        for (unsigned n = 0; n < DDPI_EDGE_POLLS; n++)
            polls[n] = (struct pollfd){.fd = -1};
        if (need->recv_bytes > 0 || need->send)
            ready |= need->edge->ops->arm(need->edge, need->recv_bytes, need->send, polls);
        ready |= need->handover && ddpi_control_has_fd(&need->edge->control, need->tag);
    }
    return ready;
}

static void disarm_needs(const struct ddpi_needs *needs)
{
    for (unsigned i = 0; i < needs->count; i++)
        if (needs->list[i].recv_bytes > 0 || needs->list[i].send)
            needs->list[i].edge->ops->disarm(needs->list[i].edge);
}

/* How long to sleep; NULL: without limit. */
static struct timespec *time_to(const struct ddpi_wait *wait, uint64_t now, uint64_t wake_ms,
                                struct timespec *time)
{
    int left_ms = ddpi_remaining_ms(now, wake_ms);
    if (wait->nap_us > 0 && (left_ms < 0 || wait->nap_us < (uint64_t)left_ms * 1000)) {
        *time = (struct timespec){.tv_nsec = (long)wait->nap_us * 1000};
        return time;
    }
    *time = (struct timespec){.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000L};
    return left_ms < 0 ? NULL : time;
}

static ddp_status sleep_until(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              const struct ddpi_needs *needs, struct pollfd *fds, uint64_t now,
                              uint64_t wake_ms)
{
    struct timespec time;
    int count = ppoll(fds, poll_place(needs->count), time_to(wait, now, wake_ms, &time), NULL);
    if (count < 0 && errno != EINTR)
        return ddpi_comm_fail(comm, NULL, DDP_E_SYSTEM, "rank %u: poll: %s", comm->rank,
                              strerrordesc_np(errno));
    if (count <= 0)
        return now >= ddpi_edges_wake_ms(&comm->edges) ? ddpi_seek_let_in(comm, wait) : DDP_OK;
    uint64_t rings;
    if (fds[POLL_BELL].revents != 0)
        (void)!read(comm->bell, &rings, sizeof rings);
    ddp_status status = DDP_OK;
    if (fds[POLL_CONTROLS].revents != 0)
        status = ddpi_notices_read_ready(comm, wait, needs);
    return status;
}

/* The need of an operation in an arena; NULL: there is none. */
static const struct ddpi_need *find_arena_need(const struct ddpi_need *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (list[i].arena_op != NULL)
            return &list[i];
    return NULL;
}

static ddp_status wait_for_edges(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                 const struct ddpi_need *list, unsigned count)
{
    const struct ddpi_needs needs = {.list = list, .count = count};
    struct pollfd *fds = poll_room(comm, count);
    uint64_t now = ddpi_monotonic_ms(), wake_ms, look_ms = UINT64_MAX;
    if (fds == NULL)
        return comm->failed;
    ddp_status status = ddpi_judge_death(comm, &needs, now, &look_ms);
    if (status != DDP_OK)
        return status;
    if (!arm_needs(comm, &needs, fds)) {
        status = judge(comm, wait, &needs, now, &wake_ms);
        ddpi_wake_by(&wake_ms, look_ms);
        if (status == DDP_OK)
            status = ddpi_comm_check_abort(comm);
        if (status == DDP_OK)
            status = sleep_until(comm, wait, &needs, fds, now, wake_ms);
    }
    disarm_needs(&needs);
    return status == DDP_OK ? ddpi_comm_check_abort(comm) : status;
}

/* The bell of an arena is no descriptor: a rank that waits for edges as well looks at the arena
 * each time after a short sleep. */
ddp_status ddpi_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_need *list, unsigned count)
{
    const struct ddpi_need *arena = find_arena_need(list, count);
    if (arena == NULL)
        return wait_for_edges(comm, wait, list, count);
    if (count == 1)
        return ddpi_arena_wait(comm, wait, arena);
    bool ready;
    ddp_status status = ddpi_arena_judge(comm, need_wait(arena, wait), arena, &ready);
    if (status != DDP_OK || ready)
        return status;
    struct ddpi_wait nap = *wait;
    nap.nap_us = ARENA_NAP_US;
    return wait_for_edges(comm, &nap, list, count);
}
