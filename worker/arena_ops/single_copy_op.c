/*
 * single_copy_op.c - see single_copy_op.h. Owns nothing.
 */
#include "single_copy_op.h"

#include <errno.h>
#include <sys/uio.h>

enum { STRETCH = 2 * 1024 * 1024 }; /* bytes that are read before the driver has a turn again */

/* In the small piece of a rank. */
struct shown {
    uint64_t pid;
    uint64_t token, token_at; /* in the memory of that process */
    uint64_t parts_at[];      /* what is for each rank */
};

static struct shown *shown_by(const struct ddpi_arena_op *op, uint32_t rank)
{
    return (struct shown *)(void *)ddpi_arena_piece(op->arena, op->round, rank, DDPI_ARENA_SMALL);
}

bool ddpi_single_copy_is_possible(const struct ddpi_arena_op *op)
{
    const struct ddpi_arena_row *row = ddpi_arena_op_row(op);
    return row->copies_in != DDPI_NOBODY && !row->works && !row->reduces &&
           op->task->list == NULL && !ddpi_arena_identity(op->arena)->refused;
}

static bool sends(const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_arena_includes(ddpi_arena_op_row(op)->copies_in, &op->task->call, rank);
}

/* ---- what a rank shows ---- */

static uint64_t part_for(const struct ddpi_arena_op *op, uint32_t rank)
{
    const struct ddpi_task *task = op->task;
    size_t first = ddpi_arena_op_row(op)->in == DDPI_PARTS
                       ? ddpi_parts_at(&task->send_parts, task->own, rank).first
                       : 0;
    return (uintptr_t)task->send + first * task->element_size;
}

void ddpi_single_copy_show(const struct ddpi_arena_op *op)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    const struct ddpi_arena_identity *own = ddpi_arena_identity(op->arena);
    struct shown *shown = shown_by(op, me);
    if (!sends(op, me))
        return;
    shown->pid = (uint64_t)own->pid;
    shown->token = own->token;
    shown->token_at = (uintptr_t)&own->token;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++)
        shown->parts_at[rank] = part_for(op, rank);
}

/* ---- what a rank reads ---- */

/* Nothing if @rank sends nothing to this one. */
static struct ddpi_piece part_from(const struct ddpi_arena_op *op, uint32_t rank)
{
    const struct ddpi_task *task = op->task;
    if (!sends(op, rank))
        return (struct ddpi_piece){.len = 0};
    struct ddpi_chunk part = ddpi_arena_op_row(op)->out_of_each
                                 ? ddpi_parts_at(&task->recv_parts, task->own, rank)
                                 : (struct ddpi_chunk){.count = task->own};
    return (struct ddpi_piece){(uint8_t *)((uintptr_t)task->recv + part.first * task->element_size),
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

/* Read at most @most bytes of what @rank has for this one, from op->done on. */
static size_t read_part(const struct ddpi_arena_op *op, uint32_t rank,
                        const struct ddpi_piece *part, size_t most)
{
    const struct shown *shown = shown_by(op, rank);
    uint64_t from = shown->parts_at[ddpi_arena_rank(op->arena)] + op->done;
    size_t left = part->len - op->done;
    pid_t pid = process_of(op, shown, rank);
    return pid == 0 ? 0 : read_from(pid, from, part->bytes + op->done, left < most ? left : most);
}

/* The next rank after this one is the first, so that not all read from the same. */
enum ddpi_single_copy ddpi_single_copy_read(struct ddpi_arena_op *op)
{
    uint32_t me = ddpi_arena_rank(op->arena), ranks = ddpi_arena_ranks(op->arena);
    bool takes = ddpi_arena_includes(ddpi_arena_op_row(op)->takes, &op->task->call, me);
    size_t most = STRETCH;
    while (takes && op->reads_from + 1 < ranks) {
        uint32_t rank = (me + op->reads_from + 1) % ranks;
        struct ddpi_piece part = part_from(op, rank);
        if (op->done == part.len) {
            op->reads_from++;
            op->done = 0;
            continue;
        }
        if (most == 0)
            return DDPI_SINGLE_COPY_GOES_ON;
        size_t n = read_part(op, rank, &part, most);
        if (n == 0) {
            op->unread_errno = errno != 0 ? errno : ENODATA;
            op->unread = rank;
            return DDPI_SINGLE_COPY_REFUSED;
        }
        op->done += n;
        most -= n;
    }
    return DDPI_SINGLE_COPY_COMPLETE;
}

/* What a rank sends to all alike counts once, as it does in a piece. */
void ddpi_single_copy_count(const struct ddpi_arena_op *op)
{
    struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    bool takes = ddpi_arena_includes(ddpi_arena_op_row(op)->takes, &task->call, me);
    bool alike = ddpi_arena_op_row(op)->in == DDPI_WHOLE;
    if (sends(op, me) && alike)
        task->bytes_sent += task->own * task->element_size;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        if (rank == me)
            continue;
        if (sends(op, me) && !alike)
            task->bytes_sent +=
                ddpi_parts_at(&task->send_parts, task->own, rank).count * task->element_size;
        if (takes)
            task->bytes_received += part_from(op, rank).len;
    }
}
