/*
 * communicator.c - the life of a communicator, its first failure, and its counters. Owns what
 * struct ddp_comm holds.
 */
#include "communicator.h"

#include "error.h"
#include "mem.h"
#include "private_fds.h"
#include "processors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    SPINS = 300, /* some microseconds: the time that a peer on another core takes to answer */
    YIELDS = 50, /* where ranks share a processor, the next one runs after one or two */
};

/* ---- life ---- */

/* Call ddpi_comm_destroy() after a failure, too. */
static ddp_status comm_fill(struct ddp_comm *comm, const struct ddpi_config *config,
                            struct ddp_error *err)
{
    ddpi_edges_clear(&comm->edges);
    comm->bell = -1;
    comm->device = -1;
    comm->home_pid = getpid();
    comm->home = ddpi_private_mark();
    if (comm->home == NULL)
        return ddpi_error_sys(err, errno, "allocate memory that children do not inherit");
    comm->timeout_ms = config->timeout_ms;
    comm->algorithm = config->algorithm;
    comm->table = config->table;
    atomic_init(&comm->aborted, false);
    comm->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->bell < 0)
        return ddpi_error_sys(err, errno, "create an eventfd");
    return config->world_size > 0 ? ddpi_comm_place(comm, config->rank, config->world_size, err)
                                  : DDP_OK;
}

/* What an abort is: @status, and what this rank has done. */
static void set_abort(struct ddp_comm *comm, ddp_status status, const char *deed)
{
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text, "rank %u %s", comm->rank, deed);
    ddpi_memo_fill(&comm->abort_notice, DDPI_NOTICE_FAILED, status, text);
    comm->abort_status = status;
}

ddp_status ddpi_comm_place(struct ddp_comm *comm, uint32_t rank, uint32_t world_size,
                           struct ddp_error *err)
{
    comm->rank = rank;
    comm->world_size = world_size;
    comm->seq = world_size == 1; /* a larger world uses 0 to join */
    set_abort(comm, DDP_E_ABORTED, "called ddp_comm_abort()");
    comm->tokens = ddpi_calloc(comm->world_size, 1);
    comm->numbers = ddpi_calloc((size_t)comm->world_size + 1, sizeof *comm->numbers);
    comm->doubts = ddpi_calloc(comm->world_size, sizeof *comm->doubts);
    if (comm->tokens == NULL || comm->numbers == NULL || comm->doubts == NULL)
        return ddpi_error_nomem(err, comm->world_size * (1 + sizeof *comm->numbers));
    return ddpi_edges_init(&comm->edges, comm->world_size, err);
}

static void queue_init(struct ddpi_run_queue *queue)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&queue->lock, NULL);
    queue->events = -1;
    ddpi_list_init(&queue->incoming);
    ddpi_list_init(&queue->collectives);
    ddpi_list_init(&queue->messages);
}

ddp_status ddpi_comm_create(const struct ddpi_config *config,
                            const struct ddpi_memory_type *const *types, struct ddp_comm **ret_comm,
                            struct ddp_error *err)
{
    struct ddp_comm *comm = ddpi_calloc(1, sizeof *comm);
    if (comm == NULL)
        return ddpi_error_nomem(err, sizeof *comm);
    ddpi_memories_init(&comm->memories, types);
    queue_init(&comm->runs);
    ddpi_windows_init(&comm->windows);
    ddp_status status = comm_fill(comm, config, err);
    if (status == DDP_OK)
        *ret_comm = comm;
    else
        ddpi_comm_destroy(comm);
    return status;
}

bool ddpi_comm_is_home(const struct ddp_comm *comm)
{
    return comm->home != NULL && *comm->home != 0;
}

/* Let ranks that sleep in the arena read what this one has sent them. */
static void ring_arena(struct ddp_comm *comm)
{
    struct ddpi_arena *arena = comm->arena;
    if (arena != NULL)
        ddpi_arena_ring(arena);
}

