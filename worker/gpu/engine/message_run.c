/*
 * message_run.c - a message between two ranks on device memory: they greet each other over the edge
 * that messages on host memory use as well, find out whether the receiver can read the sender's
 * memory, and then are a ring of two. A receive from any rank learns from the greeting which one it
 * is. A rank greets itself, too: then its data follows as messages on host memory, which are kept.
 *
 * Only these two take part, so nothing here may need the result of ddpi_device_meet(). The receiver
 * remembers what it has found out about a sender.
 */
#include "peer_message.h"

#include "debug.h"
#include "pass_descriptors.h"
#include "steps.h"

#include <string.h>

/* The receiver's answer: how it gets the data. */
enum answer { ANSWER_STAGED, ANSWER_READS, ANSWER_READS_WITH_DESCRIPTOR };

/* The sender's offer. */
struct hello {
    char machine[DDPI_MACHINE_TEXT];
    struct ddpi_offer buffer;
    struct ddpi_offer scratch;
};

/* A buffer that comes with a descriptor cannot be tried yet. */
static bool opens_message(struct ddpi_device *device, const struct ddpi_offer *buffer)
{
    ddpi_cu_deviceptr address;
    struct ddp_error err;
    if (buffer->way != DDPI_SHARE_IPC ||
        ddpi_share_open(&device->shares, buffer, &address, &err) == DDP_OK)
        return true;
    ddpi_debug(device->comm->rank, "cannot read a message of rank %u in its memory yet: %s",
               buffer->rank, err.msg);
    return false;
}

static bool reads_sender(struct ddpi_device *device, const struct hello *hello)
{
    uint32_t from = hello->buffer.rank;
    const struct ddpi_offer *reader = &device->own_scratch;
    if (memcmp(hello->machine, device->machine, sizeof hello->machine) != 0 ||
        !ddpi_offer_suits(&hello->buffer, reader) || !ddpi_offer_suits(&hello->scratch, reader))
        return false;
    enum ddpi_peer_way *memory = &device->peers[from].memory;
    if (*memory == DDPI_PEER_UNKNOWN)
        *memory = ddpi_device_reads(device, &hello->scratch) ? DDPI_PEER_READ : DDPI_PEER_NOT_READ;
    return *memory == DDPI_PEER_READ && opens_message(device, &hello->buffer);
}

/* Print it once for each sender, and again when it changes. */
static void debug_message_way(struct ddpi_device *device, const struct ddpi_edge *edge,
                              uint32_t from, bool is_read)
{
    enum ddpi_peer_way way = is_read ? DDPI_PEER_READ : DDPI_PEER_NOT_READ;
    if (device->peers[from].told == way)
        return;
    device->peers[from].told = way;
    if (is_read)
        ddpi_debug(device->comm->rank, "reads messages in the memory of rank %u", from);
    else
        ddpi_debug(device->comm->rank, "gets messages of rank %u through pinned memory and %s",
                   from, edge->ops->name);
}

/* From now on the receiver knows the sender, and both the edge (NULL: they are one rank). */
static ddp_status exchange_hello(struct ddpi_device *device, struct ddpi_run *run,
                                 struct hello *hello, struct ddpi_edge **ret_edge)
{
    struct ddpi_call *call = &run->task.call;
    bool sends = call->operation == DDPI_SEND;
    memset(hello, 0, sizeof *hello);
    if (sends && call->root != device->comm->rank) {
        memcpy(hello->machine, device->machine, sizeof hello->machine);
        hello->scratch = device->own_scratch;
        ddpi_share_offer(&device->shares, device->comm->rank, run->task.send,
                         run->task.count * run->task.element_size, run->buffers.send.allocation,
                         &hello->buffer);
    }
    ddp_status status = ddpi_message_begin(device->comm, call, hello, sizeof *hello, ret_edge);
    hello->buffer.rank = hello->scratch.rank = sends ? device->comm->rank : call->root;
    return status;
}

