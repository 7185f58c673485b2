/*
 * random_program.c - derives programs and what they must compute. Owns the buffers of calls.
 */
#include "random_program.h"

#include <stdlib.h>
#include <string.h>

enum { FILLING = 0x5a };

/* splitmix64 */
uint64_t random_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

uint64_t random_below(uint64_t *state, uint64_t bound)
{
    return random_draw(state) % bound;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t state = a ^ (b + 1) * 0xd6e8feb86659fd93U;
    return random_draw(&state);
}

/* ---- programs ---- */

static const ddp_dtype dtypes[] = {DDP_INT32,   DDP_INT64, DDP_FLOAT32,
                                   DDP_FLOAT64, DDP_UINT8, DDP_INT16};
static const ddp_reduce_op ops[] = {DDP_SUM,     DDP_MIN,    DDP_MAX,    DDP_PRODUCT,
                                    DDP_BIT_AND, DDP_BIT_OR, DDP_BIT_XOR};
static const ddp_kind kinds[] = {DDP_KIND_BARRIER,    DDP_KIND_BROADCAST, DDP_KIND_ALL_REDUCE,
                                 DDP_KIND_ALL_REDUCE, DDP_KIND_REDUCE,    DDP_KIND_ALL_GATHER,
                                 DDP_KIND_GATHER,     DDP_KIND_SCATTER,   DDP_KIND_REDUCE_SCATTER,
                                 DDP_KIND_ALL_TO_ALL, DDP_KIND_SEND,      DDP_KIND_SEND};
#define DRAW_OF(state, table) table[random_below(state, sizeof(table) / sizeof *(table))]

static bool has_parts(ddp_kind kind)
{
    return kind == DDP_KIND_ALL_GATHER || kind == DDP_KIND_REDUCE_SCATTER ||
           kind == DDP_KIND_GATHER || kind == DDP_KIND_SCATTER || kind == DDP_KIND_ALL_TO_ALL;
}

/* Nothing, one, a few, some hundred, or up to about 100 KiB. */
static size_t draw_count(uint64_t *state, ddp_dtype dtype)
{
    static const size_t bounds[] = {1, 10, 10, 700, 700, 700};
    uint64_t turn = random_below(state, 8);
    if (turn == 7)
        return random_below(state, 100 * 1024 / ddp_dtype_size(dtype));
    return turn == 6 ? 1 : random_below(state, bounds[turn]);
}

static void derive_step(struct step *step, uint64_t *state, uint32_t index)
{
    step->seed = random_draw(state);
    step->kind = DRAW_OF(state, kinds);
    step->dtype = DRAW_OF(state, dtypes);
    step->op = DRAW_OF(state, ops);
    if ((step->dtype == DDP_FLOAT32 || step->dtype == DDP_FLOAT64) && step->op >= DDP_BIT_AND)
        step->op = DDP_SUM;
    step->count = draw_count(state, step->dtype);
    step->root = (uint32_t)random_below(state, PROGRAM_RANKS);
    step->to = (uint32_t)random_below(state, PROGRAM_RANKS);
    step->in_place = random_below(state, 3) == 0;
    step->uneven = has_parts(step->kind) && random_below(state, 2) == 0;
    step->child = random_below(state, 3) == 0;
    step->any = random_below(state, 4) == 0;
    /* A receive from any rank must not take what another step sends. */
    step->tag = step->any ? 1000 + index : (uint32_t)random_below(state, 3);
}

void program_derive(struct program *program, uint64_t seed, uint32_t nranks)
{
    uint64_t state = mix(seed, nranks);
    *program = (struct program){.seed = seed, .nranks = nranks};
    program->nlanes = 1 + (random_below(&state, 4) == 0);
    program->progress = random_below(&state, 4) == 0;
    uint64_t ncolors = 1 + random_below(&state, nranks);
    for (uint32_t rank = 0; rank < nranks; rank++) {
        program->colors[rank] = (int32_t)random_below(&state, ncolors);
        program->keys[rank] = (int32_t)random_below(&state, 3);
    }
    for (uint32_t lane = 0; lane < program->nlanes; lane++) {
        program->nsteps[lane] = 1 + (uint32_t)random_below(&state, PROGRAM_STEPS);
        for (uint32_t i = 0; i < program->nsteps[lane]; i++)
            derive_step(&program->steps[lane][i], &state, i);
    }
}

