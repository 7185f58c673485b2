/*
 * gpu_look.c - asks NVML for processes and memory of GPUs. Owns nothing; records what it has seen.
 *
 * NVML lists the processes with a context, and their memory. Memory in use that is not listed
 * belongs to the driver or to a process outside this container. On a GPU that workers have used it
 * must not have grown when they have ended.
 */
#include "gpu_look.h"

#include "clock.h"
#include "error.h"
#include "proc_stat.h"

#include <stdarg.h>
#include <stdio.h>

enum {
    PROCESSES_MAX = 128,
    ANCESTORS_MAX = 64,
    NAME_SHOWN = 80,
};

#define TOLERANCE (UINT64_C(512) << 20) /* the driver may keep this much */

struct snapshot {
    struct nvml_library_process processes[PROCESSES_MAX];
    unsigned count;
    uint64_t unlisted;
};

static bool take_snapshot(const struct gpu_look *look, uint32_t gpu, struct snapshot *ret)
{
    const struct nvml_library *nvml = &look->nvml;
    nvml_library_device device = look->devices[gpu];
    struct nvml_library_memory memory = {.version = NVML_LIBRARY_MEMORY_VERSION};
    ret->count = PROCESSES_MAX;
    if (nvml->get_processes == NULL || nvml->get_memory == NULL ||
        nvml->get_processes(device, &ret->count, ret->processes) != NVML_LIBRARY_SUCCESS ||
        nvml->get_memory(device, &memory) != NVML_LIBRARY_SUCCESS)
        return false;
    uint64_t listed = 0;
    for (unsigned i = 0; i < ret->count; i++)
        if (ret->processes[i].memory != NVML_LIBRARY_UNKNOWN)
            listed += ret->processes[i].memory;
    ret->unlisted = memory.used > listed ? memory.used - listed : 0;
    return true;
}

/* ---- opening ---- */

/* Memory of a process that begins to use the GPU between the two questions of a snapshot seems
 * unlisted, so there are two snapshots. */
static uint64_t unlisted_memory(const struct gpu_look *look, uint32_t gpu)
{
    struct snapshot first, second;
    if (!take_snapshot(look, gpu, &first) || !take_snapshot(look, gpu, &second))
        return UINT64_MAX;
    return first.unlisted < second.unlisted ? first.unlisted : second.unlisted;
}

ddp_status gpu_look_open(struct gpu_look *look, const char *list, struct ddp_error *err)
{
    ddp_status status = nvml_library_open(&look->nvml, err);
    if (status == DDP_OK)
        status = nvml_library_list(&look->nvml, look->gpus, look->devices, &look->count, err);
    if (status != DDP_OK)
        return status;
    look->visible_count = gpu_visible(look->gpus, look->count, list, look->visible);
    if (look->visible_count == 0)
        return ddpi_error_set(err, DDP_E_NOT_FOUND, "workers see no GPU");
    /* With a list of MIG instances each worker may get another one, so watch all GPUs. */
    bool split = look->visible_count == 1 && look->gpus[look->visible[0]].split;
    for (uint32_t i = 0; i < look->count; i++)
        look->watched[i] = split;
    for (uint32_t i = 0; i < look->visible_count; i++)
        look->watched[look->visible[i]] = true;
    for (uint32_t i = 0; i < look->count; i++)
        look->unlisted[i] = look->watched[i] ? unlisted_memory(look, i) : UINT64_MAX;
    return DDP_OK;
}

/* ---- uses ---- */

/* The worker that @pid is or descends from; @count: none. */
static uint32_t owner_of(pid_t pid, const pid_t *workers, uint32_t count)
{
    struct ddpi_proc_stat stat;
    for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
        for (uint32_t worker = 0; worker < count; worker++)
            if (workers[worker] == pid)
                return worker;
        pid = ddpi_proc_stat_read(pid, &stat) ? stat.parent : 0;
    }
    return count;
}

static struct gpu_use *find_use(struct gpu_look *look, uint32_t gpu, pid_t pid)
{
    for (uint32_t i = 0; i < look->uses_count; i++)
        if (look->uses[i].gpu == gpu && look->uses[i].pid == pid)
            return &look->uses[i];
    return NULL;
}

void gpu_look_forget(struct gpu_look *look)
{
    look->uses_count = 0;
}

void gpu_look_take(struct gpu_look *look, const pid_t *workers, uint32_t count)
{
    struct snapshot now;
    for (uint32_t gpu = 0; gpu < look->count; gpu++) {
        if (!look->watched[gpu] || !take_snapshot(look, gpu, &now))
            continue;
        for (unsigned i = 0; i < now.count; i++) {
            pid_t pid = (pid_t)now.processes[i].pid;
            uint32_t local_rank = owner_of(pid, workers, count);
            if (local_rank == count)
                continue;
            struct gpu_use *use = find_use(look, gpu, pid);
            if (use == NULL && look->uses_count < GPU_USES_MAX)
                use = &look->uses[look->uses_count++];
            if (use != NULL)
                *use = (struct gpu_use){.local_rank = local_rank,
                                        .gpu = gpu,
                                        .pid = pid,
                                        .bytes = now.processes[i].memory,
                                        .seen_us = ddpi_monotonic_us()};
        }
    }
}

