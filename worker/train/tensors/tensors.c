/*
 * tensors.c - the calls of <ddprun/ddp_tensors.h>: they hand tensors to the thread, and wait for
 * it. Owns the object; the thread ends before anything of it is freed.
 */
#include "tensors.h"

#include "clock.h"
#include "config.h"
#include "error.h"
#include "gradient_memory.h"
#include "mem.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { CACHE_DEFAULT = 1024, CACHE_MOST = 65536, STALL_DEFAULT_MS = 60000 };

static const size_t fusion_default = (size_t)128 << 20;

/* ---- create ---- */

static void copy_options(const struct ddp_tensors_options *given, struct ddp_tensors_options *ret)
{
    *ret = (struct ddp_tensors_options){.size = sizeof *ret};
    if (given != NULL)
        memcpy(ret, given, given->size < sizeof *ret ? given->size : sizeof *ret);
    if (ret->cycle_ms == 0)
        ret->cycle_ms = 1;
    if (ret->cache_capacity == 0)
        ret->cache_capacity = CACHE_DEFAULT;
    if (ret->no_cache)
        ret->cache_capacity = 0;
    if (ret->fusion_bytes == 0)
        ret->fusion_bytes = fusion_default;
    if (ret->stall_warning_ms == 0)
        ret->stall_warning_ms = STALL_DEFAULT_MS;
}

static ddp_status check_options(const struct ddp_tensors_options *given,
                                const struct ddp_tensors_options *options, struct ddp_error *err)
{
    if (given != NULL && given->size < offsetof(struct ddp_tensors_options, cycle_ms))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "options: set size to sizeof(struct ddp_tensors_options)");
    if (options->cycle_ms > 10000)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "cycle_ms is %" PRIu32 ": at most 10,000 is possible",
                              options->cycle_ms);
    if (options->cache_capacity > CACHE_MOST)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "cache_capacity is %" PRIu32 ": at most %d is possible",
                              options->cache_capacity, CACHE_MOST);
    if (options->stall_shutdown_ms > 0 && options->stall_shutdown_ms < options->stall_warning_ms)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "stall_shutdown_ms is %" PRIu32 ", and so below stall_warning_ms, "
                              "%" PRIu32,
                              options->stall_shutdown_ms, options->stall_warning_ms);
    return DDP_OK;
}

/* Ranks with other limits would fuse, and remember, other tensors. */
static ddp_status compare_options(struct ddp_tensors *tensors, struct ddp_error *err)
{
    enum { FUSION, CACHE, VALUES };
    static const char *const names[] = {"fusion_bytes", "cache_capacity"};
    uint64_t own[VALUES] = {tensors->options.no_fusion ? 0 : tensors->options.fusion_bytes,
                            tensors->options.cache_capacity};
    uint64_t *all = ddpi_calloc(tensors->world_size, sizeof own);
    if (all == NULL)
        return ddpi_error_nomem(err, tensors->world_size * sizeof own);
    ddp_status status = ddp_all_gather(tensors->comms[0], own, all, VALUES, DDP_UINT64, NULL, err);
    for (uint32_t i = VALUES; status == DDP_OK && i < tensors->world_size * VALUES; i++)
        if (all[i] != all[i % VALUES])
            status = ddpi_error_set(err, DDP_E_MISMATCH,
                                    "%s is %" PRIu64 " on rank 0, but %" PRIu64 " on rank %" PRIu32
                                    ": pass the same options on all ranks",
                                    names[i % VALUES], all[i % VALUES], all[i], i / VALUES);
    ddpi_free(all);
    return status;
}

static ddp_status alloc_parts(struct ddp_tensors *tensors, struct ddp_error *err)
{
    uint32_t capacity = tensors->options.cache_capacity;
    ddp_status status = ddpi_negotiation_init(&tensors->negotiation, tensors->world_size, err);
    if (status != DDP_OK)
        return status;
    tensors->nsets = tensors->negotiation.nsets;
    tensors->comms = ddpi_calloc(1, sizeof(ddp_comm *));
    tensors->vector = ddpi_calloc(1 + 2 * ((size_t)capacity / 64 + 1), sizeof *tensors->vector);
    tensors->slots = ddpi_calloc((size_t)capacity + 1, sizeof *tensors->slots);
    if (tensors->comms == NULL || tensors->vector == NULL || tensors->slots == NULL)
        return ddpi_error_nomem(err, (unsigned long long)capacity * sizeof *tensors->slots);
    return ddpi_response_cache_init(&tensors->cache, capacity, err);
}

