/*
 * rig_gear.c - a rank that uses its GPU until something goes wrong.
 */
#include "rig_gear.h"

#include "descriptors.h"

#include <stdlib.h>

unsigned gear_from_environment(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static size_t free_memory(const struct gear *gear)
{
    size_t free_bytes, total;
    TRY(gear->cuda.mem_get_info(&free_bytes, &total));
    return free_bytes;
}

void gear_open(struct gear *gear, const struct world *world, uint32_t rank)
{
    int count;
    if (ddpi_cuda_init(&gear->cuda, NULL) != DDP_OK)
        CHECK_OK(ddpi_cuda_init(&gear->cuda, err));
    TRY(gear->cuda.device_get_count(&count));
    TRY(gear->cuda.device_primary_ctx_retain(&gear->context, (int)rank % count));
    TRY(gear->cuda.ctx_push_current(gear->context));
    TRY(gear->cuda.stream_create(&gear->stream, DDPI_CU_STREAM_NON_BLOCKING));
    TRY(gear->cuda.mem_alloc(&gear->send, COUNT * sizeof(float)));
    TRY(gear->cuda.mem_alloc(&gear->recv, COUNT * sizeof(float)));
    TRY(gear->cuda.mem_alloc(&gear->many, world->nranks * COUNT * sizeof(float)));
    TRY(gear->cuda.memset_d8_async(gear->send, 0, COUNT * sizeof(float), gear->stream));
    TRY(gear->cuda.stream_synchronize(gear->stream));
    gear->free_bytes = free_memory(gear);
    gear->descriptors = open_descriptors();
}

void *gear_at(ddpi_cu_deviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Every rank has half of its elements for the next one, and nothing for others. */
static ddp_status exchange_uneven(const struct gear *gear, ddp_comm *comm, struct ddp_error *err)
{
    static size_t to[WORLD_MAX], from[WORLD_MAX];
    uint32_t rank = ddp_comm_rank(comm), nranks = ddp_comm_world_size(comm);
    to[(rank + 1) % nranks] = from[(rank + nranks - 1) % nranks] = COUNT / 2;
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_ALL_TO_ALL,
                                            .send = gear_at(gear->send),
                                            .recv = gear_at(gear->recv),
                                            .dtype = DDP_FLOAT32,
                                            .uneven = 1,
                                            .send_counts = to,
                                            .recv_counts = from,
                                            .stream = gear->stream};
    return ddp_run(comm, &operation, err);
}

ddp_status gear_call(const struct gear *gear, ddp_comm *comm, unsigned turn, struct ddp_error *err)
{
    void *send = gear_at(gear->send), *recv = gear_at(gear->recv), *many = gear_at(gear->many);
    uint32_t rank = ddp_comm_rank(comm), next = (rank + 1) % ddp_comm_world_size(comm);
    switch (turn % 10) {
    case 0:
        return ddp_all_reduce(comm, send, recv, COUNT, DDP_FLOAT32, DDP_SUM, gear->stream, err);
    case 1:
        return ddp_all_gather(comm, send, many, COUNT, DDP_FLOAT32, gear->stream, err);
    case 2:
        return ddp_reduce(comm, send, recv, COUNT, DDP_FLOAT32, DDP_MAX, 1, gear->stream, err);
    case 3:
        return ddp_broadcast(comm, recv, COUNT, DDP_FLOAT32, 0, gear->stream, err);
    case 4:
        return ddp_reduce_scatter(comm, many, recv, COUNT, DDP_FLOAT32, DDP_SUM, gear->stream, err);
    case 5:
        if (rank > 1)
            return DDP_OK;
        return rank == 0 ? ddp_send(comm, send, COUNT, DDP_FLOAT32, next, gear->stream, err)
                         : ddp_recv(comm, recv, COUNT, DDP_FLOAT32, 0, gear->stream, err);
    case 6:
        return ddp_gather(comm, send, many, COUNT, DDP_FLOAT32, 1, gear->stream, err);
    case 7:
        return ddp_all_reduce(comm, send, recv, COUNT, DDP_INT32, DDP_BIT_XOR, gear->stream, err);
    case 8:
        return exchange_uneven(gear, comm, err);
    default:
        return ddp_barrier(comm, gear->stream, err);
    }
}

/* Operations, of which up to three are enqueued at a time. */
ddp_status gear_work(struct world *world, uint32_t rank, const struct gear *gear, ddp_comm *comm,
                     unsigned turns, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (unsigned turn = 0; turn < turns && status == DDP_OK; turn++) {
        status = gear_call(gear, comm, turn, err);
        if (status != DDP_OK || turn % 3 != 0)
            continue;
        TRY(gear->cuda.stream_synchronize(gear->stream));
        status = ddp_comm_check(comm, err);
        atomic_fetch_add(&world->reports[rank].steps, 1);
    }
    TRY(gear->cuda.stream_synchronize(gear->stream)); /* it drains, whatever happened */
    return status == DDP_OK ? ddp_comm_check(comm, err) : status;
}

void gear_report(struct world *world, uint32_t rank, ddp_status status,
                 const struct ddp_error *error)
{
    struct report *report = &world->reports[rank];
    report->status = status;
    report->error = *error;
    atomic_store(&report->at_us, now_us());
}

/* The communicator is gone, and with it all that it had. A GPU's driver says how much memory the
 * device has for all processes, which come and go meanwhile, and keeps descriptors of its own:
 * there, tests/gpu/run compares the memory before all tests and after them. */
void gear_expect_nothing_left(const struct gear *gear)
{
    if (!rig_driver_is_host())
        return;
    CHECK(free_memory(gear) == gear->free_bytes);
    CHECK(open_descriptors() == gear->descriptors);
}
