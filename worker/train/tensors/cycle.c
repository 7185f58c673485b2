/*
 * cycle.c - the thread of the object: cycles, until a rank stops or something fails for good.
 *
 *     collect what callers have enqueued: bits of what is remembered, a list of the rest
 *     all ranks: the bits and flags that all have (one all-reduce)
 *     if a rank has a list, all ranks: the lists of all (two all-gathers), negotiate
 *     carry out what all want, fused; remember it
 *
 * The vector: a word of flags, the bits of what this rank wants, and the bits of what it does not
 * object to. It owns no memory of its own.
 */
#include "tensors.h"

#include "clock.h"
#include "debug.h"
#include "error.h"
#include "mem.h"
#include "tensor_fusion.h"

#include <inttypes.h>
#include <string.h>

/* Flags that are 1 in the end if all ranks set them. */
enum { HAS_NO_LIST = 1, WANTS_NOTHING = 2, HAS_TOLD_ALL = 4 };

/* ---- what this rank wants ---- */

static uint64_t *bits_wanted(const struct ddp_tensors *tensors)
{
    return tensors->vector + 1;
}

static uint64_t *bits_valid(const struct ddp_tensors *tensors)
{
    return tensors->vector + 1 + ddpi_response_cache_words(&tensors->cache);
}

static void set_bit(uint64_t *bits, uint32_t number)
{
    bits[number / 64] |= (uint64_t)1 << number % 64;
}

static void clear_bit(uint64_t *bits, uint32_t number)
{
    bits[number / 64] &= ~((uint64_t)1 << number % 64);
}

static bool has_bit(const uint64_t *bits, uint32_t number)
{
    return (bits[number / 64] >> number % 64 & 1) != 0;
}

/* Have what is remembered at @slot negotiated, from the next cycle on. So not all is told in this
 * one. */
static void object_to(struct ddp_tensors *tensors, uint32_t slot)
{
    clear_bit(bits_valid(tensors), slot);
    tensors->vector[0] &= ~(uint64_t)HAS_TOLD_ALL;
}

/* Lists show which ranks do not want what waits for long; and they alone show that this rank still
 * wants something when it joins. */
static bool needs_list(const struct ddp_tensors *tensors, uint64_t waited_ms)
{
    return tensors->joining || waited_ms >= tensors->options.stall_warning_ms;
}

/* A bit, if the tensor is remembered, else its request. Returns false if the list has no room in
 * this cycle. */
static bool announce(struct ddp_tensors *tensors, struct ddp_tensor *tensor)
{
    uint32_t slot;
    uint64_t waited_ms = ddpi_monotonic_ms() - tensor->enqueued_us / 1000;
    enum ddpi_cache_answer answer =
        ddpi_response_cache_find(&tensors->cache, &tensor->request, &slot);
    if (answer == DDPI_CACHE_HIT)
        set_bit(bits_wanted(tensors), slot);
    if (answer == DDPI_CACHE_DIFFERS ||
        (answer == DDPI_CACHE_HIT && needs_list(tensors, waited_ms)))
        object_to(tensors, slot);
    if (answer != DDPI_CACHE_MISS)
        return true;
    if (ddpi_response_cache_find_group(&tensors->cache, &tensor->request, &slot))
        object_to(tensors, slot); /* its other members would be bits, of which one is missing */
    struct ddpi_tensor_request request = tensor->request;
    request.waited_ms = waited_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)waited_ms;
    tensor->announced = ddpi_tensor_request_put(&tensors->list, &request);
    return tensor->announced;
}

/* Announce what this rank wants. When all ranks have joined none gives zeros any more, so a join
 * waits until all else that its rank wants is in a list. Returns false if the list has no room in
 * this cycle. */
static bool announce_all(struct ddp_tensors *tensors)
{
    struct ddp_tensor *join = NULL;
    bool room = true, listed = true;
    ddpi_list_for_each (link, &tensors->pending) {
        struct ddp_tensor *tensor = ddpi_container_of(link, struct ddp_tensor, link);
        if (tensor->announced)
            continue;
        if (tensor->request.kind == DDPI_TENSOR_JOIN) {
            join = tensor;
            continue;
        }
        room = announce(tensors, tensor) && room;
        listed = listed && tensor->announced;
    }
    if (join != NULL && listed)
        room = announce(tensors, join);
    return room;
}