/* On both sides: whether the receiver reads the sender's memory; then it can. */
static ddp_status exchange_answer(struct ddpi_device *device, const struct ddpi_run *run,
                                  const struct hello *hello, struct ddpi_edge *edge,
                                  bool *ret_is_read)
{
    const struct ddpi_call *call = &run->task.call;
    bool sends = call->operation == DDPI_SEND;
    uint8_t answer = ANSWER_STAGED;
    if (!sends && reads_sender(device, hello))
        answer = ddpi_share_awaits(&device->shares, &hello->buffer) ? ANSWER_READS_WITH_DESCRIPTOR
                                                                    : ANSWER_READS;
    ddp_status status = ddpi_message_answer(device->comm, call, &answer, 1);
    *ret_is_read = answer != ANSWER_STAGED;
    if (!sends)
        debug_message_way(device, edge, call->root, *ret_is_read);
    if (status != DDP_OK || answer != ANSWER_READS_WITH_DESCRIPTOR)
        return status;
    struct ddpi_wait wait = ddpi_device_wait(&run->task);
    return sends ? ddpi_pass_descriptors(device, edge, call->root, &hello->buffer, 1)
                 : ddpi_receive_descriptors(device, &wait, edge, &hello->buffer, 1);
}

/* Copy between pinned memory and the device in a lane, and wait until that is done. */
static ddp_status copy_pinned(struct ddpi_device *device, const struct ddpi_wait *wait,
                              enum ddpi_lane_kind kind, void *to, const void *from, size_t len)
{
    const struct ddpi_lane *lane = &device->lanes[kind];
    ddpi_cu_result result =
        kind == DDPI_LANE_DOWNLOAD
            ? device->cuda.memcpy_dtoh_async(to, (uintptr_t)from, len, lane->stream)
            : device->cuda.memcpy_htod_async((uintptr_t)to, from, len, lane->stream);
    struct ddp_error err;
    ddp_status status = DDP_OK;
    if (result != DDPI_CU_SUCCESS)
        status = ddpi_cuda_error(&device->cuda, &err, result,
                                 "copy %zu bytes between the GPU and pinned memory", len);
    if (status == DDP_OK)
        status = ddpi_lane_stamp(device, kind, &err);
    return status == DDP_OK ? ddpi_device_await(device, wait, lane->word, lane->launched)
                            : ddpi_device_fail(device, status, &err);
}

/* The sender does not wait for the receiver, which comes later in the queue. */
static ddp_status pass_to_self(struct ddpi_device *device, struct ddpi_run *run)
{
    struct ddpi_task *task = &run->task;
    bool sends = task->call.operation == DDPI_SEND;
    size_t len = task->count * task->element_size;
    struct ddpi_wait wait = ddpi_device_wait(task);
    struct ddpi_edge *none;
    ddp_status status = DDP_OK;
    for (size_t done = 0; done < len && status == DDP_OK; done += DDPI_SLOTS_SIZE) {
        size_t piece = len - done < DDPI_SLOTS_SIZE ? len - done : DDPI_SLOTS_SIZE;
        if (sends)
            status = copy_pinned(device, &wait, DDPI_LANE_DOWNLOAD, device->slots_out,
                                 task->send + done, piece);
        if (status == DDP_OK)
            status = ddpi_message_begin(device->comm, &task->call,
                                        sends ? device->slots_out : device->slots_in, piece, &none);
        if (status == DDP_OK && !sends)
            status = copy_pinned(device, &wait, DDPI_LANE_UPLOAD, task->recv + done,
                                 device->slots_in, piece);
    }
    *(sends ? &task->bytes_sent : &task->bytes_received) += len;
    return status;
}

/* Between two ranks that have greeted each other. */
static ddp_status pass_to_peer(struct ddpi_device *device, struct ddpi_run *run,
                               const struct hello *hello, struct ddpi_edge *edge)
{
    bool is_read;
    ddp_status status = exchange_answer(device, run, hello, edge, &is_read);
    if (status != DDP_OK)
        return status;
    const struct ddpi_offer theirs[DDPI_OFFERS] = {
        [DDPI_OFFER_SEND] = hello->buffer, [DDPI_OFFER_RECV] = hello->buffer};
    const struct ddpi_ends ends = {.prev = edge,
                                   .next = edge,
                                   .reads_prev = is_read,
                                   .read_by_next = is_read,
                                   .theirs = theirs,
                                   .piece = is_read ? DDPI_READ_PIECE : DDPI_STAGED_PIECE};
    return ddpi_pipeline_run(device, &run->task, &ends);
}

ddp_status ddpi_device_message(struct ddpi_device *device, struct ddpi_run *run)
{
    struct hello hello;
    struct ddpi_edge *edge;
    ddp_status status = exchange_hello(device, run, &hello, &edge);
    if (status != DDP_OK)
        return status;
    if (run->task.source != NULL)
        *run->task.source = run->task.call.root;
    return edge == NULL ? pass_to_self(device, run) : pass_to_peer(device, run, &hello, edge);
}
