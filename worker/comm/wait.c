/*
 * wait.c - the one place where a rank sleeps, and how it fails: death of a peer, abort, failures
 * passed on by others, the deadline.
 *
 * A peer that is gone matters only to a rank that needs something from it: one that has completed
 * its last operation may leave while others still read what it sent. A failure that a peer reports
 * matters at once, and is passed on, so all survivors return together with the first cause. Before
 * a peer that is gone is named, all others are looked at: if it has left, or may have, that may be
 * on account of one that has died.
 *
 * When a deadline passes, the neighbour that was waited for need not be the one to blame: it may be
 * waiting as well. So it is asked, over its control socket, and asks in turn whom it waits for.
 * Who does not answer is stopped, or has not called the operation, and is named by the neighbour
 * that asked it. A busy machine keeps ranks from answering as well, and lets their deadlines pass
 * at different times: who could wait for long for the operation waits for longer for them.
 */
#include "clock.h"
#include "communicator.h"
#include "error.h"
#include "mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    /* For the answer of a rank that is waiting too: half the operation's time. */
    ANSWER_MIN_MS = 200,
    ANSWER_MAX_MS = 5000,
    /* For the verdict of others, when everybody answers: all of it. */
    VERDICT_MIN_MS = 900,
    VERDICT_MAX_MS = 20000,
};

static uint64_t now_ms(void)
{
    return ddpi_now_ms(&ddpi_clock_monotonic);
}

static uint64_t between(uint64_t least, uint64_t value, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

uint64_t ddpi_wait_answer_ms(const struct ddpi_wait *wait)
{
    return between(ANSWER_MIN_MS, (wait->deadline_ms - wait->started_ms) / 2, ANSWER_MAX_MS);
}

/* From the question on. */
static uint64_t verdict_ms(const struct ddpi_wait *wait)
{
    return ddpi_wait_answer_ms(wait) +
           between(VERDICT_MIN_MS, wait->deadline_ms - wait->started_ms, VERDICT_MAX_MS);
}

ddp_status ddpi_comm_fail(struct ddp_comm *comm, const struct ddpi_edge *from, ddp_status status,
                          const char *format, ...)
{
    if (comm->failed != DDP_OK)
        return comm->failed;
    va_list args;
    va_start(args, format);
    vsnprintf(comm->cause, sizeof comm->cause, format, args);
    va_end(args);
    comm->failed = status;
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_FAILED, status, comm->cause);
    ddpi_edges_tell(&comm->edges, from, &memo);
    return status;
}

ddp_status ddpi_comm_check_abort(struct ddp_comm *comm)
{
    if (!atomic_load(&comm->aborted))
        return DDP_OK;
    return ddpi_comm_fail(comm, NULL, DDP_E_ABORTED, "%s", comm->abort_notice.text);
}

static ddp_status fail_timeout(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               const struct ddpi_edge *edge, const char *finding)
{
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(wait->call, call);
    uint64_t elapsed = now_ms() - wait->started_ms;
    return ddpi_comm_fail(
        comm, NULL, DDP_E_TIMEOUT,
        "%s: rank %u has waited %llu.%llu s for %s, which %s; %llu of %llu bytes had %s", call,
        comm->rank, (unsigned long long)elapsed / 1000, (unsigned long long)elapsed % 1000 / 100,
        edge->peer_name, finding, (unsigned long long)wait->bytes_done,
        (unsigned long long)wait->bytes_wanted, wait->sends ? "left" : "come");
}

ddp_status ddpi_wait_overdue(struct ddp_comm *comm, const struct ddpi_wait *wait,
                             const struct ddpi_edge *edge)
{
    if (now_ms() < ddpi_deadline(wait->deadline_ms, verdict_ms(wait)))
        return DDP_OK;
    return fail_timeout(comm, wait, edge, "is too slow");
}

struct needs {
    const struct ddpi_need *list;
    unsigned count;
};

