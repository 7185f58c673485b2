/*
 * kernel_launch.c - picks the kernel for a reduction, divides the work and enqueues it. Owns the
 * loaded module. Never changes the current context and never waits for the device.
 */
#include "kernel_launch.h"

#include "error.h"
#include "image.h"

#include <string.h>

enum { BUS_BLOCKS = 32 }; /* their loads in flight fill a bus to the host */

_Static_assert((int)DDPI_KERNEL_BUFFERS == (int)DDPI_REDUCE_MOST, "a reduction fits in a launch");

/* A copy of one input: no arithmetic, and nothing to look for. */
static bool is_copy(const struct ddpi_reduction *work)
{
    return work->nin == 1 && work->divisor == 1 && work->non_finite == NULL;
}

/* A complex number as two reals: so it is copied, summed and divided. */
static struct ddpi_reduction of_reals(const struct ddpi_reduction *work)
{
    struct ddpi_reduction reals = *work;
    if (work->dtype == DDP_COMPLEX64 || work->dtype == DDP_COMPLEX128) {
        reals.dtype = work->dtype == DDP_COMPLEX64 ? DDP_FLOAT32 : DDP_FLOAT64;
        reals.count *= 2;
    }
    return reals;
}

ddp_status ddpi_kernels_check(ddp_dtype dtype, ddp_reduce_op op, struct ddp_error *err)
{
    static const bool has_kernels[DDPI_DTYPES] = {
#define ROW(symbol, type) [symbol] = true,
        DDPI_KERNEL_TYPES(ROW)
#undef ROW
    };
    bool is_complex = dtype == DDP_COMPLEX64 || dtype == DDP_COMPLEX128;
    if ((has_kernels[dtype] && op <= DDP_PRODUCT) ||
        (is_complex && (op == DDP_SUM || op == DDP_AVERAGE)))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID, "there is no kernel for the %s of %s",
                          ddp_reduce_op_name(op), ddp_dtype_name(dtype));
}

/* @ret_differ: the bits in which the addresses of @work differ; @ret_any: those, and the bits of
 * the first. */
static void look_at_addresses(const struct ddpi_reduction *work, uintptr_t *ret_differ,
                              uintptr_t *ret_any)
{
    uintptr_t first = (uintptr_t)work->out[0], differ = 0;
    for (uint32_t k = 0; k < work->nin; k++)
        differ |= (uintptr_t)work->in[k] ^ first;
    for (uint32_t j = 0; j < work->nout; j++)
        differ |= (uintptr_t)work->out[j] ^ first;
    *ret_differ = differ;
    *ret_any = differ | first;
}

/* Of so many threads. */
static uint32_t blocks_for(uint64_t threads, uint32_t multiprocessors)
{
    uint64_t blocks = (threads + DDPI_KERNEL_THREADS - 1) / DDPI_KERNEL_THREADS;
    uint64_t room = (uint64_t)multiprocessors * DDPI_KERNEL_BLOCKS;
    return (uint32_t)(blocks < room ? blocks : room);
}

/* @work has no complex numbers. */
static struct ddpi_kernel_plan plan_reals(const struct ddpi_reduction *work,
                                          uint32_t multiprocessors)
{
    size_t unit = ddp_dtype_size(work->dtype);
    struct ddpi_kernel_plan plan = {
        .work = {.count = work->count,
                 .nin = work->nin,
                 .nout = work->nout,
                 .divisor = work->divisor,
                 .non_finite = work->non_finite},
    };
    memcpy(plan.work.in, work->in, sizeof plan.work.in);
    memcpy(plan.work.out, work->out, sizeof plan.work.out);

    uintptr_t differ, any;
    look_at_addresses(work, &differ, &any);
    if (differ % DDPI_KERNEL_PACK == 0) {
        uint64_t head = (0 - (uintptr_t)work->out[0]) % DDPI_KERNEL_PACK / unit;
        plan.work.head = head < plan.work.count ? head : plan.work.count;
        plan.work.packs = (plan.work.count - plan.work.head) * unit / DDPI_KERNEL_PACK;
    }
    uint64_t singles = plan.work.count - plan.work.packs * (DDPI_KERNEL_PACK / unit);
    uint64_t busy = singles > plan.work.packs ? singles : plan.work.packs;
    plan.blocks = blocks_for(busy, multiprocessors);
    return plan;
}

