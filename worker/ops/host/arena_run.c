/*
 * arena_run.c - operations through the arena of a communicator (shm/arena_ops) as an algorithm. Its
 * first run makes the arena: the first rank of the node creates it, and its descriptor goes along
 * the ring. The communicator owns the arena.
 */
#include "arena_run.h"

#include "debug.h"
#include "error.h"
#include "mem.h"
#include "private_fds.h"
#include "rank_names.h"
#include "runs.h"
#include "wait.h"

#include <string.h>
#include <unistd.h>

enum {
    LOOKS = 20,             /* at the arena before the driver has a turn again */
    ADVANCES = 4,           /* steps that the driver need not see */
    BRIEF = 8 * 1024,       /* bytes that are copied in less than a microsecond */
    ARENA_TAG = 0x414e4552, /* of the descriptor on its way */
};

DDPI_RUN_STATE_FITS(struct ddpi_arena_run);

static struct ddpi_arena_run *arena_run_of(struct ddpi_run *run)
{
    return (struct ddpi_arena_run *)(void *)run->state;
}

bool ddpi_arena_is_chosen(const struct ddp_comm *comm)
{
    return comm->world_size > 1 && comm->world_size <= DDPI_ARENA_RANKS &&
           ddpi_edges_share_memory(&comm->edges) && comm->algorithm != DDP_ALGORITHM_RING;
}

/* ---- the first run ---- */

static ddp_status fail_to_meet(struct ddp_comm *comm, ddp_status status, struct ddp_error *cause)
{
    ddpi_error_advise_descriptors(cause, status);
    return ddpi_comm_fail(comm, NULL, status,
                          "rank %u cannot share memory with all ranks of its machine: %s "
                          "(DDP_ALGORITHM=ring does without)",
                          comm->rank, cause->msg);
}

/* The memory of the first rank, from the previous one; NULL: it has not come yet. */
static ddp_status take_arena(struct ddp_comm *comm, struct ddpi_arena **ret_arena,
                             struct ddp_error *err)
{
    int fd = ddpi_control_take_fd(&comm->edges.ring[DDPI_PREV]->control, ARENA_TAG);
    if (fd < 0)
        return DDP_OK;
    return ddpi_arena_attach(fd, ddpi_node_ranks(&comm->edges.nodes), ret_arena, err);
}

/* false: the next rank is gone. */
static bool pass_arena(const struct ddp_comm *comm, const struct ddpi_arena *arena)
{
    struct ddpi_edge *next = comm->edges.ring[DDPI_NEXT];
    return comm->rank + 1 == comm->world_size ||
           !ddpi_node_has(&comm->edges.nodes, comm->rank + 1) ||
           ddpi_control_pass_fd(&next->control, ARENA_TAG, ddpi_arena_fd(arena));
}

/* Ranks that are threads of one process die together. */
static bool is_in_one_process(const struct ddp_comm *comm)
{
    const struct ddpi_nodes *nodes = &comm->edges.nodes;
    struct ddpi_card card;
    for (uint32_t rank = ddpi_node_first(nodes); rank < nodes->firsts[nodes->own + 1]; rank++)
        if (!ddpi_card_get(ddpi_meeting_slot(&comm->edges.meeting, rank), &card) ||
            card.pid != (uint32_t)comm->home_pid)
            return false;
    return true;
}

/* The rank sleeps in the arena, or in poll(2). */
static void wake_rank(void *arg)
{
    const struct ddp_comm *comm = arg;
    const uint64_t one = 1;
    ddpi_arena_ring(comm->arena);
    (void)!write(comm->bell, &one, sizeof one);
}

static void watch_lives(struct ddp_comm *comm)
{
    if (!is_in_one_process(comm))
        comm->lives = ddpi_lives_join(ddpi_arena_lives(comm->arena), ddpi_arena_ranks(comm->arena),
                                      ddpi_arena_rank(comm->arena), wake_rank, comm);
}

static bool keep_from_children(const struct ddpi_arena *arena)
{
    ddpi_private_begin();
    bool kept = ddpi_private_note(ddpi_arena_fd(arena));
    ddpi_private_end();
    return kept;
}