struct place program_place(const struct program *program, uint32_t rank, bool child)
{
    struct place place = {.group = (uint64_t)program->colors[rank] + 1};
    if (!child)
        return (struct place){.rank = rank, .nranks = program->nranks};
    for (uint32_t other = 0; other < program->nranks; other++) {
        if (program->colors[other] != program->colors[rank])
            continue;
        place.nranks++;
        place.rank += program->keys[other] < program->keys[rank] ||
                      (program->keys[other] == program->keys[rank] && other < rank);
    }
    return place;
}

/* ---- elements ---- */

/* Element @i of what rank @from has for rank @to: small, so that sums are exact in every type. */
static int64_t input_of(const struct step *step, struct place place, uint32_t from, uint32_t to,
                        size_t i)
{
    uint64_t drawn = mix(step->seed + place.group, (uint64_t)from << 40 ^ (uint64_t)to << 32 ^ i);
    if (step->op == DDP_PRODUCT)
        return 1 + (int64_t)(drawn >> 60) % 3;
    return (int64_t)(drawn >> 60) - (step->dtype == DDP_UINT8 ? 0 : 8);
}

static int64_t combine(ddp_reduce_op op, int64_t a, int64_t b)
{
    switch (op) {
    case DDP_MIN:
        return a < b ? a : b;
    case DDP_MAX:
        return a > b ? a : b;
    case DDP_PRODUCT:
        return a * b;
    case DDP_BIT_AND:
        return a & b;
    case DDP_BIT_OR:
        return a | b;
    case DDP_BIT_XOR:
        return a ^ b;
    default:
        return a + b;
    }
}

/* Element @i of the result that is for rank @to; 3 to the power of 8 fits into 16 bits. */
static int64_t result_of(const struct step *step, struct place place, uint32_t to, size_t i)
{
    int64_t result = input_of(step, place, 0, to, i);
    for (uint32_t from = 1; from < place.nranks; from++)
        result = combine(step->op, result, input_of(step, place, from, to, i));
    return result;
}

#define PUT_AS(ctype)                                        \
    do {                                                     \
        ctype typed = (ctype)value;                          \
        memcpy(at + i * sizeof typed, &typed, sizeof typed); \
    } while (0)

static void put(unsigned char *at, ddp_dtype dtype, size_t i, int64_t value)
{
    switch (dtype) {
    case DDP_INT32:
        PUT_AS(int32_t);
        break;
    case DDP_INT64:
        PUT_AS(int64_t);
        break;
    case DDP_FLOAT32:
        PUT_AS(float);
        break;
    case DDP_FLOAT64:
        PUT_AS(double);
        break;
    case DDP_INT16:
        PUT_AS(int16_t);
        break;
    default:
        PUT_AS(uint8_t);
    }
}

static void put_inputs(unsigned char *buffer, size_t offset, const struct step *step,
                       struct place place, uint32_t from, uint32_t to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(buffer, step->dtype, offset + i, input_of(step, place, from, to, i));
}

static void put_results(unsigned char *buffer, size_t offset, const struct step *step,
                        struct place place, uint32_t to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(buffer, step->dtype, offset + i, result_of(step, place, to, i));
}

/* ---- calls ---- */

/* How many elements rank @from has for rank @to. */
static size_t part_count(const struct step *step, uint32_t from, uint32_t to)
{
    if (!step->uneven)
        return step->count;
    bool by_to = step->kind == DDP_KIND_REDUCE_SCATTER || step->kind == DDP_KIND_SCATTER;
    bool by_from = step->kind == DDP_KIND_ALL_GATHER || step->kind == DDP_KIND_GATHER;
    uint64_t drawn = mix(step->seed ^ 77, (by_to ? 0 : from) * 64U + (by_from ? 0 : to));
    return drawn % 5 == 0 ? 0 : (drawn >> 8) % (2 * step->count + 1);
}

/* Where parts begin: one after the other, or with gaps and in reverse order, as each rank likes.
 * Returns the length. */
static size_t lay_out(const struct step *step, struct place place, const size_t *counts,
                      size_t *offsets, bool *ret_spread)
{
    uint64_t drawn = mix(step->seed ^ 99, place.rank);
    size_t at = 0;
    *ret_spread = step->uneven && drawn % 2 == 0;
    for (uint32_t i = 0; i < place.nranks; i++) {
        uint32_t turn = *ret_spread ? place.nranks - 1 - i : i;
        offsets[turn] = at;
        at += counts[turn] + (*ret_spread ? (drawn >> 8) % 4 : 0);
    }
    return at;
}

static unsigned char *make_buffer(size_t len)
{
    unsigned char *buffer = malloc(len);
    if (buffer == NULL)
        abort();
    memset(buffer, FILLING, len);
    return buffer;
}

