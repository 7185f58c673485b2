/*
 * perf_coll_nccl.c - makes the same calls with NCCL, if the dynamic linker finds it. Owns the NCCL
 * communicator. Nothing links to NCCL: the part of its interface used here is declared here, and
 * has not changed since NCCL 2.10.
 */
#include "perf_coll_context.h"

#include "error.h"
#include "library.h"

#include <string.h>

typedef struct nccl_comm *nccl_comm;
struct nccl_id {
    char bytes[128];
};

/* X(member, name, parameters). Each returns 0 on success. */
#define NCCL_MAP(X)                                                                                \
    X(get_version, ncclGetVersion, (int *ret))                                                     \
    X(get_unique_id, ncclGetUniqueId, (struct nccl_id * ret))                                      \
    X(comm_init_rank, ncclCommInitRank, (nccl_comm * ret, int ranks, struct nccl_id id, int rank)) \
    X(comm_destroy, ncclCommDestroy, (nccl_comm comm))                                             \
    X(all_reduce, ncclAllReduce,                                                                   \
      (const void *send, void *recv, size_t count, int dtype, int op, nccl_comm comm,              \
       void *stream))                                                                              \
    X(reduce, ncclReduce,                                                                          \
      (const void *send, void *recv, size_t count, int dtype, int op, int root, nccl_comm comm,    \
       void *stream))                                                                              \
    X(broadcast, ncclBroadcast,                                                                    \
      (const void *send, void *recv, size_t count, int dtype, int root, nccl_comm comm,            \
       void *stream))                                                                              \
    X(all_gather, ncclAllGather,                                                                   \
      (const void *send, void *recv, size_t count, int dtype, nccl_comm comm, void *stream))       \
    X(reduce_scatter, ncclReduceScatter,                                                           \
      (const void *send, void *recv, size_t count, int dtype, int op, nccl_comm comm,              \
       void *stream))

struct nccl {
#define NCCL_MEMBER(member, name, parameters) int(*member) parameters;
    NCCL_MAP(NCCL_MEMBER)
#undef NCCL_MEMBER
    nccl_comm comm;
};

static const int dtypes[] = {
    [DDP_INT32] = 2,   [DDP_INT64] = 4,   [DDP_FLOAT16] = 6,
    [DDP_FLOAT32] = 7, [DDP_FLOAT64] = 8, [DDP_BFLOAT16] = 9,
};

static const int ops[] = {
    [DDP_SUM] = 0, [DDP_PRODUCT] = 1, [DDP_MAX] = 2, [DDP_MIN] = 3, [DDP_AVERAGE] = 4};

static bool nccl_load(struct nccl *nccl)
{
    static const struct ddpi_symbol symbols[] = {
#define NCCL_SYMBOL(member, name, parameters) {#name, offsetof(struct nccl, member), false},
        NCCL_MAP(NCCL_SYMBOL)
#undef NCCL_SYMBOL
    };
    void *library = ddpi_library_open("libnccl.so.2");
    return library != NULL &&
           ddpi_library_find(library, symbols, sizeof symbols / sizeof *symbols, nccl) == NULL;
}

static bool each_has_own_device(const struct coll_rank *rank)
{
    for (uint32_t a = 0; a < rank->ranks; a++)
        for (uint32_t b = 0; b < a; b++)
            if (memcmp(rank->seats[a].uuid, rank->seats[b].uuid, sizeof rank->seats->uuid) == 0)
                return false;
    return true;
}

/* Why NCCL cannot be measured; NULL: it can, if the library is found. The same in all ranks. */
static const char *nccl_refusal(const struct coll_rank *rank)
{
    if (!each_has_own_device(rank))
        return "it refuses several ranks on one device";
    if (rank->call == COLL_ALL_TO_ALL || rank->call == COLL_SENDRECV || rank->call == COLL_BARRIER)
        return "it has no such call";
    return NULL;
}

/* NCCL is used only if all ranks have found the library. */
static bool nccl_load_everywhere(struct coll_rank *rank, struct nccl *nccl, bool *ret_there,
                                 struct ddp_error *err)
{
    int32_t there = nccl_load(nccl);
    if (ddp_all_reduce(rank->side, &there, &there, 1, DDP_INT32, DDP_MIN, NULL, err) != DDP_OK)
        return false;
    *ret_there = there != 0;
    return true;
}

static bool nccl_worked(int result, const char *what, struct ddp_error *err)
{
    return result == 0 ||
           ddpi_error_set(err, DDP_E_CUDA, "NCCL: %s failed with %d", what, result) == DDP_OK;
}

