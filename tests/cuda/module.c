/*
 * module.c - modules, their functions and launches. Any image is a module that has all kernels that
 * twins.c knows: what is in the image is nothing that a host could run.
 */
#include "host.h"

#include <stdlib.h>
#include <string.h>

struct module {
    struct ddpi_list link;
    struct host_context *context;
    struct ddpi_list functions; /* function::link */
};

struct function {
    struct ddpi_list link;
    const struct module *module;
    const struct host_kernel *kernel;
};

struct launch {
    struct host_work work;
    const struct host_kernel *kernel;
    max_align_t parameter[]; /* a copy: the caller's may be gone when the kernel runs */
};

static struct ddpi_list modules = {&modules, &modules};

static struct module *find_module(ddpi_cu_module handle)
{
    ddpi_list_for_each (node, &modules) {
        struct module *module = ddpi_container_of(node, struct module, link);
        if ((const void *)module == (const void *)handle)
            return module;
    }
    return NULL;
}

static const struct function *find_function(ddpi_cu_function handle)
{
    ddpi_list_for_each (node, &modules) {
        struct module *module = ddpi_container_of(node, struct module, link);
        ddpi_list_for_each (inner, &module->functions) {
            const struct function *function = ddpi_container_of(inner, struct function, link);
            if ((const void *)function == (const void *)handle)
                return function;
        }
    }
    return NULL;
}

/* The real driver may have to wait for the context here, so this one always does: work that waits
 * for something that comes after the loading of a module hangs in tests, not at a customer's. */
ddpi_cu_result cuModuleLoadData(ddpi_cu_module *ret_module, const void *image)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuModuleLoadData, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (image == NULL)
        return DDPI_CU_ERROR_INVALID_VALUE;
    struct module *module = calloc(1, sizeof *module);
    if (module == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    module->context = context;
    ddpi_list_init(&module->functions);
    host_lock();
    host_context_drain(context, host_call_name(HOST_cuModuleLoadData));
    ddpi_list_append(&modules, &module->link);
    host_unlock();
    *ret_module = (ddpi_cu_module)(void *)module;
    return DDPI_CU_SUCCESS;
}

static void free_module(struct module *module)
{
    ddpi_list_for_each_safe (node, &module->functions)
        free(ddpi_container_of(node, struct function, link));
    ddpi_list_remove(&module->link);
    free(module);
}

ddpi_cu_result cuModuleUnload(ddpi_cu_module handle)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuModuleUnload, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    host_context_drain(context, host_call_name(HOST_cuModuleUnload));
    struct module *module = find_module(handle);
    if (module == NULL)
        result = DDPI_CU_ERROR_INVALID_HANDLE;
    else
        free_module(module);
    host_unlock();
    return result;
}

/* Under the lock: the same function each time, as a program may ask again and again. */
static const struct function *get_function(struct module *module, const struct host_kernel *kernel)
{
    ddpi_list_for_each (node, &module->functions) {
        const struct function *known = ddpi_container_of(node, struct function, link);
        if (known->kernel == kernel)
            return known;
    }
    struct function *function = calloc(1, sizeof *function);
    if (function == NULL)
        return NULL;
    function->module = module;
    function->kernel = kernel;
    ddpi_list_append(&module->functions, &function->link);
    return function;
}

ddpi_cu_result cuModuleGetFunction(ddpi_cu_function *ret_function, ddpi_cu_module handle,
                                   const char *name)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuModuleGetFunction, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    const struct host_kernel *kernel = host_kernel_find(name);
    const struct function *function = NULL;
    host_lock();
    struct module *module = find_module(handle);
    if (module == NULL)
        result = DDPI_CU_ERROR_INVALID_HANDLE;
    else if (kernel == NULL)
        result = DDPI_CU_ERROR_NOT_FOUND;
    else if ((function = get_function(module, kernel)) == NULL)
        result = DDPI_CU_ERROR_OUT_OF_MEMORY;
    host_unlock();
    if (result == DDPI_CU_SUCCESS)
        *ret_function = (ddpi_cu_function)(void *)(uintptr_t)function;
    return result;
}

static ddpi_cu_result run_launch(struct host_work *work)
{
    const struct launch *launch = (const struct launch *)(const void *)work;
    host_delay();
    return launch->kernel->run(launch->kernel, launch->parameter,
                               host_stream_context(work->stream)->device);
}

/* Under the lock: a kernel runs in the context of its module only. */
static ddpi_cu_result find_kernel(ddpi_cu_function handle, ddpi_cu_stream stream,
                                  struct host_context *context,
                                  const struct host_kernel **ret_kernel)
{
    const struct function *function = find_function(handle);
    if (function == NULL || host_stream_find(stream, &context) == NULL ||
        function->module->context != context)
        return DDPI_CU_ERROR_INVALID_HANDLE;
    *ret_kernel = function->kernel;
    return DDPI_CU_SUCCESS;
}

static bool is_shape_possible(unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z, unsigned shared_bytes)
{
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    return grid_x > 0 && grid_x <= INT32_MAX && grid_y > 0 && grid_y <= UINT16_MAX && grid_z > 0 &&
           grid_z <= UINT16_MAX && threads > 0 && threads <= 1024 && shared_bytes <= 48 << 10;
}

ddpi_cu_result cuLaunchKernel(ddpi_cu_function handle, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, ddpi_cu_stream stream, void **parameters,
                              void **extra)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuLaunchKernel, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (parameters == NULL || extra != NULL ||
        !is_shape_possible(grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes))
        return DDPI_CU_ERROR_INVALID_VALUE;
    const struct host_kernel *kernel = NULL;
    host_lock();
    result = find_kernel(handle, stream, context, &kernel);
    host_unlock();
    if (result != DDPI_CU_SUCCESS)
        return result;
    struct launch *launch = calloc(1, sizeof *launch + kernel->parameter_size);
    if (launch == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    launch->work.run = run_launch;
    launch->kernel = kernel;
    memcpy(launch->parameter, parameters[0], kernel->parameter_size);
    return host_stream_submit(context, stream, &launch->work);
}