/* Tell all ranks to stop, and why: a tensor that has waited for too long, or nothing. */
static void announce_stop(struct ddp_tensors *tensors)
{
    struct ddpi_tensor_request stop = {
        .kind = DDPI_TENSOR_STOP, .set = DDPI_SET_INTERNAL, .name = "stop"};
    if (tensors->stalled != NULL) {
        const struct ddpi_tensor_request *request = &tensors->stalled->response.request;
        memcpy(stop.name, request->name, sizeof stop.name);
        stop.root = request->set;
        stop.count = ddpi_monotonic_ms() - tensors->stalled->since_ms;
        tensors->stalled = NULL; /* it may be freed in this cycle */
    }
    tensors->stop_sent = ddpi_tensor_request_put(&tensors->list, &stop);
}

static ddp_status collect(struct ddp_tensors *tensors, struct ddp_error *err)
{
    size_t words = ddpi_response_cache_words(&tensors->cache);
    memset(bits_wanted(tensors), 0, words * sizeof(uint64_t));
    memset(bits_valid(tensors), 0xff, words * sizeof(uint64_t));
    ddpi_buf_truncate(&tensors->list, 0);
    pthread_mutex_lock(&tensors->lock);
    tensors->woken = false;
    tensors->vector[0] = HAS_TOLD_ALL;
    if (ddpi_list_empty(&tensors->pending))
        tensors->vector[0] |= WANTS_NOTHING;
    bool room = announce_all(tensors);
    bool stops = tensors->closing || tensors->stalled != NULL;
    if (stops && !tensors->stop_sent)
        announce_stop(tensors);
    room = room && (!stops || tensors->stop_sent);
    if (!room)
        tensors->vector[0] &= ~(uint64_t)HAS_TOLD_ALL;
    pthread_mutex_unlock(&tensors->lock);
    if (ddpi_buf_len(&tensors->list) > 0)
        return DDP_OK;
    tensors->vector[0] |= HAS_NO_LIST;
    return room ? DDP_OK /* else not even one fits */
                : ddpi_error_nomem(err, sizeof(struct ddpi_tensor_request));
}

/* Ranks that are not in the set of what is remembered, or have joined, let the others decide; but
 * not every kind goes on without ranks that have joined. */
static void stand_aside(struct ddp_tensors *tensors)
{
    const struct ddpi_negotiation *negotiation = &tensors->negotiation;
    for (uint32_t i = 0; i < tensors->cache.nslots; i++) {
        const struct ddpi_tensor_request *request = &tensors->cache.slots[i].request;
        if (!tensors->cache.slots[i].used || has_bit(bits_wanted(tensors), i))
            continue;
        if (!negotiation->sets[request->set].has[tensors->rank])
            set_bit(bits_wanted(tensors), i);
        else if (!negotiation->joined[tensors->rank])
            continue;
        else if (ddpi_negotiation_takes_part(negotiation, tensors->rank, request))
            set_bit(bits_wanted(tensors), i);
        else
            object_to(tensors, i);
    }
}

/* ---- what all ranks want ---- */

/* A set whose ranks have all joined wants nothing, although they all stand aside. */
static bool somebody_wants(const struct ddpi_negotiation *negotiation,
                           const struct ddpi_tensor_request *request)
{
    const struct ddpi_process_set *set = &negotiation->sets[request->set];
    for (uint32_t rank = 0; rank < negotiation->world_size; rank++)
        if (set->has[rank] && !negotiation->joined[rank])
            return true;
    return false;
}

/* Forget what a rank objects to. All ranks do so in the same order. */
static void forget_invalid(struct ddp_tensors *tensors)
{
    struct ddpi_response_cache *cache = &tensors->cache;
    for (uint32_t i = 0; i < cache->nslots; i++) {
        if (!cache->slots[i].used)
            continue;
        if (!somebody_wants(&tensors->negotiation, &cache->slots[i].request))
            clear_bit(bits_wanted(tensors), i);
        if (!has_bit(bits_valid(tensors), i))
            ddpi_response_cache_evict(cache, i);
    }
}

/* Give the lists of all ranks to the negotiation. */
static ddp_status take_lists(struct ddp_tensors *tensors, const size_t *lens, const uint8_t *lists,
                             struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t rank = 0; status == DDP_OK && rank < tensors->world_size; rank++) {
        status = ddpi_negotiation_take(&tensors->negotiation, rank, lists, lens[rank],
                                       ddpi_monotonic_ms(), err);
        lists += lens[rank];
    }
    if (status == DDP_OK)
        ddpi_negotiation_settle(&tensors->negotiation);
    return status;
}