static bool nccl_join(struct coll_rank *rank, struct nccl *nccl, struct ddp_error *err)
{
    struct nccl_id id = {0};
    if (rank->rank == 0 && !nccl_worked(nccl->get_unique_id(&id), "ncclGetUniqueId", err))
        return false;
    if (ddp_broadcast(rank->side, &id, sizeof id / sizeof(int32_t), DDP_INT32, 0, NULL, err) !=
        DDP_OK)
        return false;
    return nccl_worked(nccl->comm_init_rank(&nccl->comm, (int)rank->ranks, id, (int)rank->rank),
                       "ncclCommInitRank", err);
}

static int nccl_call(const struct coll_rank *rank, const struct nccl *nccl,
                     const struct coll_shape *shape)
{
    int dtype = dtypes[rank->options->dtype], op = ops[rank->options->op];
    int root = (int)rank->options->root;
    void *stream = coll_memory_stream(&rank->memory);
    switch (rank->call) {
    case COLL_ALL_REDUCE:
        return nccl->all_reduce(rank->send, rank->recv, shape->count, dtype, op, nccl->comm,
                                stream);
    case COLL_REDUCE:
        return nccl->reduce(rank->send, rank->recv, shape->count, dtype, op, root, nccl->comm,
                            stream);
    case COLL_BROADCAST:
        return nccl->broadcast(rank->recv, rank->recv, shape->count, dtype, root, nccl->comm,
                               stream);
    case COLL_ALL_GATHER:
        return nccl->all_gather(rank->send, rank->recv, shape->count, dtype, nccl->comm, stream);
    case COLL_REDUCE_SCATTER:
        return nccl->reduce_scatter(rank->send, rank->recv, shape->count, dtype, op, nccl->comm,
                                    stream);
    case COLL_ALL_TO_ALL:
    case COLL_SENDRECV:
    case COLL_BARRIER:
    case COLL_CALLS:
        break;
    }
    return -1;
}

static bool nccl_call_often(struct coll_rank *rank, const struct nccl *nccl,
                            const struct coll_shape *shape, uint32_t times, struct ddp_error *err)
{
    for (uint32_t i = 0; i < times; i++)
        if (!nccl_worked(nccl_call(rank, nccl, shape), "a call", err))
            return false;
    return coll_memory_sync(&rank->memory, err);
}

static bool nccl_time_calls(struct coll_rank *rank, const struct nccl *nccl,
                            const struct coll_shape *shape, double *ret_us, struct ddp_error *err)
{
    uint32_t iters = rank->options->iters;
    if (!nccl_call_often(rank, nccl, shape, rank->options->warmup + 1, err) ||
        ddp_barrier(rank->side, NULL, err) != DDP_OK)
        return false;
    double began_us = coll_now_us();
    if (!nccl_call_often(rank, nccl, shape, iters, err))
        return false;
    *ret_us = (coll_now_us() - began_us) / iters;
    return coll_rank_slowest(rank, ret_us, err);
}

/* Only rank 0 has rows to compare with. */
static bool nccl_compare(struct coll_rank *rank, const struct nccl *nccl, struct ddp_error *err)
{
    const struct coll_options *options = rank->options;
    size_t row = 0;
    if (rank->rank == 0)
        coll_report_peer_header("NCCL");
    for (uint64_t size = options->begin;;) {
        struct coll_shape shape = coll_shape(rank->call, size, options->dtype, rank->ranks);
        double us = 0;
        if (!nccl_time_calls(rank, nccl, &shape, &us, err))
            return false;
        if (rank->rank == 0 && row < rank->report.count)
            coll_report_peer(&rank->report, &rank->report.rows[row++], "NCCL", us);
        size = coll_next_size(size, options->end, options->step, options->factor);
        if (size == 0)
            return true;
    }
}

bool coll_nccl(struct coll_rank *rank, struct ddp_error *err)
{
    struct nccl nccl = {0};
    bool there = false;
    if (!rank->cuda)
        return true;
    const char *refused = nccl_refusal(rank);
    if (refused == NULL && !nccl_load_everywhere(rank, &nccl, &there, err))
        return false;
    if (refused == NULL && !there)
        refused = "there is no libnccl.so.2 on all ranks";
    if (refused != NULL) {
        if (rank->rank == 0)
            printf("\nNCCL is left out: %s.\n", refused);
        return true;
    }
    bool done = nccl_join(rank, &nccl, err) && nccl_compare(rank, &nccl, err);
    if (nccl.comm != NULL)
        (void)nccl.comm_destroy(nccl.comm);
    return done;
}
