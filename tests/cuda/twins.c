/*
 * twins.c - the kernels of the library in C: the host path's arithmetic on the memory that the
 * kernel would reach. They refuse what the device would: memory out of reach, and packs that do not
 * lie on 16 bytes.
 */
#include "host.h"
#include "kernels.h"
#include "reduce.h"

#include <string.h>

enum { OP_sum = DDP_SUM, OP_min = DDP_MIN, OP_max = DDP_MAX, OP_product = DDP_PRODUCT };

enum {
#define DTYPE(dtype, type) DTYPE_##type = dtype,
    DDPI_KERNEL_TYPES(DTYPE)
#undef DTYPE
};

/* The buffers of a piece of work where this process has them. */
struct reached {
    const void *in[DDPI_KERNEL_BUFFERS];
    void *out[DDPI_KERNEL_BUFFERS];
};

static ddpi_cu_result reach(const void *pointer, const struct ddpi_kernel_work *work,
                            size_t element, int device, void **ret)
{
    ddpi_cu_deviceptr address = (uintptr_t)pointer;
    if (address % element != 0 ||
        (work->packs > 0 && (address + work->head * element) % DDPI_KERNEL_PACK != 0))
        return DDPI_CU_ERROR_MISALIGNED_ADDRESS;
    *ret = host_memory_reach(address, work->count * element, device);
    return *ret != NULL ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_ILLEGAL_ADDRESS;
}

static ddpi_cu_result reach_all(const struct ddpi_kernel_work *work, size_t element, int device,
                                struct reached *ret)
{
    if (work->nin < 1 || work->nin > DDPI_KERNEL_BUFFERS || work->nout < 1 ||
        work->nout > DDPI_KERNEL_BUFFERS ||
        work->head + work->packs * (DDPI_KERNEL_PACK / element) > work->count)
        return DDPI_CU_ERROR_LAUNCH_FAILED;
    ddpi_cu_result result = DDPI_CU_SUCCESS;
    for (uint32_t i = 0; i < work->nin && result == DDPI_CU_SUCCESS; i++) {
        void *in = NULL;
        result = reach(work->in[i], work, element, device, &in);
        ret->in[i] = in;
    }
    for (uint32_t i = 0; i < work->nout && result == DDPI_CU_SUCCESS; i++)
        result = reach(work->out[i], work, element, device, &ret->out[i]);
    return result;
}

static ddpi_cu_result run_copy(const struct host_kernel *kernel, const void *parameter, int device)
{
    const struct ddpi_kernel_work *work = parameter;
    struct reached reached = {0};
    ddpi_cu_result result = reach_all(work, kernel->bytes, device, &reached);
    for (uint32_t i = 0; i < work->nout && result == DDPI_CU_SUCCESS; i++)
        memmove(reached.out[i], reached.in[0], work->count * kernel->bytes);
    return result;
}

static ddpi_cu_result run_reduce(const struct host_kernel *kernel, const void *parameter,
                                 int device)
{
    const struct ddpi_kernel_work *work = parameter;
    struct reached reached = {0};
    ddp_dtype dtype = (ddp_dtype)kernel->dtype;
    ddpi_cu_result result = reach_all(work, ddp_dtype_size(dtype), device, &reached);
    if (result != DDPI_CU_SUCCESS)
        return result;
    struct ddpi_reduction reduction = {.nin = work->nin,
                                       .nout = work->nout,
                                       .count = work->count,
                                       .dtype = dtype,
                                       .op = (ddp_reduce_op)kernel->op,
                                       .divisor = work->divisor};
    memcpy(reduction.in, reached.in, sizeof reduction.in);
    memcpy(reduction.out, reached.out, sizeof reduction.out);
    if (work->non_finite != NULL) {
        reduction.non_finite =
            host_memory_reach((uintptr_t)work->non_finite, sizeof *work->non_finite, device);
        if (reduction.non_finite == NULL)
            return DDPI_CU_ERROR_ILLEGAL_ADDRESS;
    }
    ddpi_reduce_many(&reduction);
    return DDPI_CU_SUCCESS;
}

static ddpi_cu_result run_scale(const struct host_kernel *kernel, const void *parameter, int device)
{
    const struct ddpi_kernel_scale *work = parameter;
    ddp_dtype dtype = (ddp_dtype)kernel->dtype;
    ddpi_cu_deviceptr address = (uintptr_t)work->elements;
    if (address % ddp_dtype_size(dtype) != 0)
        return DDPI_CU_ERROR_MISALIGNED_ADDRESS;
    void *elements = host_memory_reach(address, work->count * ddp_dtype_size(dtype), device);
    if (elements == NULL)
        return DDPI_CU_ERROR_ILLEGAL_ADDRESS;
    ddpi_scale(elements, elements, work->count, dtype, work->factor);
    return DDPI_CU_SUCCESS;
}

/* The types of a cast, by their numbers. */
static const ddp_dtype cast_dtypes[] = {
#define CAST_DTYPE(dtype, type) [DDPI_KERNEL_CAST_TO_##type] = dtype,
    DDPI_KERNEL_FLOATS(CAST_DTYPE)
#undef CAST_DTYPE
};

static ddpi_cu_result run_cast(const struct host_kernel *kernel, const void *parameter, int device)
{
    const struct ddpi_kernel_cast *work = parameter;
    if (work->to >= sizeof cast_dtypes / sizeof *cast_dtypes)
        return DDPI_CU_ERROR_LAUNCH_FAILED;
    ddp_dtype from = (ddp_dtype)kernel->dtype, to = cast_dtypes[work->to];
    if ((uintptr_t)work->in % ddp_dtype_size(from) != 0 ||
        (uintptr_t)work->out % ddp_dtype_size(to) != 0)
        return DDPI_CU_ERROR_MISALIGNED_ADDRESS;
    const void *in =
        host_memory_reach((uintptr_t)work->in, work->count * ddp_dtype_size(from), device);
    void *out = host_memory_reach((uintptr_t)work->out, work->count * ddp_dtype_size(to), device);
    if (in == NULL || out == NULL)
        return DDPI_CU_ERROR_ILLEGAL_ADDRESS;
    ddpi_cast(out, to, in, from, work->count);
    return DDPI_CU_SUCCESS;
}

#define NAME_TEXT(name) #name
#define NAME(name)      NAME_TEXT(name)
#define REDUCES(type, op)              \
    {NAME(DDPI_KERNEL_NAME(type, op)), \
     sizeof(struct ddpi_kernel_work),  \
     run_reduce,                       \
     DTYPE_##type,                     \
     OP_##op,                          \
     0},
#define ALL_REDUCE(dtype, type) DDPI_KERNEL_OPS(REDUCES, type)
#define COPIES(bytes, type) \
    {NAME(DDPI_KERNEL_COPY(bytes)), sizeof(struct ddpi_kernel_work), run_copy, 0, 0, bytes},

#define SCALES(dtype, type) \
    {NAME(DDPI_KERNEL_SCALE(type)), sizeof(struct ddpi_kernel_scale), run_scale, dtype, 0, 0},

#define CASTS(dtype, type) \
    {NAME(DDPI_KERNEL_CAST(type)), sizeof(struct ddpi_kernel_cast), run_cast, dtype, 0, 0},

static const struct host_kernel kernels[] = {DDPI_KERNEL_TYPES(ALL_REDUCE) DDPI_KERNEL_COPIES(
    COPIES) DDPI_KERNEL_FLOATS(SCALES) DDPI_KERNEL_FLOATS(CASTS)};

const struct host_kernel *host_kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    return NULL;
}