struct ddpi_kernel_plan ddpi_kernel_plan(const struct ddpi_reduction *work,
                                         uint32_t multiprocessors)
{
    struct ddpi_reduction reals = of_reals(work);
    return plan_reals(&reals, multiprocessors);
}

void ddpi_kernels_init(struct ddpi_kernels *kernels, const struct ddpi_cuda *cuda)
{
    *kernels = (struct ddpi_kernels){.cuda = cuda};
}

void ddpi_kernels_finish(struct ddpi_kernels *kernels)
{
    /* If the context was destroyed, so was the module, and the driver only reports that. */
    if (kernels->module != NULL)
        kernels->cuda->module_unload(kernels->module);
    kernels->module = NULL;
}

static ddp_status find_multiprocessors(struct ddpi_kernels *kernels, struct ddp_error *err)
{
    const struct ddpi_cuda *cuda = kernels->cuda;
    ddpi_cu_device device;
    ddpi_cu_result result = cuda->ctx_get_device(&device);
    int count = 0;
    if (result == DDPI_CU_SUCCESS)
        result = cuda->device_get_attribute(&count, DDPI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                            device);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(cuda, err, result, "cannot ask for the device's multiprocessors");
    kernels->multiprocessors = (uint32_t)count;
    return DDP_OK;
}

#define STRING_OF(text)       STRING_OF_VALUE(text)
#define STRING_OF_VALUE(text) #text

static ddp_status find_function(const struct ddpi_kernels *kernels, ddpi_cu_module module,
                                const char *name, ddpi_cu_function *ret_function,
                                struct ddp_error *err)
{
    ddpi_cu_result result = kernels->cuda->module_get_function(ret_function, module, name);
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    return ddpi_cuda_error(kernels->cuda, err, result, "cannot find the kernel %s", name);
}

static ddp_status find_folds(struct ddpi_kernels *kernels, ddpi_cu_module module,
                             struct ddp_error *err)
{
    static const struct {
        ddp_dtype dtype;
        const char *names[DDP_PRODUCT + 1];
    } rows[] = {
#define NAME(type, op) STRING_OF(DDPI_KERNEL_NAME(type, op))
#define ROW(symbol, type)              \
    {symbol,                           \
     {[DDP_SUM] = NAME(type, sum),     \
      [DDP_AVERAGE] = NAME(type, sum), \
      [DDP_MIN] = NAME(type, min),     \
      [DDP_MAX] = NAME(type, max),     \
      [DDP_PRODUCT] = NAME(type, product)}},
        DDPI_KERNEL_TYPES(ROW)
#undef ROW
#undef NAME
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t op = 0; op <= DDP_PRODUCT; op++) {
            ddp_status status = find_function(kernels, module, rows[i].names[op],
                                              &kernels->reduce_copy[rows[i].dtype][op], err);
            if (status != DDP_OK)
                return status;
        }
    return DDP_OK;
}

static ddp_status find_copies(struct ddpi_kernels *kernels, ddpi_cu_module module,
                              struct ddp_error *err)
{
    static const struct {
        size_t bytes;
        const char *name;
    } rows[] = {
#define ROW(bytes, type) {bytes, STRING_OF(DDPI_KERNEL_COPY(bytes))},
        DDPI_KERNEL_COPIES(ROW)
#undef ROW
    };
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == DDP_OK; i++)
        status = find_function(kernels, module, rows[i].name, &kernels->copy[rows[i].bytes], err);
    return status;
}

static ddp_status find_floats(struct ddpi_kernels *kernels, ddpi_cu_module module,
                              struct ddp_error *err)
{
    static const struct {
        const char *scale, *cast;
    } names[] = {
#define ROW(symbol, type) \
    [symbol] = {STRING_OF(DDPI_KERNEL_SCALE(type)), STRING_OF(DDPI_KERNEL_CAST(type))},
        DDPI_KERNEL_FLOATS(ROW)
#undef ROW
    };
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == DDP_OK; i++) {
        status = find_function(kernels, module, names[i].scale, &kernels->scale[i], err);
        if (status == DDP_OK)
            status = find_function(kernels, module, names[i].cast, &kernels->cast[i], err);
    }
    return status;
}