ddp_status ddpi_arena_meet(struct ddp_comm *comm, const struct ddpi_run *run)
{
    const struct ddpi_nodes *nodes = &comm->edges.nodes;
    uint32_t index = comm->rank - ddpi_node_first(nodes);
    struct ddpi_arena *arena = NULL;
    struct ddp_error cause;
    ddp_status status =
        index == 0 ? ddpi_arena_create(ddpi_node_ranks(nodes), comm->crowded, &arena, &cause)
                   : take_arena(comm, &arena, &cause);
    if (status != DDP_OK)
        return fail_to_meet(comm, status, &cause);
    if (arena == NULL) /* whatever the previous rank calls, it is no mismatch with ddp_alloc() */
        return run->task.call.operation == DDPI_ALLOC
                   ? DDP_OK
                   : ddpi_arena_check_ring(comm, &run->task.call);
    if (!keep_from_children(arena)) {
        ddpi_arena_destroy(arena);
        return ddpi_comm_fail(comm, NULL, DDP_E_NOMEM, "rank %u: no memory to note a descriptor",
                              comm->rank);
    }
    ddpi_arena_enter(arena, index);
    if (ddpi_arena_is_chosen(comm)) /* in steps of other algorithms windows are not used */
        ddpi_arena_set_windows(arena, &comm->windows);
    comm->arena = arena;
    watch_lives(comm);
    return pass_arena(comm, arena) ? DDP_OK
                                   : ddpi_judge_gone(comm, &run->wait, comm->edges.ring[DDPI_NEXT]);
}

struct ddpi_need ddpi_arena_handover(const struct ddp_comm *comm)
{
    return (struct ddpi_need){
        .edge = comm->edges.ring[DDPI_PREV], .handover = true, .tag = ARENA_TAG};
}

/* ---- a run that only meets ---- */

static ddp_status meet_advance(struct ddp_comm *comm, struct ddpi_run *run,
                               enum ddpi_movement *ret_movement)
{
    ddp_status status = comm->arena == NULL ? ddpi_arena_meet(comm, run) : DDP_OK;
    *ret_movement = comm->arena == NULL ? DDPI_IDLE : DDPI_COMPLETE;
    return status;
}

static unsigned one_need(const struct ddpi_run *run)
{
    (void)run;
    return 1;
}

static unsigned meet_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                           struct ddpi_need *needs)
{
    (void)run;
    *needs = ddpi_arena_handover(comm);
    return 1;
}

static const struct ddpi_algorithm meet_algorithm = {.name = "meet",
                                                     .uses_ring = true,
                                                     .advance = meet_advance,
                                                     .most_needs = one_need,
                                                     .needs = meet_needs};

ddp_status ddpi_arena_have(struct ddp_comm *comm, struct ddp_error *err)
{
    struct ddpi_run run = {.algorithm = &meet_algorithm};
    run.task =
        (struct ddpi_task){.call = {.operation = DDPI_ALLOC}, .timeout_ms = comm->timeout_ms};
    ddp_status status = ddpi_comm_report(comm, err);
    if (status != DDP_OK)
        return status;
    ddpi_runs_carry_out(comm, &run);
    return run.status == DDP_OK ? DDP_OK : ddpi_comm_report(comm, err);
}

/* ---- a run ---- */

static bool arena_is_brief(const struct ddp_comm *comm, const struct ddpi_run *run)
{
    const struct ddpi_task *task = &run->task;
    return comm->arena != NULL && task->count * task->element_size <= BRIEF && task->list == NULL;
}

static ddp_status arena_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    (void)comm;
    arena_run_of(run)->under_way = false;
    return DDP_OK;
}

ddp_status ddpi_arena_fail_mismatch(struct ddp_comm *comm, const struct ddpi_arena_op *op)
{
    const struct ddpi_call *call = &op->task->call;
    char our_text[DDPI_CALL_TEXT], their_text[DDPI_CALL_TEXT], name[DDPI_PEER_NAME];
    uint8_t header[DDPI_CALL_WIRE_SIZE];
    struct ddpi_call theirs;
    ddpi_comm_rank_name(comm, ddpi_node_first(&comm->edges.nodes) + op->odd, name);
    ddpi_arena_get_header(op->arena, op->round, op->odd, header);
    if (!ddpi_call_decode(header, &theirs))
        return ddpi_comm_fail(comm, NULL, DDP_E_PROTOCOL, "%s uses another version of libddpcomm",
                              name);
    ddpi_call_describe(call, our_text);
    ddpi_call_describe(&theirs, their_text);
    if (ddpi_call_same(call, &theirs))
        return ddpi_comm_fail(comm, NULL, DDP_E_MISMATCH,
                              "%s: rank %u and %s expect different numbers of elements of each "
                              "other",
                              our_text, comm->rank, name);
    return ddpi_comm_fail(comm, NULL, DDP_E_MISMATCH, "rank %u called %s, but %s called %s",
                          comm->rank, our_text, name, their_text);
}