static void make_send(struct call *call, const struct step *step, size_t count)
{
    call->send_len = count * ddp_dtype_size(step->dtype) + PROGRAM_GUARD;
    call->send = make_buffer(call->send_len);
    call->operation.send = call->send;
}

static void make_recv(struct call *call, const struct step *step, size_t count)
{
    call->recv_len = count * ddp_dtype_size(step->dtype) + PROGRAM_GUARD;
    call->recv = make_buffer(call->recv_len);
    call->operation.recv = call->recv;
}

/* What @recv, or @send in place, becomes: as it is now, until results are put into it. */
static void copy_wants(struct call *call)
{
    if (call->send != NULL) {
        call->sent = make_buffer(call->send_len);
        memcpy(call->sent, call->send, call->send_len);
    }
    if (call->recv != NULL) {
        call->want_len = call->recv_len;
        call->want = make_buffer(call->recv_len);
        memcpy(call->want, call->recv, call->recv_len);
    }
}

static void prepare_message(struct call *call, const struct step *step, struct place place,
                            bool receiving)
{
    uint32_t from = step->root % place.nranks, to = step->to % place.nranks;
    call->operation.kind = receiving ? DDP_KIND_RECV : DDP_KIND_SEND;
    call->operation.peer = receiving ? from : to;
    call->operation.tag = step->tag;
    call->source = from;
    if (receiving) {
        make_recv(call, step, step->count);
        copy_wants(call);
        put_inputs(call->want, 0, step, place, from, to, step->count);
        call->source = UINT32_MAX;
        call->operation.source = &call->source;
        if (step->any)
            call->operation.peer = DDP_ANY_RANK;
        return;
    }
    make_send(call, step, step->count);
    put_inputs(call->send, 0, step, place, from, to, step->count);
    copy_wants(call);
}

static void prepare_broadcast(struct call *call, const struct step *step, struct place place)
{
    make_recv(call, step, step->count);
    if (place.rank == call->operation.peer)
        put_inputs(call->recv, 0, step, place, place.rank, 0, step->count);
    copy_wants(call);
    put_inputs(call->want, 0, step, place, call->operation.peer, 0, step->count);
}

static void prepare_reduction(struct call *call, const struct step *step, struct place place)
{
    bool gets = step->kind == DDP_KIND_ALL_REDUCE || place.rank == call->operation.peer;
    if (gets)
        make_recv(call, step, step->count);
    if (gets && step->in_place)
        call->operation.send = call->recv;
    else
        make_send(call, step, step->count);
    put_inputs(gets && step->in_place ? call->recv : call->send, 0, step, place, place.rank, 0,
               step->count);
    copy_wants(call);
    if (gets)
        put_results(call->want, 0, step, place, 0, step->count);
}

/* all_gather and gather: one part goes out, all come in. */
static void prepare_gathering(struct call *call, const struct step *step, struct place place)
{
    bool gets = step->kind == DDP_KIND_ALL_GATHER || place.rank == call->operation.peer;
    bool spread;
    size_t own = part_count(step, place.rank, 0);
    for (uint32_t peer = 0; peer < place.nranks; peer++)
        call->recv_counts[peer] = part_count(step, peer, 0);
    size_t all = lay_out(step, place, call->recv_counts, call->recv_offsets, &spread);
    call->operation.count = own;
    if (gets)
        make_recv(call, step, all);
    if (gets && step->uneven)
        call->operation.recv_counts = call->recv_counts;
    if (gets && spread)
        call->operation.recv_offsets = call->recv_offsets;
    if (gets && step->in_place) {
        size_t at = call->recv_offsets[place.rank];
        call->operation.send = call->recv + at * ddp_dtype_size(step->dtype);
        put_inputs(call->recv, at, step, place, place.rank, 0, own);
    } else {
        make_send(call, step, own);
        put_inputs(call->send, 0, step, place, place.rank, 0, own);
    }
    copy_wants(call);
    for (uint32_t peer = 0; peer < place.nranks && gets; peer++)
        put_inputs(call->want, call->recv_offsets[peer], step, place, peer, 0,
                   call->recv_counts[peer]);
}