static ddp_status gather_lists(struct ddp_tensors *tensors, size_t *lens, struct ddp_error *err)
{
    size_t total = 0;
    for (uint32_t rank = 0; rank < tensors->world_size; rank++) {
        if (lens[rank] > DDPI_TENSOR_LIST_LIMIT)
            return ddpi_error_set(err, DDP_E_PROTOCOL,
                                  "rank %" PRIu32 " wants to send a list of %zu bytes", rank,
                                  lens[rank]);
        total += lens[rank];
    }
    uint8_t *lists = ddpi_calloc(total + 1, 1);
    if (lists == NULL)
        return ddpi_error_nomem(err, total);
    struct ddp_operation gather = {.size = sizeof gather,
                                   .kind = DDP_KIND_ALL_GATHER,
                                   .send = ddpi_buf_head(&tensors->list),
                                   .recv = lists,
                                   .count = ddpi_buf_len(&tensors->list),
                                   .dtype = DDP_BYTE,
                                   .uneven = 1,
                                   .recv_counts = lens};
    ddp_status status = ddp_run(tensors->comms[0], &gather, err);
    if (status == DDP_OK)
        status = take_lists(tensors, lens, lists, err);
    ddpi_free(lists);
    return status;
}

static ddp_status negotiate(struct ddp_tensors *tensors, struct ddp_error *err)
{
    uint64_t own = ddpi_buf_len(&tensors->list);
    size_t *lens = ddpi_calloc(tensors->world_size, sizeof *lens);
    uint64_t *wire = ddpi_calloc(tensors->world_size, sizeof *wire);
    ddp_status status;
    if (lens == NULL || wire == NULL)
        status = ddpi_error_nomem(err, tensors->world_size * sizeof *wire);
    else
        status = ddp_all_gather(tensors->comms[0], &own, wire, 1, DDP_UINT64, NULL, err);
    for (uint32_t rank = 0; status == DDP_OK && rank < tensors->world_size; rank++)
        lens[rank] = wire[rank];
    if (status == DDP_OK)
        status = gather_lists(tensors, lens, err);
    ddpi_free(lens);
    ddpi_free(wire);
    return status;
}

/* ---- carry it out ---- */

/* What is ready in a cycle: first what was remembered, then what was negotiated. */
struct ready {
    const struct ddpi_tensor_response **responses;
    const struct ddpi_tensor_response **batch;
    size_t *order;
    size_t *ends;
    bool *taken;
    struct ddpi_tensor_response *hits;
    size_t count;
};

static void ready_finish(struct ready *ready)
{
    ddpi_free(ready->hits);
    ddpi_free(ready->responses);
    ddpi_free(ready->batch);
    ddpi_free(ready->order);
    ddpi_free(ready->ends);
    ddpi_free(ready->taken);
}

static bool ready_init(struct ready *ready, size_t nhits, size_t room)
{
    *ready = (struct ready){.responses = ddpi_calloc(room, sizeof *ready->responses),
                            .batch = ddpi_calloc(room, sizeof *ready->batch),
                            .order = ddpi_calloc(room, sizeof *ready->order),
                            .ends = ddpi_calloc(room, sizeof *ready->ends),
                            .taken = ddpi_calloc(room, sizeof *ready->taken),
                            .hits = ddpi_calloc(nhits + 1, sizeof *ready->hits)};
    return ready->responses != NULL && ready->batch != NULL && ready->order != NULL &&
           ready->ends != NULL && ready->taken != NULL && ready->hits != NULL;
}

static ddp_status carry_out_ready(struct ddp_tensors *tensors, struct ready *ready,
                                  struct ddp_error *err)
{
    size_t threshold = tensors->options.no_fusion ? 0 : tensors->options.fusion_bytes, at = 0;
    size_t batches = ddpi_tensor_fuse(ready->responses, ready->count, threshold, ready->order,
                                      ready->ends, ready->taken);
    ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < batches; i++) {
        size_t count = ready->ends[i] - at;
        for (size_t k = 0; k < count; k++)
            ready->batch[k] = ready->responses[ready->order[at + k]];
        status = ddpi_tensors_carry_out(tensors, ready->batch, count, err);
        at = ready->ends[i];
    }
    return status;
}