static void sync_init(struct ddp_tensors *tensors)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&tensors->lock, NULL);
    pthread_cond_init(&tensors->wake, &monotonic);
    pthread_cond_init(&tensors->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* It is in no list. */
static void tensor_free(struct ddp_tensor *tensor)
{
    if (tensor->owner != NULL)
        ddpi_gradients_free(ddpi_tensor_memory(tensor->owner, tensor->on_gpu), tensor->gathered);
    ddpi_free(tensor->has);
    ddpi_free(tensor->counts);
    ddpi_free(tensor);
}

static void free_list(struct ddpi_list *list)
{
    ddpi_list_for_each_safe (link, list)
        tensor_free(ddpi_container_of(link, struct ddp_tensor, link));
}

static bool is_owner(const struct ddp_tensors *tensors)
{
    return tensors->owner == getpid();
}

/* The thread has ended, or has never begun, or is the parent's. A child does not destroy what the
 * parent's thread may have waited for: it would wait for that thread, which it does not have. */
static void tensors_free(struct ddp_tensors *tensors)
{
    free_list(&tensors->pending);
    free_list(&tensors->handles);
    for (uint32_t set = 0; tensors->comms != NULL && set < tensors->negotiation.nsets; set++)
        ddp_comm_destroy(tensors->comms[set]);
    ddpi_tensors_leave_gpu(tensors);
    if (tensors->negotiation.nsets > 0)
        ddpi_negotiation_finish(&tensors->negotiation);
    ddpi_response_cache_finish(&tensors->cache);
    ddpi_timeline_close(&tensors->timeline, !is_owner(tensors));
    ddpi_buf_finish(&tensors->list);
    ddpi_name_table_finish(&tensors->names);
    ddpi_free(tensors->comms);
    ddpi_free(tensors->vector);
    ddpi_free(tensors->slots);
    if (is_owner(tensors)) {
        pthread_cond_destroy(&tensors->done);
        pthread_cond_destroy(&tensors->wake);
        pthread_mutex_destroy(&tensors->lock);
    }
    ddpi_free(tensors);
}

/* Signals are the program's business. */
static ddp_status thread_start(struct ddp_tensors *tensors, struct ddp_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&tensors->thread, NULL, ddpi_tensors_loop, tensors);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? DDP_OK : ddpi_error_sys(err, error, "start a thread for tensors");
}

ddp_status ddp_tensors_create(ddp_comm *comm, const struct ddp_tensors_options *options,
                              ddp_tensors **ret_tensors, struct ddp_error *err)
{
    struct ddp_tensors_options own;
    copy_options(options, &own);
    ddp_status status = check_options(options, &own, err);
    if (status != DDP_OK)
        return status;
    struct ddp_tensors *tensors = ddpi_calloc(1, sizeof *tensors);
    if (tensors == NULL)
        return ddpi_error_nomem(err, sizeof *tensors);
    tensors->options = own;
    tensors->rank = ddp_comm_rank(comm);
    tensors->world_size = ddp_comm_world_size(comm);
    tensors->owner = getpid();
    ddpi_list_init(&tensors->pending);
    ddpi_list_init(&tensors->handles);
    ddpi_buf_init(&tensors->list, DDPI_TENSOR_LIST_LIMIT);
    sync_init(tensors);
    if (own.timeline == NULL && tensors->rank == 0)
        own.timeline = ddpi_config_timeline(ddpi_config_getenv);
    status = ddpi_timeline_open(&tensors->timeline, own.timeline, tensors->rank, err);
    tensors->options.timeline = NULL; /* the caller's */
    if (status == DDP_OK)
        status = alloc_parts(tensors, err);
    if (status == DDP_OK)
        status = ddp_comm_split(comm, 0, 0, &tensors->comms[0], err);
    if (status == DDP_OK)
        status = compare_options(tensors, err);
    tensors->comm = tensors->comms != NULL ? tensors->comms[0] : NULL;
    if (status == DDP_OK)
        status = thread_start(tensors, err);
    if (status != DDP_OK)
        tensors_free(tensors);
    else
        *ret_tensors = tensors;
    return status;
}

void ddp_tensors_destroy(ddp_tensors *tensors)
{
    if (tensors == NULL)
        return;
    if (is_owner(tensors)) {
        pthread_mutex_lock(&tensors->lock);
        tensors->closing = true;
        pthread_cond_signal(&tensors->wake);
        pthread_mutex_unlock(&tensors->lock);
        pthread_join(tensors->thread, NULL);
    }
    tensors_free(tensors);
}