ddp_status ddpi_kernels_load(struct ddpi_kernels *kernels, struct ddp_error *err)
{
    const struct ddpi_cuda *cuda = kernels->cuda;
    if (kernels->module != NULL)
        return DDP_OK;
    ddp_status status = find_multiprocessors(kernels, err);
    if (status != DDP_OK)
        return status;

    ddpi_cu_module module;
    ddpi_cu_result result = cuda->module_load_data(&module, ddpi_cuda_image);
    if (result != DDPI_CU_SUCCESS && ddpi_cuda_image_len == 0) {
        struct ddp_error said;
        (void)ddpi_cuda_error(cuda, &said, result,
                              "this libddpcomm was built without nvcc and has no kernels for a "
                              "GPU; build it again where there is nvcc");
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "%s", said.msg);
    }
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(cuda, err, result, "cannot load the kernels (built for %s)",
                               ddpi_cuda_image_targets);
    status = find_folds(kernels, module, err);
    if (status == DDP_OK)
        status = find_copies(kernels, module, err);
    if (status == DDP_OK)
        status = find_floats(kernels, module, err);
    if (status == DDP_OK)
        kernels->module = module;
    else
        cuda->module_unload(module);
    return status;
}

static ddpi_cu_result launch_plan(const struct ddpi_kernels *kernels, ddpi_cu_function function,
                                  struct ddpi_kernel_plan *plan, ddpi_cu_stream stream)
{
    void *parameters[] = {&plan->work};
    return kernels->cuda->launch_kernel(function, plan->blocks, 1, 1, DDPI_KERNEL_THREADS, 1, 1, 0,
                                        stream, parameters, NULL);
}

ddp_status ddpi_kernels_launch(struct ddpi_kernels *kernels, const struct ddpi_reduction *work,
                               ddpi_cu_stream stream, struct ddp_error *err)
{
    struct ddpi_reduction reals = of_reals(work);
    uintptr_t differ, any;
    look_at_addresses(work, &differ, &any);
    if (any % ddp_dtype_size(reals.dtype) != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a device buffer of %s does not begin at a multiple of %zu bytes",
                              ddp_dtype_name(work->dtype), ddp_dtype_size(reals.dtype));
    if (work->count == 0)
        return DDP_OK;
    ddp_status status = is_copy(work) ? DDP_OK : ddpi_kernels_check(work->dtype, work->op, err);
    if (status == DDP_OK)
        status = ddpi_kernels_load(kernels, err);
    if (status != DDP_OK)
        return status;

    struct ddpi_kernel_plan plan = plan_reals(&reals, kernels->multiprocessors);
    ddpi_cu_function function = is_copy(work) ? kernels->copy[ddp_dtype_size(reals.dtype)]
                                              : kernels->reduce_copy[reals.dtype][work->op];
    ddpi_cu_result result = launch_plan(kernels, function, &plan, stream);
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    return ddpi_cuda_error(kernels->cuda, err, result, "cannot launch the reduction of %zu %s",
                           work->count, ddp_dtype_name(work->dtype));
}

ddp_status ddpi_kernels_copy(struct ddpi_kernels *kernels, ddpi_cu_deviceptr to,
                             ddpi_cu_deviceptr from, size_t len, ddpi_cu_stream stream,
                             struct ddp_error *err)
{
    static const ddp_dtype elements[] = {
        [1] = DDP_UINT8, [2] = DDP_FLOAT16, [4] = DDP_INT32, [8] = DDP_INT64};
    size_t unit = 8;
    while ((to | from | len) % unit != 0)
        unit /= 2;
    ddp_status status = len > 0 ? ddpi_kernels_load(kernels, err) : DDP_OK;
    if (status != DDP_OK || len == 0)
        return status;
    const struct ddpi_reduction work = {.in = {(const void *)(uintptr_t)from},
                                        .out = {(void *)(uintptr_t)to},
                                        .nin = 1,
                                        .nout = 1,
                                        .count = len / unit,
                                        .dtype = elements[unit],
                                        .divisor = 1};
    struct ddpi_kernel_plan plan = plan_reals(&work, kernels->multiprocessors);
    plan.blocks = plan.blocks < BUS_BLOCKS ? plan.blocks : BUS_BLOCKS;
    ddpi_cu_result result = launch_plan(kernels, kernels->copy[unit], &plan, stream);
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    return ddpi_cuda_error(kernels->cuda, err, result, "cannot launch the copy of %zu bytes", len);
}

