/*
 * cast.c - elements of one type of floats as those of another. Pure.
 */
#include "reduce.h"

enum { BLOCK = 1024 };

bool ddpi_dtype_can_cast(ddp_dtype dtype)
{
    return dtype == DDP_FLOAT32 || dtype == DDP_FLOAT64 || dtype == DDP_FLOAT16 ||
           dtype == DDP_BFLOAT16;
}

static void to_float(float *wide, const void *in, size_t count, ddp_dtype dtype)
{
    if (ddpi_dtype_is_narrow(dtype))
        ddpi_widen(wide, in, count, dtype);
    else
        for (size_t i = 0; i < count; i++)
            wide[i] =
                dtype == DDP_FLOAT64 ? (float)((const double *)in)[i] : ((const float *)in)[i];
}

static void from_float(void *out, const float *wide, size_t count, ddp_dtype dtype)
{
    if (ddpi_dtype_is_narrow(dtype)) {
        ddpi_narrow(out, wide, count, dtype);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (dtype == DDP_FLOAT64)
            ((double *)out)[i] = wide[i];
        else
            ((float *)out)[i] = wide[i];
}

/* A block at a time, which stays in the first cache. */
void ddpi_cast(void *out, ddp_dtype to, const void *in, ddp_dtype from, size_t count)
{
    float block[BLOCK];
    size_t in_size = ddp_dtype_size(from), out_size = ddp_dtype_size(to);
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t part = count - i < BLOCK ? count - i : BLOCK;
        to_float(block, (const char *)in + i * in_size, part, from);
        from_float((char *)out + i * out_size, block, part, to);
    }
}