/* Remember what has been negotiated. */
static ddp_status remember(struct ddp_tensors *tensors, const struct ready *ready,
                           struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < ready->count; i++) {
        const struct ddpi_tensor_response *response = ready->responses[i];
        if (!response->failed && !response->from_cache &&
            response->request.set != DDPI_SET_INTERNAL)
            status = ddpi_response_cache_put(&tensors->cache, &response->request, err);
    }
    return status;
}

/* Carry out @nhits numbers of the cache, and the responses of the negotiation. */
static ddp_status do_ready(struct ddp_tensors *tensors, uint32_t nhits, struct ddp_error *err)
{
    struct ready ready;
    struct ddpi_list *negotiated = &tensors->negotiation.ready;
    size_t room = nhits;
    ddpi_list_for_each (link, negotiated)
        room++;
    if (room == 0)
        return DDP_OK;
    ddp_status status = DDP_OK;
    if (!ready_init(&ready, nhits, room)) {
        status = ddpi_error_nomem(err, room * sizeof *ready.responses);
    } else {
        for (uint32_t i = 0; i < nhits; i++) {
            ready.hits[i].request = tensors->cache.slots[tensors->slots[i]].request;
            ready.hits[i].from_cache = true;
            ready.responses[ready.count++] = &ready.hits[i];
        }
        ddpi_list_for_each (link, negotiated)
            ready.responses[ready.count++] =
                &ddpi_container_of(link, struct ddpi_wanted_tensor, link)->response;
        status = carry_out_ready(tensors, &ready, err);
        if (status == DDP_OK)
            status = remember(tensors, &ready, err);
    }
    for (struct ddpi_wanted_tensor *wanted;
         (wanted = ddpi_negotiation_next(&tensors->negotiation)) != NULL;)
        ddpi_free(wanted);
    ready_finish(&ready);
    return status;
}

/* ---- stalls ---- */

static void report_stall(struct ddp_tensors *tensors, const struct ddpi_wanted_tensor *wanted,
                         uint64_t waited_ms)
{
    char missing[DDPI_RANKS_TEXT];
    ddpi_negotiation_missing(&tensors->negotiation, wanted, missing);
    struct ddp_stalled_tensor stalled = {.size = sizeof stalled,
                                         .name = wanted->response.request.name,
                                         .set = wanted->response.request.set,
                                         .waited_ms = waited_ms,
                                         .missing = missing};
    if (tensors->options.on_stall != NULL)
        tensors->options.on_stall(tensors->options.ctx, &stalled);
    ddpi_debug(tensors->rank,
               "tensor \"%s\" has waited for %" PRIu64 " ms for other ranks to enqueue it; "
               "missing: %s",
               stalled.name, waited_ms, missing);
}

static void check_stalls(struct ddp_tensors *tensors)
{
    uint64_t now = ddpi_monotonic_ms();
    ddpi_list_for_each (link, &tensors->negotiation.wanted) {
        struct ddpi_wanted_tensor *wanted =
            ddpi_container_of(link, struct ddpi_wanted_tensor, link);
        uint64_t waited_ms = now - wanted->since_ms;
        if (wanted->response.request.set == DDPI_SET_INTERNAL)
            continue;
        if (!wanted->warned && waited_ms >= tensors->options.stall_warning_ms) {
            wanted->warned = true;
            report_stall(tensors, wanted, waited_ms);
        }
        if (tensors->options.stall_shutdown_ms > 0 && tensors->stalled == NULL &&
            waited_ms >= tensors->options.stall_shutdown_ms)
            tensors->stalled = wanted;
    }
}

/* ---- the end ---- */

/* Why all ranks stop. */
static ddp_status describe_stop(struct ddp_tensors *tensors, struct ddp_error *err)
{
    const struct ddpi_negotiation *negotiation = &tensors->negotiation;
    const struct ddpi_tensor_request *stop = &negotiation->stop;
    char missing[DDPI_RANKS_TEXT] = "none any more";
    if (stop->count == 0)
        return ddpi_error_set(err, DDP_E_CLOSED,
                              "rank %" PRIu32 " has called ddp_tensors_destroy(): no tensor can be "
                              "carried out any more",
                              negotiation->stopped_by);
    const struct ddpi_wanted_tensor *wanted =
        ddpi_name_table_find(&negotiation->names, stop->root, stop->name);
    if (wanted != NULL)
        ddpi_negotiation_missing(negotiation, wanted, missing);
    return ddpi_error_set(err, DDP_E_TIMEOUT,
                          "tensor \"%s\" has waited for %" PRIu64 " ms for other ranks to enqueue "
                          "it; missing: %s",
                          stop->name, stop->count, missing);
}