static bool needed(const struct ddpi_need *need)
{
    return need->recv_bytes > 0 || need->send || need->handover;
}

static void ask(struct ddpi_edge *edge, uint64_t now)
{
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_ASK, DDP_OK, "");
    ddpi_control_send(&edge->control, &memo);
    edge->asked_ms = now;
    edge->answered = false;
}

static void ask_all(const struct needs *needs, uint64_t now)
{
    for (unsigned i = 0; i < needs->count; i++)
        if (needed(&needs->list[i]) && needs->list[i].edge->asked_ms == 0)
            ask(needs->list[i].edge, now);
}

static void sooner(uint64_t *wake_ms, uint64_t candidate)
{
    if (candidate < *wake_ms)
        *wake_ms = candidate;
}

/* A needed edge cannot go on: is its peer dead? Otherwise *@wake_ms is when to look again. */
static ddp_status judge_life(struct ddp_comm *comm, const struct ddpi_wait *wait,
                             struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms)
{
    if (edge->broken != NULL && edge->broken_ms == 0)
        edge->broken_ms = now;
    if (edge->gone_ms == 0 && edge->broken_ms == 0)
        return DDP_OK;
    if (edge->gone_ms != 0 && (edge->broken_ms != 0 || edge->ops->linger_ms == 0))
        return ddpi_wait_gone(comm, wait, edge);
    uint64_t until = (edge->gone_ms != 0 ? edge->gone_ms : edge->broken_ms) + edge->ops->linger_ms;
    if (now >= until)
        return ddpi_wait_gone(comm, wait, edge);
    sooner(wake_ms, until);
    return DDP_OK;
}

/* A needed edge was asked whether it waits too. */
static ddp_status judge_answer(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms)
{
    if (edge->asked_ms == 0)
        return DDP_OK;
    if (!edge->answered && now >= edge->asked_ms + ddpi_wait_answer_ms(wait))
        return fail_timeout(
            comm, wait, edge,
            edge->control.fd >= 0
                ? "does not answer: it is stopped, or has not called the operation"
                : "does not let this rank in: it is stopped, is in no operation, or "
                  "is out of descriptors");
    if (now >= edge->asked_ms + verdict_ms(wait)) {
        if (now >= wait->deadline_ms)
            return fail_timeout(comm, wait, edge, "waits for others itself");
        edge->asked_ms = 0; /* it was another rank that asked us, and things have moved on */
        return DDP_OK;
    }
    sooner(wake_ms,
           edge->asked_ms + (edge->answered ? verdict_ms(wait) : ddpi_wait_answer_ms(wait)));
    return DDP_OK;
}

static ddp_status judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                        const struct needs *needs, uint64_t now, uint64_t *ret_wake_ms)
{
    uint64_t wake_ms = now < wait->deadline_ms ? wait->deadline_ms : UINT64_MAX;
    if (now >= wait->deadline_ms)
        ask_all(needs, now);
    sooner(&wake_ms, ddpi_edges_wake_ms(&comm->edges));
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < needs->count && status == DDP_OK; i++) {
        if (!needed(&needs->list[i]))
            continue;
        status = judge_life(comm, wait, needs->list[i].edge, now, &wake_ms);
        if (status == DDP_OK)
            status = judge_answer(comm, wait, needs->list[i].edge, now, &wake_ms);
    }
    *ret_wake_ms = wake_ms;
    return status;
}

/* One that is refused goes on, so no failure is DDP_E_INVALID. */
ddp_status ddpi_wait_status(int32_t status)
{
#define KNOWN(symbol, value, name, text, retry) ((value) != DDP_OK && status == (value)) ||
    bool known = DDP_STATUS_MAP(KNOWN) false;
#undef KNOWN
    return known && status != DDP_E_INVALID ? (ddp_status)status : DDP_E_PROTOCOL;
}