/* In a child, free what fork() has copied, and tell no peer. The threads and GPU contexts of memory
 * types are the parent's: their memory stays. */
static void comm_leave_in_child(struct ddp_comm *comm)
{
    ddpi_edges_disown(&comm->edges);
    ddpi_edges_finish(&comm->edges);
}

/* A rank has failed with @status in operation @comm->failed_in. */
static struct ddpi_memo failure_notice(const struct ddp_comm *comm, ddp_status status)
{
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_FAILED, status, comm->cause);
    ddpi_memo_tag(&memo, (uint32_t)comm->failed_in);
    return memo;
}

static void comm_leave(struct ddp_comm *comm)
{
    struct ddpi_memo failure = failure_notice(comm, comm->failed);
    ddpi_edges_farewell(&comm->edges, comm->failed != DDP_OK ? &failure : NULL);
    ring_arena(comm);
    ddpi_edges_finish(&comm->edges);
    /* Last, as it may wait for ranks of this process, which wait for the farewell. */
    ddpi_memories_destroy(&comm->memories);
}

void ddpi_comm_destroy(struct ddp_comm *comm)
{
    bool at_home = ddpi_comm_is_home(comm);
    if (at_home)
        comm_leave(comm);
    else
        comm_leave_in_child(comm);
    ddpi_lives_leave(comm->lives);
    ddpi_windows_finish(&comm->windows, !at_home);
    if (!at_home)
        ddpi_arena_disown(comm->arena);
    ddpi_arena_destroy(comm->arena);
    ddpi_life_release(comm->life);
    ddpi_recorder_close(comm->recorder);
    if (comm->bell >= 0)
        close(comm->bell);
    for (unsigned i = 0; i < DDPI_OPERATIONS; i++)
        ddpi_free(comm->repeats[i]);
    ddpi_free(comm->runs.needs);
    ddpi_free(comm->polled);
    ddpi_free(comm->scratch);
    ddpi_free(comm->numbers);
    ddpi_free(comm->doubts);
    ddpi_free(comm->tokens);
    ddpi_private_unmark(comm->home);
    if (comm->runs.events >= 0)
        close(comm->runs.events);
    if (at_home) { /* a child would wait for the parent's threads, which have no copy in it */
        pthread_cond_destroy(&comm->runs.changed);
        pthread_mutex_destroy(&comm->runs.lock);
    }
    ddpi_free(comm);
}

ddp_status ddpi_comm_check_home(const struct ddp_comm *comm, struct ddp_error *err)
{
    if (ddpi_comm_is_home(comm))
        return DDP_OK;
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "this process (pid %d) was forked from rank %u (pid %d) and cannot use its communicator: "
        "make the call in that process, or start a rank with exec",
        getpid(), comm->rank, comm->home_pid);
}

void ddpi_comm_allow_spins(struct ddp_comm *comm, int64_t local_ranks)
{
    comm->crowded = ddpi_processors() < local_ranks;
    comm->spin_limit = comm->crowded ? 0 : SPINS;
    comm->yield_limit = local_ranks > 1 ? YIELDS : 0;
}

/* ---- failure ---- */

/* Returns what came first, which is @what unless something else did. */
static enum ddpi_first take_first_place(struct ddp_comm *comm, enum ddpi_first what)
{
    enum ddpi_first first = DDPI_FIRST_NONE;
    return atomic_compare_exchange_strong(&comm->first, &first, what) ? what : first;
}

/* Operations that all ranks number alike; the last one of a rank is its ddp_comm_finalize(). */
static bool is_collective(const struct ddpi_call *call)
{
    return !ddpi_call_shape(call)->message && call->operation != DDPI_ALLOC;
}

/* Before the call returns, or another thread sees that the communicator has failed: ranks that come
 * later must not succeed. */
static void fail_arena(struct ddp_comm *comm, ddp_status status)
{
    _Static_assert(sizeof(struct ddpi_memo) <= DDPI_ARENA_NOTE, "a notice fits into the arena");
    struct ddpi_memo notice = failure_notice(comm, status);
    if (comm->arena != NULL)
        ddpi_arena_fail(comm->arena, &notice, sizeof notice);
}

