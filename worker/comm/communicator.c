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
#include <string.h>
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

ddp_status ddpi_comm_place(struct ddp_comm *comm, uint32_t rank, uint32_t world_size,
                           struct ddp_error *err)
{
    comm->rank = rank;
    comm->world_size = world_size;
    comm->seq = world_size == 1; /* a larger world uses 0 to join */
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text, "rank %u called ddp_comm_abort()", comm->rank);
    ddpi_memo_fill(&comm->abort_notice, DDPI_NOTICE_FAILED, DDP_E_ABORTED, text);
    comm->tokens = ddpi_calloc(comm->world_size, 1);
    comm->numbers = ddpi_calloc((size_t)comm->world_size + 1, sizeof *comm->numbers);
    if (comm->tokens == NULL || comm->numbers == NULL)
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

static void comm_leave(struct ddp_comm *comm)
{
    ddpi_edges_farewell(&comm->edges, comm->failed, comm->cause);
    ring_arena(comm);
    ddpi_edges_finish(&comm->edges);
    /* Last, as it may wait for ranks of this process, which wait for the farewell. */
    ddpi_memories_destroy(&comm->memories);
}

void ddpi_comm_destroy(struct ddp_comm *comm)
{
    if (ddpi_comm_is_home(comm))
        comm_leave(comm);
    else
        comm_leave_in_child(comm);
    ddpi_lives_leave(comm->lives);
    ddpi_windows_finish(&comm->windows, !ddpi_comm_is_home(comm));
    if (!ddpi_comm_is_home(comm))
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
    ddpi_free(comm->tokens);
    ddpi_private_unmark(comm->home);
    if (comm->runs.events >= 0)
        close(comm->runs.events);
    pthread_cond_destroy(&comm->runs.changed);
    pthread_mutex_destroy(&comm->runs.lock);
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

ddp_status ddpi_comm_fail(struct ddp_comm *comm, const struct ddpi_edge *from, ddp_status status,
                          const char *format, ...)
{
    ddp_status earlier = comm->failed;
    if (earlier != DDP_OK)
        return earlier;
    if (take_first_place(comm, DDPI_FIRST_FAILURE) == DDPI_FIRST_ABORT) {
        status = DDP_E_ABORTED;
        memcpy(comm->cause, comm->abort_notice.text, sizeof comm->cause);
    } else {
        va_list args;
        va_start(args, format);
        vsnprintf(comm->cause, sizeof comm->cause, format, args);
        va_end(args);
    }
    comm->failed = status;
    if (comm->arena != NULL)
        ddpi_arena_leave(comm->arena);
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_FAILED, status, comm->cause);
    ddpi_edges_notify(&comm->edges, from, &memo);
    ring_arena(comm);
    return status;
}

ddp_status ddpi_comm_check_abort(struct ddp_comm *comm)
{
    if (!atomic_load(&comm->aborted))
        return DDP_OK;
    return ddpi_comm_fail(comm, NULL, DDP_E_ABORTED, "%s", comm->abort_notice.text);
}

ddp_status ddpi_comm_report(const struct ddp_comm *comm, struct ddp_error *err)
{
    ddp_status failed = comm->failed;
    if (failed != DDP_OK)
        return ddpi_error_set(err, failed, "%s", comm->cause);
    return comm->first == DDPI_FIRST_ABORT
               ? ddpi_error_set(err, DDP_E_ABORTED, "%s", comm->abort_notice.text)
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
    if (first) /* else the thread that has failed tells the others the cause */
        ddpi_edges_notify(&comm->edges, NULL, &comm->abort_notice);
    ring_arena(comm);
    errno = saved_errno;
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

void ddpi_comm_count(struct ddp_comm *comm, const struct ddpi_task *task, ddp_status status)
{
    if (!task->no_payload) {
        comm->bytes_sent += task->bytes_sent;
        comm->bytes_received += task->bytes_received;
    }
    comm->operations += status == DDP_OK && task->call.operation != DDPI_ALLOC;
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

uint64_t *ddpi_comm_next_seq(struct ddp_comm *comm, const struct ddpi_call *call)
{
    if (call->operation == DDPI_ALLOC) /* not all ranks make it */
        return &comm->allocs;
    if (!ddpi_call_is_message(call))
        return &comm->seq;
    uint32_t peer = call->root == DDP_ANY_RANK ? comm->world_size : call->root;
    struct ddpi_numbers *numbers = &comm->numbers[peer];
    return call->operation == DDPI_SEND ? &numbers->send : &numbers->recv;
}