static ddp_status take_failure(struct ddp_comm *comm, const struct ddpi_edge *edge,
                               const struct ddpi_memo *memo)
{
    ddp_status status = memo->text[0] != '\0' ? ddpi_wait_status(memo->status) : DDP_E_PROTOCOL;
    return ddpi_comm_fail(comm, edge, status, "%s", memo->text);
}

static ddp_status fail_starved(struct ddp_comm *comm, const struct ddpi_edge *edge)
{
    struct ddp_error cause;
    ddp_status status = ddpi_error_sys(&cause, EMFILE, "take what %s hands over", edge->peer_name);
    ddpi_advise_descriptors(&cause, status);
    return ddpi_comm_fail(comm, NULL, status, "rank %u: %s", comm->rank, cause.msg);
}

static ddp_status fail_garbled(struct ddp_comm *comm, const struct ddpi_edge *edge)
{
    return ddpi_comm_fail(comm, edge, DDP_E_PROTOCOL,
                          "%s sent something that is no control message", edge->peer_name);
}

/* Read all that one peer has to say. When it has died a child of it may hold its connection open,
 * so that this has no end; whether it has is asked first, as it may have spoken before. */
static ddp_status hear(struct ddp_comm *comm, struct ddpi_edge *edge, const struct needs *needs)
{
    struct ddpi_memo memo;
    uint64_t now = now_ms();
    bool ended = ddpi_process_ended(&edge->process);
    for (;;) {
        switch (ddpi_control_read(&edge->control, &memo)) {
        case DDPI_CONTROL_NONE:
            if (!ended)
                return DDP_OK;
            __attribute__((fallthrough));
        case DDPI_CONTROL_END:
            edge->gone_ms = now;
            ddpi_edges_ignore(&comm->edges, edge);
            return DDP_OK;
        case DDPI_CONTROL_STARVED:
            return fail_starved(comm, edge);
        case DDPI_CONTROL_GARBLED:
            return fail_garbled(comm, edge);
        case DDPI_CONTROL_MEMO:
            break;
        }
        switch ((enum ddpi_notice)memo.notice) {
        case DDPI_NOTICE_FAILED:
            return take_failure(comm, edge, &memo);
        case DDPI_NOTICE_LEFT:
            edge->left = true;
            break;
        case DDPI_NOTICE_ASK:
            ddpi_memo_fill(&memo, DDPI_NOTICE_WAITING, DDP_OK, "");
            ddpi_control_send(&edge->control, &memo);
            ask_all(needs, now);
            break;
        case DDPI_NOTICE_WAITING:
            edge->answered = true;
            break;
        case DDPI_NOTICE_HANDOVER: /* its descriptor waits in the control socket */
            break;
        case DDPI_NOTICE_CARD: /* for those who join, and not said on such an edge */
        case DDPI_NOTICE_STANDS:
        case DDPI_NOTICE_GO:
            return fail_garbled(comm, edge);
        }
    }
}

/* Read all that everybody has to say. */
static ddp_status hear_everybody(struct ddp_comm *comm)
{
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < ddpi_edges_places(&comm->edges) && status == DDP_OK; i++) {
        struct ddpi_edge *edge = ddpi_edges_at(&comm->edges, i);
        if (edge != NULL && edge->gone_ms == 0)
            status = hear(comm, edge, &(const struct needs){0});
    }
    return status;
}

static enum ddpi_fate fate_of(struct ddpi_edge *edge)
{
    struct ddpi_door door = {.address = &edge->door};
    if (edge->fate == DDPI_FATE_UNASKED && edge->control.local) {
        edge->fate = ddpi_process_fate(&edge->process);
    } else if (edge->fate == DDPI_FATE_UNASKED) {
        ddpi_doors_ask(&door, 1);
        edge->fate = door.fate;
    }
    return edge->fate;
}

/* Its peer is on another machine, so that it takes up to a second to ask what has become of it. */
static bool must_ask_at_door(const struct ddpi_edge *edge, const struct ddpi_edge *needed)
{
    return (edge->gone_ms != 0 || edge == needed) && !edge->left && !edge->control.local &&
           edge->fate == DDPI_FATE_UNASKED;
}