/* Tell all peers but @from. */
static void tell_failure(struct ddp_comm *comm, const struct ddpi_edge *from)
{
    struct ddpi_memo notice = failure_notice(comm, comm->failed);
    ddpi_edges_notify(&comm->edges, from, &notice);
    ring_arena(comm);
}

/* The first failure, in operation @number. */
static ddp_status fail_first(struct ddp_comm *comm, const struct ddpi_edge *from, uint64_t number,
                             ddp_status status, const char *cause)
{
    bool aborted = take_first_place(comm, DDPI_FIRST_FAILURE) == DDPI_FIRST_ABORT;
    snprintf(comm->cause, sizeof comm->cause, "%s", aborted ? comm->abort_notice.text : cause);
    comm->failed_in = number;
    if (aborted)
        status = comm->abort_status;
    if (number <= comm->unfinished)
        fail_arena(comm, status);
    comm->failed = status;
    tell_failure(comm, from);
    return status;
}

ddp_status ddpi_comm_fail(struct ddp_comm *comm, const struct ddpi_edge *from, ddp_status status,
                          const char *format, ...)
{
    char cause[DDP_ERROR_TEXT];
    va_list args;
    if (comm->failed != DDP_OK)
        return comm->failed;
    va_start(args, format);
    vsnprintf(cause, sizeof cause, format, args);
    va_end(args);
    return fail_first(comm, from, comm->unfinished, status, cause);
}

/* The number of which a notice has the low half. A call that this rank has not made is refused from
 * now on, so this rank fails no later than in the next one. */
static uint64_t number_of(const struct ddp_comm *comm, uint32_t low)
{
    uint64_t own = comm->unfinished, next = comm->seq;
    int64_t number = (int64_t)own + (int32_t)(low - (uint32_t)own);
    return number < 0 ? 0 : (uint64_t)number < next ? (uint64_t)number : next;
}

ddp_status ddpi_comm_take_failure(struct ddp_comm *comm, const struct ddpi_edge *from,
                                  const struct ddpi_memo *memo)
{
    uint64_t number = number_of(comm, memo->tag);
    if (comm->failed == DDP_OK)
        return fail_first(comm, from, number, ddpi_memo_failure(memo), memo->text);
    if (number < comm->failed_in) {
        comm->failed_in = number;
        tell_failure(comm, from);
    }
    return comm->failed;
}

bool ddpi_comm_may_succeed(const struct ddp_comm *comm, const struct ddpi_call *call)
{
    return comm->failed == DDP_OK || !is_collective(call) || call->seq < comm->failed_in;
}

void ddpi_comm_fail_call(struct ddp_comm *comm, const struct ddpi_call *call)
{
    if (!is_collective(call))
        return;
    fail_arena(comm, comm->failed);
    if (call->seq >= comm->failed_in)
        return;
    comm->failed_in = call->seq;
    tell_failure(comm, NULL);
}

ddp_status ddpi_comm_check_abort(struct ddp_comm *comm)
{
    if (!atomic_load(&comm->aborted))
        return DDP_OK;
    return ddpi_comm_fail(comm, NULL, comm->abort_status, "%s", comm->abort_notice.text);
}

ddp_status ddpi_comm_report(const struct ddp_comm *comm, struct ddp_error *err)
{
    ddp_status failed = comm->failed;
    if (failed != DDP_OK)
        return ddpi_error_set(err, failed, "%s", comm->cause);
    return comm->first == DDPI_FIRST_ABORT
               ? ddpi_error_set(err, comm->abort_status, "%s", comm->abort_notice.text)
               : DDP_OK;
}