/* ---- enqueue ---- */

/* Both with the lock held. */
static ddp_status check_usable(const struct ddp_tensors *tensors, struct ddp_error *err)
{
    if (!is_owner(tensors))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensors belong to the process that has created them");
    if (tensors->failed)
        return ddpi_error_set(err, tensors->failure.status, "%s", tensors->failure.msg);
    return DDP_OK;
}

static ddp_status append_tensor(struct ddp_tensors *tensors, struct ddp_tensor *tensor,
                                struct ddp_error *err)
{
    const struct ddpi_tensor_request *request = &tensor->request;
    if (ddpi_name_table_find(&tensors->names, request->set, request->name) != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\" is still under way: wait for it before it is enqueued "
                              "again",
                              request->name);
    if (!ddpi_name_table_add(&tensors->names, request->set, request->name, tensor))
        return ddpi_error_nomem(err, sizeof *tensor);
    tensor->owner = tensors;
    tensor->enqueued_us = ddpi_monotonic_us();
    ddpi_list_append(&tensors->pending, &tensor->link);
    tensors->woken = true;
    pthread_cond_signal(&tensors->wake);
    return DDP_OK;
}

/* Take back what was appended in this call: the thread has not seen it, as the lock was held. */
static void take_back(struct ddp_tensors *tensors, struct ddp_tensor *tensor)
{
    ddpi_name_table_remove(&tensors->names, tensor->request.set, tensor->request.name);
    ddpi_list_remove(&tensor->link);
    tensor_free(tensor);
}

/* Number @index of @ops. A program that was built against another header passes shorter, or longer,
 * structs. */
static ddp_status copy_op(const struct ddp_tensor_op *ops, uint32_t index,
                          struct ddp_tensor_op *ret, struct ddp_error *err)
{
    const struct ddp_tensor_op *given = (const void *)((const char *)ops + index * ops->size);
    if (given->size < offsetof(struct ddp_tensor_op, uneven))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor: set size to sizeof(struct ddp_tensor_op)");
    *ret = (struct ddp_tensor_op){0};
    memcpy(ret, given, given->size < sizeof *ret ? given->size : sizeof *ret);
    return DDP_OK;
}

static ddp_status enqueue_one(struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                              const char *group, uint32_t group_size, struct ddp_tensor **ret,
                              struct ddp_error *err)
{
    struct ddp_tensor *tensor = ddpi_calloc(1, sizeof *tensor);
    if (tensor == NULL)
        return ddpi_error_nomem(err, sizeof *tensor);
    ddpi_list_init(&tensor->link);
    tensor->send = op->send;
    tensor->recv = op->recv;
    tensor->count = op->count;
    tensor->stream = op->stream;
    ddp_status status = ddpi_tensor_check(tensors, op, &tensor->request, err);
    if (status == DDP_OK)
        status = ddpi_tensor_place(tensors, op, &tensor->on_gpu, err);
    tensor->request.on_gpu = tensor->on_gpu && !op->uneven;
    tensor->request.group_size = group_size;
    if (status == DDP_OK && group_size > 0)
        memcpy(tensor->request.group, group, strlen(group) + 1);
    if (status == DDP_OK)
        status = append_tensor(tensors, tensor, err);
    if (status == DDP_OK)
        *ret = tensor;
    else
        tensor_free(tensor);
    return status;
}

static ddp_status enqueue_all(ddp_tensors *tensors, const struct ddp_tensor_op *ops, uint32_t count,
                              uint32_t group_size, ddp_tensor **ret_tensors, struct ddp_error *err)
{
    uint32_t done = 0;
    pthread_mutex_lock(&tensors->lock);
    ddp_status status = check_usable(tensors, err);
    if (status == DDP_OK && tensors->joining)
        status = ddpi_error_set(err, DDP_E_INVALID,
                                "rank %" PRIu32 " has joined: enqueue after ddp_tensors_join()",
                                tensors->rank);
    while (status == DDP_OK && done < count) {
        struct ddp_tensor_op op;
        status = copy_op(ops, done, &op, err);
        if (status == DDP_OK && op.set != ops->set)
            status =
                ddpi_error_set(err, DDP_E_INVALID, "the tensors of a group are in one process set");
        if (status == DDP_OK)
            status = enqueue_one(tensors, &op, ops->name, group_size, &ret_tensors[done], err);
        done += status == DDP_OK;
    }
    while (status != DDP_OK && done > 0)
        take_back(tensors, ret_tensors[--done]);
    pthread_mutex_unlock(&tensors->lock);
    return status;
}