ddp_status ddpi_arena_fail_as_other(struct ddp_comm *comm, const struct ddpi_arena_op *op)
{
    struct ddpi_memo notice;
    ddpi_arena_get_note(op->arena, &notice, sizeof notice);
    if (!ddpi_memo_decode(&notice))
        return ddpi_comm_fail(comm, NULL, DDP_E_PROTOCOL,
                              "rank %u: a rank has failed, and left no valid notice in the shared "
                              "memory",
                              comm->rank);
    notice.tag = (uint32_t)op->task->call.seq; /* no later than that */
    return ddpi_comm_take_failure(comm, NULL, &notice);
}

/* Whether @op can go on. Other ranks with processors of their own answer within a microsecond: look
 * more often than the driver does between its other duties, but not without a pause, as a look
 * takes away the line that another rank is about to write. */
static bool look_often(const struct ddp_comm *comm, const struct ddpi_arena_op *op)
{
    for (uint32_t look = 0; look < LOOKS && comm->spin_limit > 0; look++) {
        if (ddpi_arena_is_ready(op))
            return true;
        ddpi_relax();
    }
    return ddpi_arena_is_ready(op);
}

static void debug_refusal(const struct ddp_comm *comm, const struct ddpi_arena_op *op)
{
    if (op->refusal.why == DDPI_ARENA_REFUSAL_UNREADABLE)
        ddpi_debug(comm->rank,
                   "cannot read the memory of rank %u (%s): copies go through shared memory",
                   ddpi_node_first(&comm->edges.nodes) + op->refusal.rank,
                   strerrordesc_np(op->refusal.sys_errno));
    if (op->refusal.why == DDPI_ARENA_REFUSAL_UNMAPPED)
        ddpi_debug(comm->rank, "cannot map memory that other ranks have from ddp_alloc(): "
                               "operations on it copy");
}

static ddp_status arena_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                enum ddpi_movement *ret_movement)
{
    struct ddpi_arena_run *state = arena_run_of(run);
    DDPI_UNINITIALIZED struct ddp_error cause;
    if (comm->arena == NULL) {
        ddp_status status = ddpi_arena_meet(comm, run);
        if (status != DDP_OK || comm->arena == NULL)
            return status;
    }
    bool first = !state->under_way; /* the driver has things to do while the first bytes travel */
    if (first && run->is_repeat)
        ddpi_arena_begin_again(&state->op, &run->task);
    else if (first)
        ddpi_arena_begin(&state->op, comm->arena, &run->task);
    else if (!look_often(comm, &state->op))
        return DDP_OK;
    state->under_way = true;
    *ret_movement = DDPI_MOVED;
    enum ddpi_arena_result result = ddpi_arena_advance(&state->op, &cause);
    for (int n = 1; n < ADVANCES && !first && result == DDPI_ARENA_RESULT_WAITS &&
                    look_often(comm, &state->op);
         n++)
        result = ddpi_arena_advance(&state->op, &cause);
    switch (result) {
    case DDPI_ARENA_RESULT_WAITS:
        break;
    case DDPI_ARENA_RESULT_COMPLETE:
        debug_refusal(comm, &state->op);
        *ret_movement = DDPI_COMPLETE;
        break;
    case DDPI_ARENA_RESULT_FAILED:
        return ddpi_arena_fail_as_other(comm, &state->op);
    case DDPI_ARENA_RESULT_MISMATCH:
        return ddpi_arena_fail_mismatch(comm, &state->op);
    case DDPI_ARENA_RESULT_NO_ROOM:
        return ddpi_comm_fail(comm, NULL, DDP_E_SYSTEM, "rank %u: %s", comm->rank, cause.msg);
    }
    return DDP_OK;
}

static unsigned arena_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                            struct ddpi_need *needs)
{
    struct ddpi_arena_run *state = arena_run_of(run);
    if (state->under_way) {
        *needs = (struct ddpi_need){.arena_op = &state->op};
        return 1;
    }
    *needs = ddpi_arena_handover(comm);
    needs->recv_bytes = DDPI_CALL_WIRE_SIZE; /* of a rank that sends over the ring: a mismatch */
    return 1;
}

const struct ddpi_algorithm ddpi_arena_algorithm = {.name = "direct",
                                                    .uses_ring = true,
                                                    .takes_lists = true,
                                                    .sees_failures = true,
                                                    .is_brief = arena_is_brief,
                                                    .begin = arena_begin,
                                                    .advance = arena_advance,
                                                    .most_needs = one_need,
                                                    .needs = arena_needs};