/* One cycle. */
static ddp_status run_cycle(struct ddp_tensors *tensors, struct ddp_error *err)
{
    ddp_status status = collect(tensors, err);
    if (status != DDP_OK)
        return status;
    stand_aside(tensors);
    size_t words = 1 + 2 * ddpi_response_cache_words(&tensors->cache);
    status = ddp_all_reduce(tensors->comms[0], tensors->vector, tensors->vector, words, DDP_UINT64,
                            DDP_BIT_AND, NULL, err);
    if (status != DDP_OK)
        return status;
    bool lists = (tensors->vector[0] & HAS_NO_LIST) == 0;
    bool told_all = (tensors->vector[0] & HAS_TOLD_ALL) != 0;
    pthread_mutex_lock(&tensors->lock);
    tensors->quiet = tensors->vector[0] == (HAS_NO_LIST | WANTS_NOTHING | HAS_TOLD_ALL);
    tensors->stats.cycles++;
    tensors->stats.negotiations += lists;
    pthread_mutex_unlock(&tensors->lock);
    forget_invalid(tensors);
    uint32_t nhits =
        ddpi_response_cache_hits(&tensors->cache, bits_wanted(tensors), tensors->slots);
    if (lists)
        status = negotiate(tensors, err);
    if (status == DDP_OK)
        status = do_ready(tensors, nhits, err);
    if (status == DDP_OK && tensors->negotiation.stopped && told_all)
        return describe_stop(tensors, err);
    if (status == DDP_OK)
        check_stalls(tensors);
    return status;
}

/* Sleep until the next cycle; returns what the pause after it is. */
static uint32_t pause_until_next(struct ddp_tensors *tensors, uint64_t began_us, uint32_t pause_ms)
{
    pthread_mutex_lock(&tensors->lock);
    pause_ms = tensors->quiet ? pause_ms * 2 : tensors->options.cycle_ms;
    if (pause_ms > DDPI_TENSORS_IDLE_MS)
        pause_ms = tensors->options.cycle_ms > DDPI_TENSORS_IDLE_MS ? tensors->options.cycle_ms
                                                                    : DDPI_TENSORS_IDLE_MS;
    uint64_t until_us = began_us + (uint64_t)pause_ms * 1000;
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                             .tv_nsec = (long)(until_us % 1000000 * 1000)};
    while (!tensors->closing && !(tensors->quiet && tensors->woken) &&
           ddpi_monotonic_us() < until_us)
        if (pthread_cond_timedwait(&tensors->wake, &tensors->lock, &until) != 0)
            break;
    pthread_mutex_unlock(&tensors->lock);
    return pause_ms;
}

/* All tensors that are not done, and all later calls, get @failure. */
static void fail_all(struct ddp_tensors *tensors, const struct ddp_error *failure)
{
    pthread_mutex_lock(&tensors->lock);
    tensors->failed = true;
    tensors->failure = *failure;
    pthread_mutex_unlock(&tensors->lock);
    for (;;) {
        pthread_mutex_lock(&tensors->lock);
        struct ddpi_list *link = tensors->pending.next;
        bool empty = ddpi_list_empty(&tensors->pending);
        pthread_mutex_unlock(&tensors->lock);
        if (empty)
            return;
        ddpi_tensor_finish(ddpi_container_of(link, struct ddp_tensor, link), failure->status,
                           failure);
    }
}

/* After a failure of one rank no other one may wait for it. */
static void leave(struct ddp_tensors *tensors, bool agreed)
{
    for (uint32_t set = 0; set < tensors->negotiation.nsets; set++) {
        struct ddp_error err;
        if (tensors->comms[set] == NULL)
            continue;
        if (!agreed || ddp_comm_finalize(tensors->comms[set], 0, &err) != DDP_OK)
            ddp_comm_abort(tensors->comms[set]);
    }
}

void *ddpi_tensors_loop(void *arg)
{
    struct ddp_tensors *tensors = arg;
    struct ddp_error err = {0};
    uint32_t pause_ms = tensors->options.cycle_ms;
    uint64_t began_us = ddpi_monotonic_us();
    while (run_cycle(tensors, &err) == DDP_OK) {
        pause_ms = pause_until_next(tensors, began_us, pause_ms);
        began_us = ddpi_monotonic_us();
    }
    fail_all(tensors, &err);
    leave(tensors, tensors->negotiation.stopped);
    return NULL;
}