ddp_status ddp_tensors_enqueue(ddp_tensors *tensors, const struct ddp_tensor_op *op,
                               ddp_tensor **ret_tensor, struct ddp_error *err)
{
    return enqueue_all(tensors, op, 1, 0, ret_tensor, err);
}

ddp_status ddp_tensors_enqueue_group(ddp_tensors *tensors, const struct ddp_tensor_op *ops,
                                     uint32_t count, ddp_tensor **ret_tensors,
                                     struct ddp_error *err)
{
    return enqueue_all(tensors, ops, count, count, ret_tensors, err);
}

/* ---- handles ---- */

void ddpi_tensor_finish(struct ddp_tensor *tensor, ddp_status status,
                        const struct ddp_error *reason)
{
    struct ddp_tensors *tensors = tensor->owner;
    pthread_mutex_lock(&tensors->lock);
    ddpi_name_table_remove(&tensors->names, tensor->request.set, tensor->request.name);
    ddpi_list_remove(&tensor->link);
    if (reason != &tensor->reason)
        tensor->reason = *reason;
    tensor->status = status;
    tensor->done = true;
    bool released = tensor->released;
    if (!released)
        ddpi_list_append(&tensors->handles, &tensor->link);
    pthread_cond_broadcast(&tensors->done);
    pthread_mutex_unlock(&tensors->lock);
    if (released) /* without the lock: the driver may wait before it frees memory */
        tensor_free(tensor);
}

/* With the lock held. */
static ddp_status result_of(const struct ddp_tensor *tensor, struct ddp_error *err)
{
    if (tensor->status == DDP_OK)
        return DDP_OK;
    return ddpi_error_set(err, tensor->status, "%s", tensor->reason.msg);
}

ddp_status ddp_tensors_test(ddp_tensor *tensor, int *ret_done, struct ddp_error *err)
{
    struct ddp_tensors *tensors = tensor->owner;
    pthread_mutex_lock(&tensors->lock);
    *ret_done = tensor->done;
    ddp_status status = tensor->done ? result_of(tensor, err) : DDP_OK;
    pthread_mutex_unlock(&tensors->lock);
    return status;
}

ddp_status ddp_tensors_wait(ddp_tensor *tensor, uint32_t timeout_ms, int *ret_done,
                            struct ddp_error *err)
{
    struct ddp_tensors *tensors = tensor->owner;
    uint64_t until_us = ddpi_monotonic_us() + (uint64_t)timeout_ms * 1000;
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                             .tv_nsec = (long)(until_us % 1000000 * 1000)};
    ddp_status status;
    pthread_mutex_lock(&tensors->lock);
    for (int error = 0; !tensor->done && error == 0;)
        error = timeout_ms == 0 ? pthread_cond_wait(&tensors->done, &tensors->lock)
                                : pthread_cond_timedwait(&tensors->done, &tensors->lock, &until);
    if (ret_done != NULL)
        *ret_done = tensor->done;
    if (tensor->done)
        status = result_of(tensor, err);
    else
        status =
            ddpi_error_set(err, DDP_E_TIMEOUT, "tensor \"%s\" is not done after %" PRIu32 " ms",
                           tensor->request.name, timeout_ms);
    pthread_mutex_unlock(&tensors->lock);
    return status;
}

ddp_status ddp_tensors_gathered(ddp_tensor *tensor, const void **ret_elements,
                                const size_t **ret_counts, struct ddp_error *err)
{
    struct ddp_tensors *tensors = tensor->owner;
    ddp_status status = DDP_OK;
    pthread_mutex_lock(&tensors->lock);
    if (tensor->request.kind != DDPI_TENSOR_UNEVEN_GATHER)
        status = ddpi_error_set(err, DDP_E_INVALID,
                                "tensor \"%s\" is not an all_gather of uneven counts: its result "
                                "is in recv",
                                tensor->request.name);
    else if (!tensor->done)
        status = ddpi_error_set(err, DDP_E_INVALID,
                                "tensor \"%s\" is not done: call ddp_tensors_wait() first",
                                tensor->request.name);
    else
        status = result_of(tensor, err);
    if (status == DDP_OK) {
        *ret_elements = tensor->gathered;
        *ret_counts = tensor->counts;
    }
    pthread_mutex_unlock(&tensors->lock);
    return status;
}

