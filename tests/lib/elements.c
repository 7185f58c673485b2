/*
 * elements.c - one element at a time, in the plainest way there is.
 */
#include "elements.h"

#include <math.h>
#include <string.h>

uint64_t elements_scramble(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static bool is_integer(ddp_dtype dtype)
{
    return dtype == DDP_INT32 || dtype == DDP_INT64;
}

static bool is_nan(ddp_dtype dtype, uint64_t bits)
{
    switch (dtype) {
    case DDP_FLOAT32:
        return (bits & 0x7fffffffU) > 0x7f800000U;
    case DDP_FLOAT64:
        return (bits & 0x7fffffffffffffffU) > 0x7ff0000000000000U;
    case DDP_FLOAT16:
        return (bits & 0x7fffU) > 0x7c00U;
    case DDP_BFLOAT16:
        return (bits & 0x7fffU) > 0x7f80U;
    case DDP_INT32:
    case DDP_INT64:
        break;
    }
    return false;
}

/* The 16-bit types and float32 as a float32. */
static float float_of(ddp_dtype dtype, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return dtype == DDP_FLOAT16    ? ddpi_float_from_half((uint16_t)bits)
           : dtype == DDP_BFLOAT16 ? ddpi_float_from_bfloat((uint16_t)bits)
                                   : value;
}

static uint64_t of_float(ddp_dtype dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return dtype == DDP_FLOAT16    ? ddpi_half_from_float(value)
           : dtype == DDP_BFLOAT16 ? ddpi_bfloat_from_float(value)
                                   : bits;
}

static double double_of(ddp_dtype dtype, uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return dtype == DDP_FLOAT64 ? value : (double)float_of(dtype, bits);
}

uint64_t elements_of_double(ddp_dtype dtype, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return dtype == DDP_FLOAT64 ? bits : of_float(dtype, (float)value);
}

static uint64_t any_element(ddp_dtype dtype, uint64_t *state)
{
    static const double notable[] = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 1e-40, -6e-8};
    uint64_t word = elements_scramble(state);
    if (is_integer(dtype) || word % 4 != 0)
        return word >> (64 - 8 * ddp_dtype_size(dtype));
    return elements_of_double(dtype, notable[(word >> 8) % (sizeof notable / sizeof *notable)]);
}

void elements_fill(void *buffer, size_t count, ddp_dtype dtype, uint64_t *state)
{
    size_t size = ddp_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = any_element(dtype, state);
        memcpy((char *)buffer + i * size, &bits, size);
    }
}

uint64_t elements_get(const void *buffer, size_t i, ddp_dtype dtype)
{
    size_t size = ddp_dtype_size(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)buffer + i * size, size);
    return bits;
}

static uint64_t smaller_or_larger(const struct ddpi_reduction *work, uint64_t a, uint64_t b)
{
    ddp_dtype dtype = work->dtype;
    if (is_nan(dtype, a) || is_nan(dtype, b))
        return is_nan(dtype, a) ? a : b;
    bool less;
    if (dtype == DDP_INT32)
        less = (int32_t)a < (int32_t)b;
    else if (dtype == DDP_INT64)
        less = (int64_t)a < (int64_t)b;
    else {
        double x = double_of(dtype, a), y = double_of(dtype, b);
        less = x < y || (x == y && signbit(x) && !signbit(y));
    }
    return less == (work->op == DDP_MIN) ? a : b;
}

static uint64_t folded_integers(const struct ddpi_reduction *work, const uint64_t *in)
{
    uint64_t value = in[0];
    for (uint32_t k = 1; k < work->nin; k++)
        value = work->op == DDP_PRODUCT ? value * in[k] : value + in[k];
    if (work->dtype == DDP_INT32)
        return (uint32_t)((int64_t)(int32_t)value / (int64_t)work->divisor);
    return work->divisor == 1 ? value : (uint64_t)((int64_t)value / (int64_t)work->divisor);
}

static uint64_t folded_doubles(const struct ddpi_reduction *work, const uint64_t *in)
{
    double value = double_of(DDP_FLOAT64, in[0]);
    for (uint32_t k = 1; k < work->nin; k++) {
        double next = double_of(DDP_FLOAT64, in[k]);
        value = work->op == DDP_PRODUCT ? value * next : value + next;
    }
    return elements_of_double(DDP_FLOAT64, value / work->divisor);
}

static uint64_t folded_floats(const struct ddpi_reduction *work, const uint64_t *in)
{
    volatile float value = float_of(work->dtype, in[0]); /* a float32 after every step */
    for (uint32_t k = 1; k < work->nin; k++) {
        float next = float_of(work->dtype, in[k]);
        value = work->op == DDP_PRODUCT ? value * next : value + next;
    }
    return of_float(work->dtype, value / (float)work->divisor);
}

uint64_t elements_folded(const struct ddpi_reduction *work, const uint64_t *in)
{
    if (work->nin == 1 && work->divisor == 1)
        return in[0];
    if (work->op == DDP_MIN || work->op == DDP_MAX) {
        uint64_t value = in[0];
        for (uint32_t k = 1; k < work->nin; k++)
            value = smaller_or_larger(work, value, in[k]);
        return value;
    }
    return is_integer(work->dtype)      ? folded_integers(work, in)
           : work->dtype == DDP_FLOAT64 ? folded_doubles(work, in)
                                        : folded_floats(work, in);
}

bool elements_agree(ddp_dtype dtype, uint64_t a, uint64_t b)
{
    return a == b || (is_nan(dtype, a) && is_nan(dtype, b));
}

size_t elements_differ(ddp_dtype dtype, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!elements_agree(dtype, elements_get(a, i, dtype), elements_get(b, i, dtype)))
            return i;
    return count;
}