/* ---- is the memory free? ---- */

/* @pid was a worker, or was seen as a descendant of one. */
static bool is_of_worker(struct gpu_look *look, uint32_t gpu, pid_t pid, const pid_t *workers,
                         uint32_t count)
{
    if (find_use(look, gpu, pid) != NULL)
        return true;
    for (uint32_t i = 0; i < count; i++)
        if (workers[i] == pid)
            return true;
    return false;
}

static bool has_grown(const struct gpu_look *look, uint32_t gpu, const struct snapshot *now)
{
    uint64_t before = look->unlisted[gpu];
    if (now->unlisted <= before || now->unlisted - before <= TOLERANCE)
        return false;
    for (uint32_t i = 0; i < look->uses_count; i++)
        if (look->uses[i].gpu == gpu)
            return true; /* by workers */
    return false;
}

static bool gpu_is_free(struct gpu_look *look, uint32_t gpu, const struct snapshot *now,
                        const pid_t *workers, uint32_t count)
{
    for (unsigned i = 0; i < now->count; i++)
        if (is_of_worker(look, gpu, (pid_t)now->processes[i].pid, workers, count))
            return false;
    return !has_grown(look, gpu, now);
}

bool gpu_look_is_free(struct gpu_look *look, const pid_t *workers, uint32_t count)
{
    struct snapshot now;
    for (uint32_t gpu = 0; gpu < look->count; gpu++)
        if (look->watched[gpu] && take_snapshot(look, gpu, &now) &&
            !gpu_is_free(look, gpu, &now, workers, count))
            return false;
    return true;
}

/* ---- holders ---- */

/* The beginning of its command line, made printable. */
static void process_name(pid_t pid, char text[NAME_SHOWN])
{
    char path[32], words[NAME_SHOWN] = "";
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    FILE *file = fopen(path, "re");
    size_t len = file != NULL ? fread(words, 1, sizeof words - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    while (len > 0 && words[len - 1] == '\0')
        len--;
    for (size_t i = 0; i < len; i++)
        if (words[i] < ' ' || words[i] > '~')
            words[i] = words[i] == '\0' ? ' ' : '?';
    snprintf(text, NAME_SHOWN, "%s", len > 0 ? words : "not visible from here");
}

struct lines {
    char *text;
    size_t used;
};

/* Add a whole line, if it fits. */
DDP_PRINTF(2, 3) static void add_line(struct lines *lines, const char *format, ...)
{
    size_t room = GPU_HOLDERS_TEXT - lines->used;
    va_list args;
    va_start(args, format);
    int len = vsnprintf(lines->text + lines->used, room, format, args);
    va_end(args);
    if (len >= 0 && (size_t)len < room)
        lines->used += (size_t)len;
    else
        lines->text[lines->used] = '\0';
}

static void add_holder(struct lines *lines, const char *label,
                       const struct nvml_library_process *process, bool ours)
{
    char size[GPU_SIZE_TEXT] = "memory", name[NAME_SHOWN];
    pid_t pid = (pid_t)process->pid;
    if (process->memory != NVML_LIBRARY_UNKNOWN)
        gpu_size(process->memory, size);
    process_name(pid, name);
    if (!ours)
        add_line(lines, "%s still has %s of pid %d (%s), not one of ours\n", label, size, (int)pid,
                 name);
    else
        add_line(lines,
                 "%s still has %s of pid %d, a worker of ours that has ended: the driver has not "
                 "freed it\n",
                 label, size, (int)pid);
}

static void add_holders(struct gpu_look *look, uint32_t gpu, const struct snapshot *now,
                        const pid_t *workers, uint32_t count, struct lines *lines)
{
    char label[GPU_LABEL], size[GPU_SIZE_TEXT];
    gpu_label(&look->gpus[gpu], label);
    for (unsigned i = 0; i < now->count; i++)
        add_holder(lines, label, &now->processes[i],
                   is_of_worker(look, gpu, (pid_t)now->processes[i].pid, workers, count));
    if (!has_grown(look, gpu, now))
        return;
    gpu_size(now->unlisted - look->unlisted[gpu], size);
    add_line(lines,
             "%s has %s more in use than before the workers, and NVML lists no process for it\n",
             label, size);
    look->unlisted[gpu] = now->unlisted;
}

void gpu_look_holders(struct gpu_look *look, const pid_t *workers, uint32_t count,
                      char text[GPU_HOLDERS_TEXT])
{
    struct lines lines = {.text = text};
    struct snapshot now;
    text[0] = '\0';
    for (uint32_t gpu = 0; gpu < look->count; gpu++)
        if (look->watched[gpu] && take_snapshot(look, gpu, &now) &&
            !gpu_is_free(look, gpu, &now, workers, count))
            add_holders(look, gpu, &now, workers, count, &lines);
}