void ddp_comm_abort(ddp_comm *comm)
{
    if (!ddpi_comm_is_home(comm))
        return;
    int saved_errno = errno;
    bool first = take_first_place(comm, DDPI_FIRST_ABORT) == DDPI_FIRST_ABORT;
    atomic_store(&comm->aborted, true);
    const uint64_t one = 1;
    (void)!write(comm->bell, &one, sizeof one);
    struct ddpi_memo notice = comm->abort_notice;
    ddpi_memo_tag(&notice, (uint32_t)comm->unfinished);
    if (first) /* else the thread that has failed tells the others the cause */
        ddpi_edges_notify(&comm->edges, NULL, &notice);
    ring_arena(comm);
    errno = saved_errno;
}

void ddpi_comm_leave(struct ddp_comm *comm)
{
    if (!atomic_load(&comm->aborted))
        set_abort(comm, DDP_E_PEER_DEAD, "has left the communicator");
    ddp_comm_abort(comm);
}

ddp_status ddpi_comm_check_peer_call(struct ddp_comm *comm, const struct ddpi_edge *edge,
                                     const uint8_t header[DDPI_CALL_WIRE_SIZE],
                                     const struct ddpi_call *expected, const struct ddpi_call *ours)
{
    struct ddpi_call theirs;
    char our_text[DDPI_CALL_TEXT], their_text[DDPI_CALL_TEXT];
    if (!ddpi_call_decode(header, &theirs))
        return ddpi_comm_fail(comm, NULL, DDP_E_PROTOCOL, "%s uses another version of libddpcomm",
                              edge->peer_name);
    if (ddpi_call_same(expected, &theirs))
        return DDP_OK;
    ddpi_call_describe(ours, our_text);
    ddpi_call_describe(&theirs, their_text);
    return ddpi_comm_fail(comm, NULL, DDP_E_MISMATCH, "rank %u called %s, but %s called %s",
                          comm->rank, our_text, edge->peer_name, their_text);
}

/* ---- counters ---- */

static void succeed(struct ddp_comm *comm, uint64_t number)
{
    atomic_store_explicit(&comm->unfinished, number + 1, memory_order_relaxed);
    if (comm->arena != NULL)
        ddpi_arena_succeed(comm->arena);
}

void ddpi_comm_count(struct ddp_comm *comm, const struct ddpi_task *task, ddp_status status)
{
    if (!task->no_payload) {
        comm->bytes_sent += task->bytes_sent;
        comm->bytes_received += task->bytes_received;
    }
    comm->operations += status == DDP_OK && task->call.operation != DDPI_ALLOC;
    if (status == DDP_OK && is_collective(&task->call))
        succeed(comm, task->call.seq);
    ddpi_recorder_end(comm->recorder, task, status);
}

void ddpi_comm_read_counts(const struct ddp_comm *comm, struct ddp_comm_stats *stats)
{
    stats->operations = comm->operations;
    stats->bytes_sent = comm->bytes_sent;
    stats->bytes_received = comm->bytes_received;
    stats->seq = comm->seq - 1;
    stats->nodes = comm->world_size > 1 ? comm->edges.nodes.count : 1;
}

static uint64_t *message_number(struct ddp_comm *comm, const struct ddpi_call *call)
{
    uint32_t peer = call->root == DDP_ANY_RANK ? comm->world_size : call->root;
    struct ddpi_numbers *numbers = &comm->numbers[peer];
    return call->operation == DDPI_SEND ? &numbers->send : &numbers->recv;
}

uint64_t ddpi_comm_take_number(struct ddp_comm *comm, const struct ddpi_call *call)
{
    if (call->operation == DDPI_ALLOC) /* not all ranks make it */
        return comm->allocs++;
    if (ddpi_call_shape(call)->message)
        return (*message_number(comm, call))++;
    uint64_t number = ddpi_comm_next_number(comm);
    atomic_store_explicit(&comm->seq, number + 1, memory_order_relaxed);
    return number;
}

uint64_t ddpi_comm_next_number(const struct ddp_comm *comm)
{
    return atomic_load_explicit(&comm->seq, memory_order_relaxed);
}