/* Ask about @needed, which cannot go on, and all that are gone, at the same time. */
static void ask_at_doors(const struct ddp_comm *comm, const struct ddpi_edge *needed)
{
    uint32_t places = ddpi_edges_places(&comm->edges);
    struct ddpi_door *doors = ddpi_calloc(places, sizeof *doors);
    size_t count = 0, asked = 0;
    for (uint32_t i = 0; i < places && doors != NULL; i++) {
        const struct ddpi_edge *edge = ddpi_edges_at(&comm->edges, i);
        if (edge != NULL && must_ask_at_door(edge, needed))
            doors[count++].address = &edge->door;
    }
    if (count > 0)
        ddpi_doors_ask(doors, count);
    for (uint32_t i = 0; i < places; i++) {
        struct ddpi_edge *edge = ddpi_edges_at(&comm->edges, i);
        if (edge != NULL && must_ask_at_door(edge, needed))
            edge->fate = doors != NULL ? doors[asked++].fate : DDPI_FATE_UNKNOWN;
    }
    ddpi_free(doors);
}

/* Not left, and not only to be reached no more. */
static bool has_died(struct ddpi_edge *edge)
{
    return edge->gone_ms != 0 && !edge->left && fate_of(edge) == DDPI_FATE_DEAD;
}

/* Whom to name, when the peer of @edge is gone. */
static struct ddpi_edge *culprit(const struct ddp_comm *comm, struct ddpi_edge *edge)
{
    struct ddpi_edge *first = NULL;
    ask_at_doors(comm, edge);
    if (has_died(edge))
        return edge;
    for (uint32_t i = 0; i < ddpi_edges_places(&comm->edges); i++) {
        struct ddpi_edge *other = ddpi_edges_at(&comm->edges, i);
        if (other != NULL && has_died(other) && (first == NULL || other->gone_ms < first->gone_ms))
            first = other;
    }
    return first != NULL ? first : edge;
}

struct ddpi_verdict ddpi_wait_verdict(struct ddpi_edge *edge)
{
    static const struct ddpi_verdict verdicts[] = {
        [DDPI_FATE_UNKNOWN] = {DDP_E_PEER_DEAD,
                               "is gone: it has died, or has closed its connections"},
        [DDPI_FATE_DEAD] = {DDP_E_PEER_DEAD, "has died"},
        [DDPI_FATE_SILENT] = {DDP_E_PEER_DEAD,
                              "is gone: its machine is down, or cannot be reached any more"},
    };
    enum ddpi_fate fate;
    if (edge->left)
        return (struct ddpi_verdict){DDP_E_PEER_DEAD, "has left the communicator"};
    if (edge->control.fd < 0) /* it was asked for an edge, and was not there */
        return (struct ddpi_verdict){DDP_E_PEER_DEAD, edge->broken};
    fate = fate_of(edge);
    if (fate != DDPI_FATE_ALIVE)
        return verdicts[fate];
    if (edge->gone_ms == 0)
        return (struct ddpi_verdict){DDP_E_CLOSED, edge->broken};
    return (struct ddpi_verdict){
        DDP_E_CLOSED,
        edge->control.local
            ? "lives, but has closed its connection: it runs another program now (exec), or has "
              "closed descriptors that are not its own"
            : "lives, but its connection was closed or reset: see whether it runs another program "
              "now (exec) or has closed descriptors that are not its own, and what cuts "
              "connections on the network"};
}

ddp_status ddpi_wait_gone(struct ddp_comm *comm, const struct ddpi_wait *wait,
                          struct ddpi_edge *edge)
{
    ddp_status status = hear_everybody(comm);
    if (status != DDP_OK)
        return status;
    edge = culprit(comm, edge);
    const struct ddpi_verdict verdict = ddpi_wait_verdict(edge);
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(wait->call, call);
    return ddpi_comm_fail(comm, edge, verdict.status, "%s %s; rank %u noticed it in %s",
                          edge->peer_name, verdict.words, comm->rank, call);
}

