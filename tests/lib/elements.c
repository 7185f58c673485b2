/*
 * elements.c - one element at a time, in the plainest way there is.
 */
#include "elements.h"
#include "floats.h"

#include "reduce_check.h"

#include <math.h>
#include <string.h>

uint64_t elements_scramble(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/* ---- what the types are ---- */

enum kind { REAL, SIGNED, UNSIGNED, BOOL, COMPLEX };

static enum kind kind_of(ddp_dtype dtype)
{
    switch (dtype) {
    case DDP_FLOAT32:
    case DDP_FLOAT64:
    case DDP_FLOAT16:
    case DDP_BFLOAT16:
    case DDP_FLOAT8_E4M3:
    case DDP_FLOAT8_E5M2:
        return REAL;
    case DDP_INT8:
    case DDP_INT16:
    case DDP_INT32:
    case DDP_INT64:
        return SIGNED;
    case DDP_UINT8:
    case DDP_UINT16:
    case DDP_UINT32:
    case DDP_UINT64:
    case DDP_BYTE:
        return UNSIGNED;
    case DDP_BOOL:
        return BOOL;
    case DDP_COMPLEX64:
    case DDP_COMPLEX128:
        return COMPLEX;
    }
    return UNSIGNED;
}

/* The type of the parts of a complex number. */
static ddp_dtype real_of(ddp_dtype dtype)
{
    return dtype == DDP_COMPLEX64 ? DDP_FLOAT32 : dtype == DDP_COMPLEX128 ? DDP_FLOAT64 : dtype;
}

static uint64_t part_of(ddp_dtype dtype, element_bits bits, unsigned which)
{
    size_t width = 8 * ddp_dtype_size(real_of(dtype));
    return (uint64_t)(bits >> (which * width)) & (UINT64_MAX >> (64 - width));
}

static element_bits of_parts(ddp_dtype dtype, uint64_t real, uint64_t imaginary)
{
    return (element_bits)imaginary << 8 * ddp_dtype_size(real_of(dtype)) | real;
}

bool elements_reduce(ddp_dtype dtype, ddp_reduce_op op)
{
    return ddpi_reduce_check(dtype, op, NULL) == DDP_OK;
}

bool elements_are_floats(ddp_dtype dtype)
{
    return kind_of(dtype) == REAL;
}

/* The largest magnitude bits that are no NaN. */
static uint64_t largest(ddp_dtype dtype)
{
    switch (dtype) {
    case DDP_FLOAT32:
        return 0x7f800000U;
    case DDP_FLOAT16:
        return 0x7c00U;
    case DDP_BFLOAT16:
        return 0x7f80U;
    case DDP_FLOAT8_E4M3:
        return 0x7eU;
    case DDP_FLOAT8_E5M2:
        return 0x7cU;
    default:
        return 0x7ff0000000000000U;
    }
}

bool elements_is_nan(ddp_dtype dtype, element_bits bits)
{
    uint64_t all = UINT64_MAX >> (64 - 8 * ddp_dtype_size(real_of(dtype)));
    uint64_t magnitude = (uint64_t)bits & (all >> 1);
    return elements_are_floats(dtype) && magnitude > largest(dtype);
}

/* ---- floats ---- */

/* Every float but float64 as a float32. */
static float float_of(ddp_dtype dtype, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    switch (dtype) {
    case DDP_FLOAT16:
        return float_from_half((uint16_t)bits);
    case DDP_BFLOAT16:
        return float_from_bfloat((uint16_t)bits);
    case DDP_FLOAT8_E4M3:
        return float_from_e4m3((uint8_t)bits);
    case DDP_FLOAT8_E5M2:
        return float_from_e5m2((uint8_t)bits);
    default:
        memcpy(&value, &low, sizeof value);
        return value;
    }
}

static uint64_t of_float(ddp_dtype dtype, float value)
{
    uint32_t bits;
    switch (dtype) {
    case DDP_FLOAT16:
        return half_from_float(value);
    case DDP_BFLOAT16:
        return bfloat_from_float(value);
    case DDP_FLOAT8_E4M3:
        return e4m3_from_float(value);
    case DDP_FLOAT8_E5M2:
        return e5m2_from_float(value);
    default:
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
}

static double double_of(ddp_dtype dtype, uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return dtype == DDP_FLOAT64 ? value : (double)float_of(dtype, bits);
}

static uint64_t of_double(ddp_dtype dtype, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return dtype == DDP_FLOAT64 ? bits : of_float(dtype, (float)value);
}

element_bits elements_of_double(ddp_dtype dtype, double value)
{
    size_t width = 8 * ddp_dtype_size(dtype);
    switch (kind_of(dtype)) {
    case REAL:
    case COMPLEX:
        return of_double(real_of(dtype), value);
    case BOOL:
        return value != 0;
    case SIGNED:
    case UNSIGNED:
        break;
    }
    return (uint64_t)(int64_t)value & (UINT64_MAX >> (64 - width));
}

/* ---- buffers ---- */

static uint64_t any_part(ddp_dtype dtype, uint64_t *state)
{
    static const double notable[] = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 1e-40, -6e-8};
    uint64_t word = elements_scramble(state);
    if (kind_of(dtype) == BOOL)
        return word >> 63;
    if (kind_of(dtype) != REAL || word % 4 != 0)
        return word >> (64 - 8 * ddp_dtype_size(dtype));
    return of_double(dtype, notable[(word >> 8) % (sizeof notable / sizeof *notable)]);
}

void elements_fill(void *buffer, size_t count, ddp_dtype dtype, uint64_t *state)
{
    ddp_dtype real = real_of(dtype);
    size_t size = ddp_dtype_size(real), parts = count * (real == dtype ? 1 : 2);
    for (size_t i = 0; i < parts; i++) {
        uint64_t bits = any_part(real, state);
        memcpy((char *)buffer + i * size, &bits, size);
    }
}

element_bits elements_get(const void *buffer, size_t i, ddp_dtype dtype)
{
    size_t size = ddp_dtype_size(dtype);
    element_bits bits = 0;
    memcpy(&bits, (const char *)buffer + i * size, size);
    return bits;
}

/* ---- reductions ---- */

static int64_t signed_of(ddp_dtype dtype, uint64_t bits)
{
    unsigned unused = (unsigned)(64 - 8 * ddp_dtype_size(dtype));
    return (int64_t)(bits << unused) >> unused;
}

static bool is_less(ddp_dtype dtype, uint64_t a, uint64_t b)
{
    if (kind_of(dtype) == SIGNED)
        return signed_of(dtype, a) < signed_of(dtype, b);
    if (kind_of(dtype) != REAL)
        return a < b;
    double x = double_of(dtype, a), y = double_of(dtype, b);
    return x < y || (x == y && signbit(x) && !signbit(y));
}

static uint64_t smaller_or_larger(ddp_dtype dtype, ddp_reduce_op op, uint64_t a, uint64_t b)
{
    if (elements_is_nan(dtype, a) || elements_is_nan(dtype, b))
        return elements_is_nan(dtype, a) ? a : b;
    return is_less(dtype, a, b) == (op == DDP_MIN) ? a : b;
}

static uint64_t folded_pair_of_integers(ddp_dtype dtype, ddp_reduce_op op, uint64_t a, uint64_t b)
{
    bool is_bool = kind_of(dtype) == BOOL;
    switch (op) {
    case DDP_MIN:
    case DDP_MAX:
        return smaller_or_larger(dtype, op, a, b);
    case DDP_PRODUCT:
        return a * b;
    case DDP_BIT_AND:
        return a & b;
    case DDP_BIT_OR:
        return a | b;
    case DDP_BIT_XOR:
        return a ^ b;
    default:
        return is_bool ? a | b : a + b;
    }
}

static uint64_t folded_integers(const struct ddpi_reduction *work, const element_bits *in)
{
    ddp_dtype dtype = work->dtype;
    uint64_t all = UINT64_MAX >> (64 - 8 * ddp_dtype_size(dtype)), value = (uint64_t)in[0];
    for (uint32_t k = 1; k < work->nin; k++)
        value = folded_pair_of_integers(dtype, work->op, value, (uint64_t)in[k]) & all;
    if (work->divisor == 1)
        return value;
    return kind_of(dtype) == SIGNED
               ? (uint64_t)(signed_of(dtype, value) / (int64_t)work->divisor) & all
               : value / work->divisor;
}

static element_bits folded_extremes(const struct ddpi_reduction *work, const element_bits *in)
{
    uint64_t value = (uint64_t)in[0];
    for (uint32_t k = 1; k < work->nin; k++)
        value = smaller_or_larger(work->dtype, work->op, value, (uint64_t)in[k]);
    return value;
}

/* Real part or imaginary part, or a number that is not complex. */
static uint64_t folded_doubles(const struct ddpi_reduction *work, const element_bits *in,
                               unsigned which)
{
    double value = double_of(DDP_FLOAT64, part_of(work->dtype, in[0], which));
    for (uint32_t k = 1; k < work->nin; k++) {
        double next = double_of(DDP_FLOAT64, part_of(work->dtype, in[k], which));
        value = work->op == DDP_PRODUCT ? value * next : value + next;
    }
    return of_double(DDP_FLOAT64, value / work->divisor);
}

static uint64_t folded_floats(const struct ddpi_reduction *work, const element_bits *in,
                              unsigned which)
{
    ddp_dtype dtype = real_of(work->dtype);
    volatile float value = float_of(dtype, part_of(work->dtype, in[0], which));
    for (uint32_t k = 1; k < work->nin; k++) { /* a float32 after every step */
        float next = float_of(dtype, part_of(work->dtype, in[k], which));
        value = work->op == DDP_PRODUCT ? value * next : value + next;
    }
    return of_float(dtype, value / (float)work->divisor);
}

static uint64_t folded_part(const struct ddpi_reduction *work, const element_bits *in,
                            unsigned which)
{
    return real_of(work->dtype) == DDP_FLOAT64 ? folded_doubles(work, in, which)
                                               : folded_floats(work, in, which);
}

/* a * b - c * d or a * b + c * d, with three roundings. */
static double of_products(bool single, double a, double b, double c, double d, bool plus)
{
    volatile double ab = a * b, cd = c * d;
    if (!single)
        return plus ? ab + cd : ab - cd;
    volatile float left = (float)ab, right = (float)cd; /* the products are exact in float64 */
    return plus ? left + right : left - right;
}

static element_bits complex_product(const struct ddpi_reduction *work, const element_bits *in)
{
    ddp_dtype dtype = work->dtype, part = real_of(dtype);
    bool single = part == DDP_FLOAT32;
    double real = double_of(part, part_of(dtype, in[0], 0));
    double imaginary = double_of(part, part_of(dtype, in[0], 1));
    for (uint32_t k = 1; k < work->nin; k++) {
        double x = double_of(part, part_of(dtype, in[k], 0));
        double y = double_of(part, part_of(dtype, in[k], 1));
        double next = of_products(single, real, x, imaginary, y, false);
        imaginary = of_products(single, real, y, imaginary, x, true);
        real = next;
    }
    return of_parts(dtype, of_double(part, real), of_double(part, imaginary));
}

element_bits elements_scaled(ddp_dtype dtype, element_bits bits, double factor)
{
    ddp_dtype real = real_of(dtype);
    uint64_t parts[2] = {0};
    for (unsigned i = 0; i < (real == dtype ? 1U : 2U); i++) {
        uint64_t part = part_of(dtype, bits, i);
        parts[i] = real == DDP_FLOAT64 ? of_double(real, double_of(real, part) * factor)
                                       : of_float(real, float_of(real, part) * (float)factor);
    }
    return real == dtype ? parts[0] : of_parts(dtype, parts[0], parts[1]);
}

static element_bits folded_scaled(const struct ddpi_reduction *work, const element_bits *in)
{
    element_bits scaled[DDPI_REDUCE_MOST];
    struct ddpi_reduction rest = *work;
    for (uint32_t k = 0; k < work->nin; k++)
        scaled[k] =
            work->factor[k] == 1 ? in[k] : elements_scaled(work->dtype, in[k], work->factor[k]);
    rest.factor = NULL;
    return elements_folded(&rest, scaled);
}

element_bits elements_folded(const struct ddpi_reduction *work, const element_bits *in)
{
    if (work->factor != NULL)
        return folded_scaled(work, in);
    if (work->nin == 1 && work->divisor == 1)
        return in[0];
    enum kind kind = kind_of(work->dtype);
    if (kind == COMPLEX && work->op == DDP_PRODUCT)
        return complex_product(work, in);
    if (kind == COMPLEX)
        return of_parts(work->dtype, folded_part(work, in, 0), folded_part(work, in, 1));
    if (kind != REAL)
        return folded_integers(work, in);
    return work->op == DDP_MIN || work->op == DDP_MAX ? folded_extremes(work, in)
                                                      : folded_part(work, in, 0);
}

bool elements_agree(ddp_dtype dtype, element_bits a, element_bits b)
{
    ddp_dtype real = real_of(dtype);
    for (unsigned i = 0; i < (real == dtype ? 1U : 2U); i++) {
        uint64_t x = part_of(dtype, a, i), y = part_of(dtype, b, i);
        if (x != y && !(elements_is_nan(real, x) && elements_is_nan(real, y)))
            return false;
    }
    return true;
}

bool elements_is_finite(ddp_dtype dtype, element_bits bits)
{
    ddp_dtype real = real_of(dtype);
    if (!elements_are_floats(real))
        return true;
    return isfinite(double_of(real, part_of(dtype, bits, 0))) &&
           (real == dtype || isfinite(double_of(real, part_of(dtype, bits, 1))));
}

bool elements_are_finite(const void *buffer, size_t count, ddp_dtype dtype)
{
    for (size_t i = 0; i < count; i++)
        if (!elements_is_finite(dtype, elements_get(buffer, i, dtype)))
            return false;
    return true;
}

size_t elements_differ(ddp_dtype dtype, const void *a, const void *b, size_t count)
{
    if (memcmp(a, b, count * ddp_dtype_size(dtype)) == 0)
        return count;
    for (size_t i = 0; i < count; i++)
        if (!elements_agree(dtype, elements_get(a, i, dtype), elements_get(b, i, dtype)))
            return i;
    return count;
}