/* reduce_scatter and scatter: all parts go out, one comes in. */
static void prepare_scattering(struct call *call, const struct step *step, struct place place)
{
    bool reduces = step->kind == DDP_KIND_REDUCE_SCATTER, spread;
    bool has = reduces || place.rank == call->operation.peer;
    size_t own = part_count(step, 0, place.rank), at = 0;
    for (uint32_t peer = 0; peer < place.nranks; peer++)
        call->send_counts[peer] = part_count(step, 0, peer);
    size_t all = lay_out(step, place, call->send_counts, call->send_offsets, &spread);
    call->operation.count = own;
    if (has)
        make_send(call, step, all);
    for (uint32_t peer = 0; peer < place.nranks && has; peer++)
        put_inputs(call->send, call->send_offsets[peer], step, place, place.rank, peer,
                   call->send_counts[peer]);
    if (has && step->uneven)
        call->operation.send_counts = call->send_counts;
    if (has && spread)
        call->operation.send_offsets = call->send_offsets;
    bool inside = has && step->in_place;
    if (inside) {
        at = call->send_offsets[place.rank];
        call->operation.recv = call->send + at * ddp_dtype_size(step->dtype);
    } else {
        make_recv(call, step, own);
    }
    copy_wants(call);
    unsigned char *want = inside ? call->sent : call->want;
    if (reduces)
        put_results(want, at, step, place, place.rank, own);
    else
        put_inputs(want, at, step, place, call->operation.peer, place.rank, own);
}

static void prepare_all_to_all(struct call *call, const struct step *step, struct place place)
{
    bool spread;
    for (uint32_t peer = 0; peer < place.nranks; peer++) {
        call->send_counts[peer] = part_count(step, place.rank, peer);
        call->recv_counts[peer] = part_count(step, peer, place.rank);
    }
    make_send(call, step, lay_out(step, place, call->send_counts, call->send_offsets, &spread));
    make_recv(call, step, lay_out(step, place, call->recv_counts, call->recv_offsets, &spread));
    for (uint32_t peer = 0; peer < place.nranks; peer++)
        put_inputs(call->send, call->send_offsets[peer], step, place, place.rank, peer,
                   call->send_counts[peer]);
    copy_wants(call);
    for (uint32_t peer = 0; peer < place.nranks; peer++)
        put_inputs(call->want, call->recv_offsets[peer], step, place, peer, place.rank,
                   call->recv_counts[peer]);
    if (step->uneven) {
        call->operation.send_counts = call->send_counts;
        call->operation.recv_counts = call->recv_counts;
    }
    if (spread) {
        call->operation.send_offsets = call->send_offsets;
        call->operation.recv_offsets = call->recv_offsets;
    }
}

bool call_prepare(struct call *call, const struct step *step, struct place place, bool receiving)
{
    *call = (struct call){.operation = {.size = sizeof call->operation,
                                        .kind = step->kind,
                                        .count = step->count,
                                        .dtype = step->dtype,
                                        .op = step->op,
                                        .peer = step->root % place.nranks,
                                        .uneven = step->uneven}};
    if (step->kind == DDP_KIND_SEND) {
        uint32_t turn = receiving ? step->to : step->root;
        if (turn % place.nranks != place.rank)
            return false;
        prepare_message(call, step, place, receiving);
    } else if (receiving) {
        return false;
    } else if (step->kind == DDP_KIND_BROADCAST) {
        prepare_broadcast(call, step, place);
    } else if (step->kind == DDP_KIND_ALL_REDUCE || step->kind == DDP_KIND_REDUCE) {
        prepare_reduction(call, step, place);
    } else if (step->kind == DDP_KIND_ALL_GATHER || step->kind == DDP_KIND_GATHER) {
        prepare_gathering(call, step, place);
    } else if (step->kind == DDP_KIND_REDUCE_SCATTER || step->kind == DDP_KIND_SCATTER) {
        prepare_scattering(call, step, place);
    } else if (step->kind == DDP_KIND_ALL_TO_ALL) {
        prepare_all_to_all(call, step, place);
    }
    return true;
}

static bool is_same(const unsigned char *have, const unsigned char *want, size_t len,
                    size_t *ret_at)
{
    if (have == NULL || memcmp(have, want, len) == 0)
        return true;
    for (*ret_at = 0; have[*ret_at] == want[*ret_at];)
        ++*ret_at;
    return false;
}

bool call_is_right(const struct call *call, const char **ret_buffer, size_t *ret_at)
{
    *ret_buffer = "send";
    if (!is_same(call->send, call->sent, call->send_len, ret_at))
        return false;
    *ret_buffer = "recv";
    return is_same(call->recv, call->want, call->want_len, ret_at);
}

void call_free(struct call *call)
{
    free(call->send);
    free(call->recv);
    free(call->want);
    free(call->sent);
}
