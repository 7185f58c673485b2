/*
 * tensor_scale.c - a loop for each integer type; floats are worker/core/reduce's. Owns nothing.
 */
#include "tensor_scale.h"

#include "reduce.h"

#include <string.h>

/* Casts of what the type cannot hold are undefined in C. Limits that float64 does not have are
 * rounded up to a power of two, hence >=. */
#define SCALE_LOOP(type, least, most)                                                 \
    static void scale_##type(void *dst, const void *src, size_t count, double factor) \
    {                                                                                 \
        for (size_t i = 0; i < count; i++) {                                          \
            type##_t value;                                                           \
            memcpy(&value, (const char *)src + i * sizeof value, sizeof value);       \
            double product = (double)value * factor;                                  \
            if (product >= (double)(most))                                            \
                value = (most);                                                       \
            else if (product <= (double)(least))                                      \
                value = (least);                                                      \
            else                                                                      \
                value = product == product ? (type##_t)product : 0;                   \
            memcpy((char *)dst + i * sizeof value, &value, sizeof value);             \
        }                                                                             \
    }

SCALE_LOOP(int8, INT8_MIN, INT8_MAX)
SCALE_LOOP(int16, INT16_MIN, INT16_MAX)
SCALE_LOOP(int32, INT32_MIN, INT32_MAX)
SCALE_LOOP(int64, INT64_MIN, INT64_MAX)
SCALE_LOOP(uint8, 0, UINT8_MAX)
SCALE_LOOP(uint16, 0, UINT16_MAX)
SCALE_LOOP(uint32, 0, UINT32_MAX)
SCALE_LOOP(uint64, 0, UINT64_MAX)

static void (*const integer_loops[])(void *dst, const void *src, size_t count, double factor) = {
    [DDP_INT8] = scale_int8,     [DDP_INT16] = scale_int16,   [DDP_INT32] = scale_int32,
    [DDP_INT64] = scale_int64,   [DDP_UINT8] = scale_uint8,   [DDP_UINT16] = scale_uint16,
    [DDP_UINT32] = scale_uint32, [DDP_UINT64] = scale_uint64,
};

bool ddpi_tensor_can_scale(ddp_dtype dtype)
{
    return dtype != DDP_BOOL && dtype != DDP_BYTE;
}

void ddpi_tensor_scale(void *dst, const void *src, size_t count, ddp_dtype dtype, double factor)
{
    if (dtype < sizeof integer_loops / sizeof integer_loops[0] && integer_loops[dtype] != NULL)
        integer_loops[dtype](dst, src, count, factor);
    else
        ddpi_scale(dst, src, count, dtype, factor);
}