/* ---- products ---- */

/* The type of the kernel for @dtype; a complex number is two reals. */
static bool find_scale_type(ddp_dtype dtype, ddp_dtype *ret_real)
{
    static const bool has_kernel[DDPI_DTYPES] = {
#define ROW(symbol, type) [symbol] = true,
        DDPI_KERNEL_FLOATS(ROW)
#undef ROW
    };
    const struct ddpi_reduction work = {.dtype = dtype};
    *ret_real = of_reals(&work).dtype;
    return has_kernel[*ret_real];
}

bool ddpi_kernels_can_scale(ddp_dtype dtype, const void *elements)
{
    ddp_dtype real;
    return find_scale_type(dtype, &real) && (uintptr_t)elements % ddp_dtype_size(real) == 0;
}

ddp_status ddpi_kernels_scale(struct ddpi_kernels *kernels, void *elements, size_t count,
                              ddp_dtype dtype, double factor, ddpi_cu_stream stream,
                              struct ddp_error *err)
{
    ddp_dtype real;
    if (count == 0 || !find_scale_type(dtype, &real))
        return DDP_OK;
    ddp_status status = ddpi_kernels_load(kernels, err);
    if (status != DDP_OK)
        return status;
    struct ddpi_kernel_scale work = {.elements = elements,
                                     .count =
                                         count * (ddp_dtype_size(dtype) / ddp_dtype_size(real)),
                                     .factor = factor};
    void *parameters[] = {&work};
    ddpi_cu_result result = kernels->cuda->launch_kernel(
        kernels->scale[real], blocks_for(work.count, kernels->multiprocessors), 1, 1,
        DDPI_KERNEL_THREADS, 1, 1, 0, stream, parameters, NULL);
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    return ddpi_cuda_error(kernels->cuda, err, result, "cannot launch the product of %zu %s", count,
                           ddp_dtype_name(dtype));
}

/* ---- casts ---- */

static ddp_status check_cast(const void *out, ddp_dtype to, const void *in, ddp_dtype from,
                             struct ddp_error *err)
{
    if (!ddpi_dtype_can_cast(to) || !ddpi_dtype_can_cast(from))
        return ddpi_error_set(err, DDP_E_INVALID, "there is no kernel that casts %s to %s",
                              ddp_dtype_name(from), ddp_dtype_name(to));
    bool is_aligned =
        (uintptr_t)out % ddp_dtype_size(to) == 0 && (uintptr_t)in % ddp_dtype_size(from) == 0;
    if (is_aligned)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "a device buffer that is to be cast from %s to %s is not aligned to its "
                          "elements",
                          ddp_dtype_name(from), ddp_dtype_name(to));
}

ddp_status ddpi_kernels_cast(struct ddpi_kernels *kernels, void *out, ddp_dtype to, const void *in,
                             ddp_dtype from, size_t count, ddpi_cu_stream stream,
                             struct ddp_error *err)
{
    static const uint32_t numbers[] = {
#define ROW(symbol, type) [symbol] = DDPI_KERNEL_CAST_TO_##type,
        DDPI_KERNEL_FLOATS(ROW)
#undef ROW
    };
    ddp_status status = check_cast(out, to, in, from, err);
    if (status == DDP_OK)
        status = ddpi_kernels_load(kernels, err);
    if (status != DDP_OK || count == 0)
        return status;
    struct ddpi_kernel_cast work = {.in = in, .out = out, .count = count, .to = numbers[to]};
    void *parameters[] = {&work};
    ddpi_cu_result result = kernels->cuda->launch_kernel(
        kernels->cast[from], blocks_for(count, kernels->multiprocessors), 1, 1, DDPI_KERNEL_THREADS,
        1, 1, 0, stream, parameters, NULL);
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    return ddpi_cuda_error(kernels->cuda, err, result, "cannot launch the cast of %zu %s", count,
                           ddp_dtype_name(from));
}
