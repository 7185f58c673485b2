/*
 * recorder.c - see recorder.h. Owns the mapping of the agent's memory, not the descriptor.
 */
#include "recorder.h"

#include "clock.h"
#include "flight_file.h"
#include "mem.h"
#include "memory_file.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct ddpi_recorder {
    struct ddpi_flight_header *memory;
    int fd; /* stays open for communicators made later; closed by no one */
    size_t size;
    uint32_t records; /* as checked: others can write to the memory */
    uint64_t serial;  /* of its group */
    uint32_t rank, nranks;
};

static const char *const operation_names[] = {
#define OPERATION_NAME(symbol, name) [symbol] = (name),
    DDPI_OPERATION_MAP(OPERATION_NAME)
#undef OPERATION_NAME
};

static const char *const dtype_names[] = {
#define DTYPE_NAME(symbol, size, name) [symbol] = (name),
    DDP_DTYPE_MAP(DTYPE_NAME)
#undef DTYPE_NAME
};

static const char *const reduction_names[] = {
#define REDUCTION_NAME(symbol, name) [symbol] = (name),
    DDP_REDUCE_OP_MAP(REDUCTION_NAME)
#undef REDUCTION_NAME
};

#define COUNT(names) (sizeof(names) / sizeof *(names))
_Static_assert(COUNT(operation_names) <= DDPI_FLIGHT_OPERATIONS &&
                   COUNT(dtype_names) <= DDPI_FLIGHT_DTYPES &&
                   COUNT(reduction_names) <= DDPI_FLIGHT_REDUCTIONS,
               "the header of the memory has room for all names");

/* ---- life ---- */

static void write_names(char (*to)[DDPI_FLIGHT_NAME_SIZE], const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (names[i] != NULL)
            snprintf(to[i], DDPI_FLIGHT_NAME_SIZE, "%s", names[i]);
}

/* Only if nobody has: another communicator of this process may be noting operations. */
static void name_things(struct ddpi_flight_header *memory)
{
    struct ddpi_flight_names *names = &memory->names;
    if (names->operations[0][0] != '\0')
        return;
    write_names(names->operations, operation_names, COUNT(operation_names));
    write_names(names->dtypes, dtype_names, COUNT(dtype_names));
    write_names(names->reductions, reduction_names, COUNT(reduction_names));
}

static struct ddpi_flight_header *map_memory(int fd, size_t *ret_size)
{
    struct stat file;
    if (!ddpi_memory_file_has(fd, 1, DDPI_FLIGHT_SEALS) || fstat(fd, &file) != 0)
        return NULL;
    *ret_size = (size_t)file.st_size;
    void *memory = mmap(NULL, *ret_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (ddpi_flight_is_live(memory, *ret_size))
        return memory;
    munmap(memory, *ret_size);
    return NULL;
}

struct ddpi_recorder *ddpi_recorder_open(int fd, const struct ddpi_recorder_group *group)
{
    size_t size;
    struct ddpi_flight_header *memory = map_memory(fd, &size);
    if (memory == NULL)
        return NULL;
    struct ddpi_recorder *recorder = ddpi_calloc(1, sizeof *recorder);
    if (recorder == NULL) {
        munmap(memory, size);
        return NULL;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* not for programs that this one starts */
    struct ddpi_flight_group entry = {
        .id = group->id, .rank = group->rank, .size = group->size, .pid = (uint32_t)getpid()};
    snprintf(entry.name, sizeof entry.name, "%s", group->name);
    name_things(memory);
    ddpi_flight_add_group(memory, &entry);
    *recorder = (struct ddpi_recorder){.memory = memory,
                                       .fd = fd,
                                       .size = size,
                                       .records = memory->records,
                                       .serial = entry.serial,
                                       .rank = group->rank,
                                       .nranks = group->size};
    return recorder;
}

struct ddpi_recorder *ddpi_recorder_open_child(const struct ddpi_recorder *parent,
                                               const struct ddpi_recorder_group *group)
{
    return parent != NULL ? ddpi_recorder_open(parent->fd, group) : NULL;
}

void ddpi_recorder_close(struct ddpi_recorder *recorder)
{
    if (recorder != NULL)
        munmap(recorder->memory, recorder->size);
    ddpi_free(recorder);
}

/* ---- operations ---- */

/* What is recorded of the counts of uneven parts, and of a list of buffers. */
static uint16_t parts_of(const struct ddpi_recorder *recorder, const struct ddpi_task *task)
{
    uint32_t digest = task->call.parts;
    return ddpi_call_is_in_pairs(&task->call)
               ? ddpi_task_balance(task, recorder->rank, recorder->nranks)
               : (uint16_t)(digest ^ digest >> 16);
}

uint64_t ddpi_recorder_begin(struct ddpi_recorder *recorder, const struct ddpi_task *task,
                             bool starts)
{
    const struct ddpi_call *call = &task->call;
    uint64_t timeout_ms = task->timeout_ms;
    if (recorder == NULL || call->operation == DDPI_ALLOC) /* ranks make different ones */
        return 0;
    uint64_t now_ns = ddpi_now_coarse_ns();
    bool is_message = ddpi_call_shape(call)->message;
    struct ddpi_flight_op op = {
        .state = starts ? DDPI_FLIGHT_STARTED : DDPI_FLIGHT_SCHEDULED,
        .created_ns = now_ns,
        .started_ns = starts ? now_ns : 0,
        .seq = call->seq,
        .count = call->count,
        .timeout_ms = timeout_ms < UINT32_MAX ? (uint32_t)timeout_ms : UINT32_MAX,
        .peer = call->root,
        .group = (uint32_t)(recorder->serial & 0xffff),
        .operation = (uint8_t)call->operation,
        .dtype = (uint8_t)call->dtype,
        .reduction = (uint8_t)call->op,
        .parts = parts_of(recorder, task),
        .is_uneven = call->parts != 0,
        .in_pairs = ddpi_call_is_in_pairs(call),
        .is_message = is_message,
        .is_send = call->operation == DDPI_SEND,
        .has_root = !is_message && ddpi_call_shape(call)->rooted,
        .reduces = ddpi_call_shape(call)->reduces,
        .has_elements = ddpi_call_shape(call)->has_elements,
    };
    ddpi_flight_begin(recorder->memory, recorder->records, &op);
    return op.number;
}

void ddpi_recorder_start(struct ddpi_recorder *recorder, uint64_t record)
{
    if (recorder != NULL && record != 0 &&
        ddpi_flight_waits(recorder->memory, recorder->records, record))
        ddpi_flight_move(recorder->memory, recorder->records, record, DDPI_FLIGHT_STARTED, 0,
                         ddpi_now_coarse_ns());
}

void ddpi_recorder_end(struct ddpi_recorder *recorder, const struct ddpi_task *task,
                       ddp_status status)
{
    if (recorder == NULL || task->record == 0)
        return;
    if (status == DDP_OK && task->call.operation == DDPI_ALL_REDUCE)
        ddpi_flight_add_all_reduced(recorder->memory, recorder->serial,
                                    task->count * task->element_size);
    ddpi_flight_move(recorder->memory, recorder->records, task->record,
                     status == DDP_OK ? DDPI_FLIGHT_COMPLETED : DDPI_FLIGHT_FAILED, (int8_t)status,
                     ddpi_now_coarse_ns());
}