void ddp_tensors_release(ddp_tensor *tensor)
{
    if (tensor == NULL)
        return;
    struct ddp_tensors *tensors = tensor->owner;
    pthread_mutex_lock(&tensors->lock);
    bool done = tensor->done;
    tensor->released = true;
    if (done)
        ddpi_list_remove(&tensor->link);
    pthread_mutex_unlock(&tensors->lock);
    if (done)
        tensor_free(tensor);
}

/* ---- join, sets ---- */

/* Enqueue a request of the library and wait for it. */
static ddp_status run_internal(struct ddp_tensors *tensors, struct ddp_tensor *tensor,
                               uint32_t *ret_number, struct ddp_error *err)
{
    bool joins = tensor->request.kind == DDPI_TENSOR_JOIN;
    pthread_mutex_lock(&tensors->lock);
    ddp_status status = check_usable(tensors, err);
    if (joins)
        tensor->request.on_gpu = tensors->memory != NULL;
    if (status == DDP_OK)
        status = append_tensor(tensors, tensor, err);
    if (status == DDP_OK && joins)
        tensors->joining = true;
    pthread_mutex_unlock(&tensors->lock);
    if (status != DDP_OK) {
        tensor_free(tensor);
        return status;
    }
    status = ddp_tensors_wait(tensor, 0, NULL, err);
    pthread_mutex_lock(&tensors->lock);
    if (joins)
        tensors->joining = false;
    if (status == DDP_OK)
        *ret_number = tensor->number;
    pthread_mutex_unlock(&tensors->lock);
    ddp_tensors_release(tensor);
    return status;
}

static struct ddp_tensor *internal_tensor(enum ddpi_tensor_kind kind, const char *name)
{
    struct ddp_tensor *tensor = ddpi_calloc(1, sizeof *tensor);
    if (tensor == NULL)
        return NULL;
    ddpi_list_init(&tensor->link);
    tensor->request = (struct ddpi_tensor_request){.kind = kind, .set = DDPI_SET_INTERNAL};
    snprintf(tensor->request.name, DDPI_TENSOR_NAME, "%s", name);
    return tensor;
}

ddp_status ddp_tensors_join(ddp_tensors *tensors, uint32_t *ret_last_rank, struct ddp_error *err)
{
    struct ddp_tensor *tensor = internal_tensor(DDPI_TENSOR_JOIN, "ddp_tensors_join()");
    if (tensor == NULL)
        return ddpi_error_nomem(err, sizeof *tensor);
    return run_internal(tensors, tensor, ret_last_rank, err);
}

static ddp_status mark_ranks(const struct ddp_tensors *tensors, const uint32_t *ranks,
                             uint32_t count, uint8_t *has, struct ddp_error *err)
{
    if (count == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "process set: the list of ranks is empty");
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= tensors->world_size)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "process set: rank %d does not exist among %" PRIu32,
                                  (int)ranks[i], tensors->world_size);
        if (has[ranks[i]])
            return ddpi_error_set(err, DDP_E_INVALID, "process set: rank %" PRIu32 " comes twice",
                                  ranks[i]);
        has[ranks[i]] = 1;
    }
    return DDP_OK;
}

ddp_status ddp_tensors_add_set(ddp_tensors *tensors, const uint32_t *ranks, uint32_t count,
                               uint32_t *ret_set, struct ddp_error *err)
{
    struct ddp_tensor *tensor = internal_tensor(DDPI_TENSOR_ADD_SET, "ddp_tensors_add_set()");
    ddp_status status = DDP_OK;
    if (tensor != NULL)
        tensor->has = ddpi_calloc(tensors->world_size, 1);
    if (tensor == NULL || tensor->has == NULL)
        status = ddpi_error_nomem(err, sizeof *tensor + tensors->world_size);
    else
        status = mark_ranks(tensors, ranks, count, tensor->has, err);
    if (status == DDP_OK)
        return run_internal(tensors, tensor, ret_set, err);
    if (tensor != NULL)
        tensor_free(tensor);
    return status;
}

ddp_status ddp_tensors_get_stats(ddp_tensors *tensors, struct ddp_tensors_stats *ret_stats)
{
    size_t room = ret_stats->size;
    if (room < sizeof room)
        return DDP_E_INVALID;
    size_t size = room < sizeof *ret_stats ? room : sizeof *ret_stats;
    pthread_mutex_lock(&tensors->lock);
    memcpy((char *)ret_stats + sizeof room, (const char *)&tensors->stats + sizeof room,
           size - sizeof room);
    pthread_mutex_unlock(&tensors->lock);
    return DDP_OK;
}