static ddp_status hear_all(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct needs *needs)
{
    enum { BATCH = 8 }; /* what is left over comes next time */
    struct epoll_event events[BATCH];
    int count = epoll_wait(comm->edges.controls, events, BATCH, 0);
    ddp_status status = DDP_OK;
    for (int i = 0; i < count && status == DDP_OK; i++)
        status = events[i].data.ptr == &comm->edges.meeting ? ddpi_edges_let_in(comm, wait)
                                                            : hear(comm, events[i].data.ptr, needs);
    return status;
}

ddp_status ddpi_wait_hear(struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    return hear_all(comm, wait, &(const struct needs){0});
}

/* The bell, all control sockets with who wants to come in; then the data of each need. */
enum { POLL_BELL, POLL_CONTROLS, POLL_DATA, POLL_MAX = POLL_DATA + DDPI_NEEDS_MAX };

/* true if a need is met already. */
static bool arm(const struct ddp_comm *comm, const struct needs *needs, struct pollfd *fds)
{
    bool ready = false;
    fds[POLL_BELL] = (struct pollfd){.fd = comm->bell, .events = POLLIN};
    fds[POLL_CONTROLS] = (struct pollfd){.fd = comm->edges.controls, .events = POLLIN};
    for (unsigned i = 0; i < needs->count; i++) {
        const struct ddpi_need *need = &needs->list[i];
        fds[POLL_DATA + i] = (struct pollfd){.fd = -1};
        if (need->recv_bytes > 0 || need->send)
            ready |=
                need->edge->ops->arm(need->edge, need->recv_bytes, need->send, &fds[POLL_DATA + i]);
        ready |= need->handover && need->edge->control.handed_count > 0;
    }
    return ready;
}

static void disarm(const struct needs *needs)
{
    for (unsigned i = 0; i < needs->count; i++)
        if (needs->list[i].recv_bytes > 0 || needs->list[i].send)
            needs->list[i].edge->ops->disarm(needs->list[i].edge);
}

/* How long to sleep; NULL: there is no end. */
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
                              const struct needs *needs, struct pollfd *fds, uint64_t now,
                              uint64_t wake_ms)
{
    struct timespec time;
    int count = ppoll(fds, POLL_DATA + needs->count, time_to(wait, now, wake_ms, &time), NULL);
    if (count < 0 && errno != EINTR)
        return ddpi_comm_fail(comm, NULL, DDP_E_SYSTEM, "rank %u: poll: %s", comm->rank,
                              strerrordesc_np(errno));
    if (count <= 0)
        return now >= ddpi_edges_wake_ms(&comm->edges) ? ddpi_edges_let_in(comm, wait) : DDP_OK;
    uint64_t rings;
    if (fds[POLL_BELL].revents != 0)
        (void)!read(comm->bell, &rings, sizeof rings);
    ddp_status status = DDP_OK;
    if (fds[POLL_CONTROLS].revents != 0)
        status = hear_all(comm, wait, needs);
    return status;
}

ddp_status ddpi_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_need *list, unsigned count)
{
    const struct needs needs = {.list = list, .count = count};
    struct pollfd fds[POLL_MAX];
    uint64_t now = now_ms(), wake_ms;
    ddp_status status = DDP_OK;
    if (!arm(comm, &needs, fds)) {
        status = judge(comm, wait, &needs, now, &wake_ms);
        if (status == DDP_OK)
            status = ddpi_comm_check_abort(comm);
        if (status == DDP_OK)
            status = sleep_until(comm, wait, &needs, fds, now, wake_ms);
    }
    disarm(&needs);
    return status == DDP_OK ? ddpi_comm_check_abort(comm) : status;
}
