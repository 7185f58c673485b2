/*
 * nvml_library.c - loads NVML, formats its errors, and lists the GPUs. Owns nothing.
 */
#include "nvml_library.h"

#include "error.h"
#include "library.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libnvidia-ml.so.1"

static const struct ddpi_symbol symbols[] = {
#define SYMBOL(member, name, needed, parameters) \
    {#name, offsetof(struct nvml_library, member), !(needed)},
    NVML_LIBRARY_FUNCTION_MAP(SYMBOL)
#undef SYMBOL
};

static ddp_status say_absent(const char *why, struct ddp_error *err)
{
    /* A container may have the GPUs but not this library. */
    if (access("/proc/driver/nvidia/version", F_OK) == 0)
        return ddpi_error_set(err, DDP_E_SYSTEM,
                              "a GPU driver is present, but not its library NVML (%s); in a "
                              "container, add 'utility' to NVIDIA_DRIVER_CAPABILITIES",
                              why);
    return ddpi_error_set(err, DDP_E_NOT_FOUND, "NVML was not found (%s)", why);
}

static ddp_status nvml_failed(void *library, nvml_library_result result, const char *what,
                              struct ddp_error *err)
{
    const char *(*error_string)(nvml_library_result) = NULL;
    void *symbol = dlsym(library, "nvmlErrorString");
    memcpy(&error_string, &symbol, sizeof symbol);
    const char *text = error_string != NULL ? error_string(result) : NULL;
    if (result == NVML_LIBRARY_ERROR_DRIVER_NOT_LOADED)
        return ddpi_error_set(err, DDP_E_NOT_FOUND, "NVML was found, but no driver is loaded");
    ddp_status status =
        ddpi_error_set(err, DDP_E_SYSTEM, "NVML: %s: %s (%d)", what,
                       text != NULL ? text : "an error without a name", (int)result);
    return result == NVML_LIBRARY_ERROR_LIB_RM_VERSION_MISMATCH
               ? ddpi_error_advise(err, status, "the driver was updated but not reloaded: reboot")
               : ddpi_error_advise(err, status, "check that 'nvidia-smi' works here");
}

ddp_status nvml_library_open(struct nvml_library *nvml, struct ddp_error *err)
{
    void *library = ddpi_library_open(LIBRARY);
    if (library == NULL)
        return say_absent(dlerror(), err);
    const char *missing =
        ddpi_library_find(library, symbols, sizeof symbols / sizeof *symbols, nvml);
    if (missing != NULL)
        return ddpi_error_set(err, DDP_E_SYSTEM,
                              "%s has no function %s; a driver for CUDA 11 or later is needed",
                              LIBRARY, missing);
    nvml_library_result result = nvml->init();
    return result == NVML_LIBRARY_SUCCESS ? DDP_OK
                                          : nvml_failed(library, result, "it does not start", err);
}

/* A GPU that does not report a MIG mode has no instances. */
static void list_instances(const struct nvml_library *nvml, nvml_library_device device,
                           struct gpu *gpu)
{
    unsigned mode = 0, pending = 0, places = 0;
    nvml_library_device instance;
    if (nvml->get_mig_mode == NULL || nvml->get_max_instances == NULL ||
        nvml->get_instance == NULL ||
        nvml->get_mig_mode(device, &mode, &pending) != NVML_LIBRARY_SUCCESS)
        return;
    gpu->split = mode == NVML_LIBRARY_DEVICE_MIG_ENABLE;
    if (!gpu->split || nvml->get_max_instances(device, &places) != NVML_LIBRARY_SUCCESS)
        return;
    for (unsigned i = 0; i < places && gpu->instances < GPU_INSTANCES_MAX; i++)
        if (nvml->get_instance(device, i, &instance) == NVML_LIBRARY_SUCCESS &&
            nvml->get_uuid(instance, gpu->instance_uuids[gpu->instances], GPU_TEXT) ==
                NVML_LIBRARY_SUCCESS)
            gpu->instances++;
}

/* GPUs that do not answer are left out: no program can use them. */
ddp_status nvml_library_list(const struct nvml_library *nvml, struct gpu *ret_gpus,
                             nvml_library_device *ret_devices, uint32_t *ret_count,
                             struct ddp_error *err)
{
    unsigned present = 0;
    uint32_t count = 0;
    nvml_library_result result = nvml->get_count(&present);
    if (result != NVML_LIBRARY_SUCCESS)
        return ddpi_error_set(err, DDP_E_SYSTEM,
                              "NVML does not say how many GPUs there are (error %d); see whether "
                              "'nvidia-smi' works here",
                              (int)result);
    for (unsigned i = 0; i < present && count < GPUS_MAX; i++) {
        struct gpu *gpu = &ret_gpus[count];
        *gpu = (struct gpu){.index = i};
        if (nvml->get_device(i, &ret_devices[count]) != NVML_LIBRARY_SUCCESS ||
            nvml->get_uuid(ret_devices[count], gpu->uuid, GPU_TEXT) != NVML_LIBRARY_SUCCESS)
            continue;
        if (nvml->get_name == NULL ||
            nvml->get_name(ret_devices[count], gpu->name, GPU_TEXT) != NVML_LIBRARY_SUCCESS)
            gpu->name[0] = '\0';
        list_instances(nvml, ret_devices[count], gpu);
        count++;
    }
    *ret_count = count;
    return DDP_OK;
}
