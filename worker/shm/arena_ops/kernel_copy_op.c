/*
 * kernel_copy_op.c - an operation whose ranks read each other's buffers through the kernel, with
 * process_vm_readv(2) (arena_method.h): each byte is copied once, not into a slot and out again. In
 * the first of two rounds ranks show where their buffers are; then they read, and the second one
 * tells that all have, so the buffers are their callers' again. Owns nothing.
 *
 * The kernel lets a process read another one of the same user. A security module, a filter of
 * system calls or prctl(PR_SET_DUMPABLE) may forbid it. A rank that cannot read says so with its
 * second arrival. Then all ranks copy through slots, in this operation and in all later ones.
 *
 * While a rank reads, another one may fail, by a timeout say, and its caller may use the buffer
 * again. So before it succeeds, each rank looks whether one has failed (arena_op.c). If a rank is
 * killed while another one reads it, the reader has to free the memory of the dead rank before it
 * goes on: 60 ms for each GiB.
 *
 * What a rank shows is trusted with nothing: a reader writes to its own buffer alone, as many bytes
 * as the call says. In a container with processes of its own a rank's number may belong to another
 * process here. So a rank also shows a token, and others read that from it first.
 */
#include "arena_method.h"
#include "copy_way.h"
#include "slots.h"

#include <errno.h>
#include <sys/uio.h>

enum { MOST_AT_ONCE = 2 * 1024 * 1024 }; /* bytes that are read before the driver has a turn */

/* In the small slot of a rank. */
struct shown {
    uint64_t pid;
    uint64_t token, token_at; /* in the memory of that process */
    uint64_t parts_at[];      /* what is for each rank */
};

static struct shown *shown_by(const struct ddpi_arena_op *op, uint32_t rank)
{
    return (struct shown *)(void *)ddpi_arena_slot(op->arena, op->round, rank, DDPI_SLOT_SMALL);
}

bool ddpi_kernel_copy_is_possible(const struct ddpi_arena_op *op)
{
    const struct ddpi_shape *shape = ddpi_arena_op_shape(op);
    return shape->sends != DDPI_NOBODY && !shape->reduces && op->task->list == NULL &&
           !ddpi_arena_identity(op->arena)->refused;
}

static bool sends(const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_call_includes(&op->task->call, ddpi_arena_op_shape(op)->sends, rank);
}

/* ---- what a rank shows ---- */

static uint64_t source_for(const struct ddpi_arena_op *op, uint32_t rank)
{
    const struct ddpi_task *task = op->task;
    size_t first = ddpi_arena_op_shape(op)->sends_blocks
                       ? ddpi_parts_at(&task->send_parts, task->own, rank).first
                       : 0;
    return (uintptr_t)task->send + first * task->element_size;
}

static void show_parts(const struct ddpi_arena_op *op, uint32_t me)
{
    const struct ddpi_arena_identity *own = ddpi_arena_identity(op->arena);
    struct shown *shown = shown_by(op, me);
    if (!sends(op, me))
        return;
    shown->pid = (uint64_t)own->pid;
    shown->token = own->token;
    shown->token_at = (uintptr_t)&own->token;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++)
        shown->parts_at[rank] = source_for(op, rank);
}

/* A rank copies its own part last, so that nobody waits for that copy. Where ranks outnumber the
 * processors it copies it first: later the copy would take time from ranks that still read. */
static bool copies_own_part_late(const struct ddpi_arena_op *op)
{
    return !ddpi_arena_is_crowded(op->arena);
}

static void begin(struct ddpi_arena_op *op)
{
    op->kernel.reads_from = 0;
    op->kernel.done = 0;
    if (!copies_own_part_late(op))
        ddpi_slots_copy_own_part(op);
}

static enum ddpi_arena_step show(struct ddpi_arena_op *op, struct ddp_error *err)
{
    (void)err;
    ddpi_arena_op_enter_round(op);
    show_parts(op, ddpi_arena_rank(op->arena));
    return ddpi_arena_op_arrive(op);
}

/* ---- what a rank reads ---- */

