/*
 * perf_coll_math.c - sizes, bandwidth factors, inputs and expected results of the benchmarks of
 * collectives.
 */
#include "perf_coll_math.h"

#include <string.h>

enum {
    EXACT = 256,    /* integers up to this are exact in every type */
    ALIGNMENT = 16, /* of a rank's part, in bytes */
    TWOS = 8,       /* ranks that may put a 2 into a product, so that it is at most 256 */
    BATCH = 4096,   /* elements computed at a time */
};

const struct coll_kind coll_kinds[COLL_CALLS] = {
#define COLL_KIND(symbol, name, other, total, reduces, rooted) \
    [symbol] = {name, other, total, reduces, rooted},
    COLL_CALL_MAP(COLL_KIND)
#undef COLL_KIND
};

/* ---- sizes and speed ---- */

struct coll_shape coll_shape(enum coll_call call, uint64_t size, ddp_dtype dtype, uint32_t ranks)
{
    size_t element = ddp_dtype_size(dtype);
    if (call == COLL_BARRIER)
        return (struct coll_shape){0};
    if (!coll_kinds[call].total) {
        size_t len = (size_t)size / element * element;
        return (struct coll_shape){
            .count = len / element, .size = len, .send_len = len, .recv_len = len};
    }
    size_t part = (size_t)size / ranks / ALIGNMENT * ALIGNMENT, all = part * ranks;
    return (struct coll_shape){.count = part / element,
                               .size = all,
                               .send_len = call == COLL_ALL_GATHER ? part : all,
                               .recv_len = call == COLL_REDUCE_SCATTER ? part : all};
}

double coll_bus_factor(enum coll_call call, uint32_t ranks)
{
    double n = ranks;
    if (call == COLL_ALL_REDUCE)
        return 2 * (n - 1) / n;
    return coll_kinds[call].total ? (n - 1) / n : 1;
}

uint64_t coll_next_size(uint64_t size, uint64_t end, uint64_t step, uint32_t factor)
{
    uint64_t next;
    bool beyond = factor > 1 ? __builtin_mul_overflow(size, factor, &next)
                             : __builtin_add_overflow(size, step, &next);
    return beyond || next > end || next <= size ? 0 : next;
}

/* ---- elements ---- */

static uint32_t scramble(uint64_t index, uint32_t rank)
{
    uint32_t x = (uint32_t)index * 2654435761U + (uint32_t)(index >> 32) * 40503U;
    x = (x ^ rank * 668265263U) + 374761393U;
    x = (x ^ x >> 15) * 2246822519U;
    return x ^ x >> 13;
}

/* Limits a rank's input so that the sum over all ranks stays below EXACT, for up to EXACT ranks. */
static uint32_t input_mask(ddp_reduce_op op, uint32_t ranks)
{
    uint32_t span = EXACT;
    if (op == DDP_SUM || op == DDP_AVERAGE)
        while (span > 1 && span > EXACT / ranks)
            span /= 2;
    return span - 1;
}

static void draw(const struct coll_pattern *pattern, uint32_t rank, uint64_t first, size_t count,
                 uint32_t *numbers)
{
    if (pattern->op == DDP_PRODUCT) {
        for (size_t i = 0; i < count; i++)
            numbers[i] = 1 + (rank < TWOS ? scramble(first + i, rank) & 1 : 0);
        return;
    }
    uint32_t mask = input_mask(pattern->op, pattern->ranks);
    for (size_t i = 0; i < count; i++)
        numbers[i] = scramble(first + i, rank) & mask;
}

static void fold(ddp_reduce_op op, uint32_t *into, const uint32_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        switch (op) {
        case DDP_MIN:
            into[i] = into[i] < from[i] ? into[i] : from[i];
            break;
        case DDP_MAX:
            into[i] = into[i] > from[i] ? into[i] : from[i];
            break;
        case DDP_PRODUCT:
            into[i] *= from[i];
            break;
        default:
            into[i] += from[i];
            break;
        }
}

/* The upper half of @value, which is finite, rounded to nearest even. */
static uint16_t bfloat16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* @value is 0 or a normal number of float16. */
static uint16_t float16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (bits == 0)
        return 0;
    bits -= (uint32_t)(127 - 15) << 23;
    return (uint16_t)((bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

/* Encode @number / @divisor in the type, one of those that coll_options.c takes. */
static void encode(ddp_dtype dtype, uint32_t number, uint32_t divisor, void *element)
{
    float single = (float)number / (float)divisor;
    double real = (double)number / divisor;
    int32_t whole = (int32_t)(number / divisor);
    int64_t wide = whole;
    uint16_t half = dtype == DDP_BFLOAT16 ? bfloat16_of(single) : float16_of(single);
    switch (dtype) {
    case DDP_FLOAT32:
        memcpy(element, &single, sizeof single);
        break;
    case DDP_FLOAT64:
        memcpy(element, &real, sizeof real);
        break;
    case DDP_FLOAT16:
    case DDP_BFLOAT16:
        memcpy(element, &half, sizeof half);
        break;
    case DDP_INT32:
        memcpy(element, &whole, sizeof whole);
        break;
    default:
        memcpy(element, &wide, sizeof wide);
        break;
    }
}

/* The encodings of all numbers that occur. */
struct code {
    uint64_t element[EXACT + 1];
};

static void make_code(const struct coll_pattern *pattern, struct code *code)
{
    bool averages = pattern->op == DDP_AVERAGE && pattern->to - pattern->from > 1;
    for (uint32_t number = 0; number <= EXACT; number++)
        encode(pattern->dtype, number, averages ? pattern->ranks : 1, &code->element[number]);
}

static void write_elements(const struct code *code, const uint32_t *numbers, size_t count,
                           size_t size, uint8_t *elements)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t *element = &code->element[numbers[i]];
        if (size == sizeof(uint32_t)) /* the common case, made fast */
            memcpy(elements + i * sizeof(uint32_t), element, sizeof(uint32_t));
        else
            memcpy(elements + i * size, element, size);
    }
}

void coll_fill(const struct coll_pattern *pattern, uint64_t first, size_t count, void *elements)
{
    uint32_t numbers[BATCH], more[BATCH];
    size_t size = ddp_dtype_size(pattern->dtype);
    struct code code;
    make_code(pattern, &code);
    for (size_t at = 0; at < count; at += BATCH) {
        size_t len = count - at < BATCH ? count - at : BATCH;
        draw(pattern, pattern->from, first + at, len, numbers);
        for (uint32_t rank = pattern->from + 1; rank < pattern->to; rank++) {
            draw(pattern, rank, first + at, len, more);
            fold(pattern->op, numbers, more, len);
        }
        write_elements(&code, numbers, len, size, (uint8_t *)elements + at * size);
    }
}

uint64_t coll_differ(ddp_dtype dtype, const void *a, const void *b, size_t count)
{
    size_t size = ddp_dtype_size(dtype);
    if (memcmp(a, b, count * size) == 0)
        return 0;
    uint64_t differ = 0;
    for (size_t i = 0; i < count; i++)
        differ += memcmp((const uint8_t *)a + i * size, (const uint8_t *)b + i * size, size) != 0;
    return differ;
}