/* Where this rank puts what @rank sends to it; no bytes if that is nothing. */
static struct ddpi_range place_for(const struct ddpi_arena_op *op, uint32_t rank)
{
    const struct ddpi_task *task = op->task;
    if (!sends(op, rank))
        return (struct ddpi_range){.len = 0};
    struct ddpi_chunk part = ddpi_arena_op_shape(op)->takes_of_each
                                 ? ddpi_parts_at(&task->recv_parts, task->own, rank)
                                 : (struct ddpi_chunk){.count = task->own};
    return (struct ddpi_range){(uint8_t *)((uintptr_t)task->recv + part.first * task->element_size),
                               part.count * task->element_size};
}

/* How many bytes were read; 0: none, and errno says why. */
static size_t read_from(pid_t pid, uint64_t from, void *to, size_t len)
{
    errno = 0;
    const struct iovec local = {to, len}, remote = {(void *)(uintptr_t)from, len};
    ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    return n > 0 ? (size_t)n : 0;
}

/* The process of @rank, which shows the token; 0: it cannot be read, or is another one (ESRCH). */
static pid_t process_of(const struct ddpi_arena_op *op, const struct shown *shown, uint32_t rank)
{
    pid_t *known = &ddpi_arena_identity(op->arena)->known[rank], pid = (pid_t)shown->pid;
    uint64_t token = 0;
    if (*known != 0 || read_from(pid, shown->token_at, &token, sizeof token) < sizeof token)
        return *known;
    if (token != 0 && token == shown->token)
        *known = pid;
    else
        errno = ESRCH;
    return *known;
}

/* Read at most @most bytes of what @rank has for this one, from kernel.done on. */
static size_t read_part(const struct ddpi_arena_op *op, uint32_t rank,
                        const struct ddpi_range *part, size_t most)
{
    const struct shown *shown = shown_by(op, rank);
    uint64_t from = shown->parts_at[ddpi_arena_rank(op->arena)] + op->kernel.done;
    size_t left = part->len - op->kernel.done;
    pid_t pid = process_of(op, shown, rank);
    return pid == 0
               ? 0
               : read_from(pid, from, part->bytes + op->kernel.done, left < most ? left : most);
}

enum reading { GOES_ON, COMPLETE, REFUSED };

/* The next rank after this one is the first, so that not all read from the same. */
static enum reading read_parts(struct ddpi_arena_op *op)
{
    uint32_t me = ddpi_arena_rank(op->arena), ranks = ddpi_arena_ranks(op->arena);
    bool takes = ddpi_arena_op_includes(op, ddpi_arena_op_shape(op)->takes);
    size_t most = MOST_AT_ONCE;
    while (takes && op->kernel.reads_from + 1 < ranks) {
        uint32_t rank = (me + op->kernel.reads_from + 1) % ranks;
        struct ddpi_range part = place_for(op, rank);
        if (op->kernel.done == part.len) {
            op->kernel.reads_from++;
            op->kernel.done = 0;
            continue;
        }
        if (most == 0)
            return GOES_ON;
        size_t n = read_part(op, rank, &part, most);
        if (n == 0) {
            op->refusal.why = DDPI_ARENA_REFUSAL_UNREADABLE;
            op->refusal.rank = rank;
            op->refusal.sys_errno = errno != 0 ? errno : ENODATA;
            return REFUSED;
        }
        op->kernel.done += n;
        most -= n;
    }
    return COMPLETE;
}

static enum ddpi_arena_step read_on(struct ddpi_arena_op *op, struct ddp_error *err)
{
    enum reading reading = read_parts(op);
    (void)err;
    if (reading == GOES_ON)
        return DDPI_ARENA_STEP_AGAIN;
    ddpi_way_note_end(op);
    ddpi_arena_op_enter_round(op);
    if (reading == REFUSED)
        ddpi_arena_refuse(op->arena, op->round);
    enum ddpi_arena_step step = ddpi_arena_op_arrive(op);
    if (copies_own_part_late(op))
        ddpi_slots_copy_own_part(op);
    return step;
}

static enum ddpi_arena_step end(struct ddpi_arena_op *op, struct ddp_error *err)
{
    (void)err;
    if (!ddpi_arena_is_refused(op->arena, op->round))
        return DDPI_ARENA_STEP_OVER;
    ddpi_arena_identity(op->arena)->refused = true;
    return DDPI_ARENA_STEP_SWITCH;
}

const struct ddpi_arena_method ddpi_kernel_copy_method = {.begin = begin,
                                                          .steps = {show, read_on, end}};
