/*
 * nvml.c - a libnvidia-ml.so.1 for machines without a GPU: answers from files in the folder
 * $DDP_TEST_NVML. Each call reads them again, so that a test or a worker changes the GPUs by
 * writing to a file:
 *
 *     gpus       UUID NAME            a GPU each, in the order of their indices
 *     instances  GPU UUID             an instance of it: it is in MIG mode
 *     processes  GPU PID BYTES        a process with a context, while it lives
 *     kept       GPU PID BYTES        the same, dead or alive
 *     coming     GPU PID BYTES        the same, but not in the first list of processes
 *     memory     GPU BYTES            in use, without a process
 *     events     GPU TYPE DATA        reported one after another, as lines are appended
 *     results    FUNCTION RESULT      returned by that function; "hang": after 10 s
 *
 * Each call appends its function's name to the file "calls", if it exists.
 */
#include "nvml_library.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { HANG_MS = 60000, WORDS = 4, GPU_BYTES_GIB = 80 };

/* A device is a place: of a GPU, or behind them of an instance. */
static char places[2 * GPUS_MAX];

static nvml_library_device device_at(size_t place)
{
    return (nvml_library_device)(void *)&places[place];
}

static size_t place_of(nvml_library_device device)
{
    return (size_t)((char *)device - places);
}

/* ---- the files ---- */

struct table {
    FILE *file;
    char *line;
    size_t size;
    char *words[WORDS];
};

static void path_of(const char *name, char *path, size_t size)
{
    const char *folder = getenv("DDP_TEST_NVML");
    snprintf(path, size, "%s/%s", folder != NULL ? folder : "/nowhere", name);
}

static void table_open(struct table *table, const char *name)
{
    char path[4096];
    path_of(name, path, sizeof path);
    *table = (struct table){.file = fopen(path, "re")};
}

/* The next line in words, of which the last takes the rest; false: there is none. */
static bool table_next(struct table *table, unsigned words)
{
    static char none[] = "";
    ssize_t len = table->file != NULL ? getline(&table->line, &table->size, table->file) : -1;
    if (len <= 0)
        return false;
    if (table->line[len - 1] == '\n')
        table->line[len - 1] = '\0';
    char *rest = table->line;
    for (unsigned i = 0; i < WORDS; i++) {
        table->words[i] = i < words ? rest : none;
        char *blank = i + 1 < words ? strchr(rest, ' ') : NULL;
        if (blank != NULL)
            *blank = '\0';
        rest = blank != NULL ? blank + 1 : none;
    }
    return true;
}

static uint64_t number(const char *word)
{
    return strtoull(word, NULL, 10);
}

static void table_close(struct table *table)
{
    free(table->line);
    if (table->file != NULL)
        fclose(table->file);
}

static void note_call(const char *function)
{
    char path[4096];
    path_of("calls", path, sizeof path);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return;
    dprintf(fd, "%s\n", function);
    close(fd);
}

/* What the function is to say, before it does anything. */
static nvml_library_result called(const char *function)
{
    nvml_library_result result = NVML_LIBRARY_SUCCESS;
    bool hang = false;
    struct table table;
    note_call(function);
    table_open(&table, "results");
    while (table_next(&table, 2))
        if (strcmp(table.words[0], function) == 0) {
            hang = strcmp(table.words[1], "hang") == 0;
            result = (nvml_library_result)number(table.words[1]);
        }
    table_close(&table);
    if (hang)
        poll(NULL, 0, HANG_MS);
    return hang ? NVML_LIBRARY_ERROR_TIMEOUT : result;
}

#define CALLED()                                              \
    do {                                                      \
        nvml_library_result called_result = called(__func__); \
        if (called_result != NVML_LIBRARY_SUCCESS)            \
            return called_result;                             \
    } while (0)

/* Copy word @word of line @place of the file @name, of those that begin with @of (NULL: any). */
static bool find_line(const char *name, const char *of, size_t place, unsigned word, char *text,
                      size_t size)
{
    struct table table;
    bool found = false;
    size_t at = 0;
    table_open(&table, name);
    while (!found && table_next(&table, 2)) {
        if (of != NULL && strcmp(table.words[0], of) != 0)
            continue;
        found = at++ == place;
        if (found)
            snprintf(text, size, "%s", table.words[word]);
    }
    table_close(&table);
    return found;
}

/* ---- the library ---- */

EXPORT nvml_library_result nvmlInit_v2(void);
EXPORT nvml_library_result nvmlInit_v2(void)
{
    CALLED();
    return NVML_LIBRARY_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvml_library_result result);
EXPORT const char *nvmlErrorString(nvml_library_result result)
{
    (void)result;
    return "An error of the test";
}

EXPORT nvml_library_result nvmlDeviceGetCount_v2(unsigned *ret_count);
EXPORT nvml_library_result nvmlDeviceGetCount_v2(unsigned *ret_count)
{
    char text[GPU_TEXT];
    CALLED();
    for (*ret_count = 0; find_line("gpus", NULL, *ret_count, 0, text, sizeof text);)
        ++*ret_count;
    return NVML_LIBRARY_SUCCESS;
}

EXPORT nvml_library_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_library_device *ret);
EXPORT nvml_library_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_library_device *ret)
{
    char text[GPU_TEXT];
    CALLED();
    if (!find_line("gpus", NULL, index, 0, text, sizeof text))
        return NVML_LIBRARY_ERROR_INVALID_ARGUMENT;
    *ret = device_at(index);
    return NVML_LIBRARY_SUCCESS;
}

EXPORT nvml_library_result nvmlDeviceGetUUID(nvml_library_device device, char *text, unsigned size);
EXPORT nvml_library_result nvmlDeviceGetUUID(nvml_library_device device, char *text, unsigned size)
{
    size_t place = place_of(device);
    CALLED();
    bool found = place < GPUS_MAX ? find_line("gpus", NULL, place, 0, text, size)
                                  : find_line("instances", NULL, place - GPUS_MAX, 1, text, size);
    return found ? NVML_LIBRARY_SUCCESS : NVML_LIBRARY_ERROR_GPU_IS_LOST;
}

#ifndef NVML_NEEDED_ONLY

EXPORT nvml_library_result nvmlDeviceGetName(nvml_library_device device, char *text, unsigned size);
EXPORT nvml_library_result nvmlDeviceGetName(nvml_library_device device, char *text, unsigned size)
{
    CALLED();
    return find_line("gpus", NULL, place_of(device), 1, text, size)
               ? NVML_LIBRARY_SUCCESS
               : NVML_LIBRARY_ERROR_GPU_IS_LOST;
}

static bool instance_of(nvml_library_device device, size_t place, char *text, size_t size)
{
    char gpu[24];
    snprintf(gpu, sizeof gpu, "%zu", place_of(device));
    return find_line("instances", gpu, place, 1, text, size);
}

EXPORT nvml_library_result nvmlDeviceGetMigMode(nvml_library_device device, unsigned *ret,
                                                unsigned *next);
EXPORT nvml_library_result nvmlDeviceGetMigMode(nvml_library_device device, unsigned *ret,
                                                unsigned *next)
{
    char text[GPU_TEXT];
    CALLED();
    *ret = *next = instance_of(device, 0, text, sizeof text) ? NVML_LIBRARY_DEVICE_MIG_ENABLE : 0;
    return NVML_LIBRARY_SUCCESS;
}

EXPORT nvml_library_result nvmlDeviceGetMaxMigDeviceCount(nvml_library_device device,
                                                          unsigned *ret_count);
EXPORT nvml_library_result nvmlDeviceGetMaxMigDeviceCount(nvml_library_device device,
                                                          unsigned *ret_count)
{
    (void)device;
    CALLED();
    *ret_count = 7;
    return NVML_LIBRARY_SUCCESS;
}

EXPORT nvml_library_result nvmlDeviceGetMigDeviceHandleByIndex(nvml_library_device device,
                                                               unsigned index,
                                                               nvml_library_device *ret);
EXPORT nvml_library_result nvmlDeviceGetMigDeviceHandleByIndex(nvml_library_device device,
                                                               unsigned index,
                                                               nvml_library_device *ret)
{
    char uuid[GPU_TEXT], other[GPU_TEXT];
    size_t place = 0;
    CALLED();
    if (!instance_of(device, index, uuid, sizeof uuid))
        return NVML_LIBRARY_ERROR_NOT_FOUND;
    while (find_line("instances", NULL, place, 1, other, sizeof other) && strcmp(uuid, other) != 0)
        place++;
    *ret = device_at(GPUS_MAX + place);
    return NVML_LIBRARY_SUCCESS;
}

/* The processes of one file; those that are dead do not count, unless they are @kept. */
static unsigned add_processes(const char *name, bool kept, size_t gpu,
                              struct nvml_library_process *processes, unsigned used, unsigned room)
{
    struct table table;
    table_open(&table, name);
    while (table_next(&table, 3) && used < room) {
        pid_t pid = (pid_t)number(table.words[1]);
        if (number(table.words[0]) != gpu || (!kept && kill(pid, 0) != 0 && errno == ESRCH))
            continue;
        processes[used++] =
            (struct nvml_library_process){.pid = (unsigned)pid, .memory = number(table.words[2])};
    }
    table_close(&table);
    return used;
}

static unsigned list_processes(size_t gpu, bool coming, struct nvml_library_process *processes,
                               unsigned room)
{
    unsigned used = add_processes("processes", false, gpu, processes, 0, room);
    used = add_processes("kept", true, gpu, processes, used, room);
    return coming ? add_processes("coming", true, gpu, processes, used, room) : used;
}

EXPORT nvml_library_result nvmlDeviceGetComputeRunningProcesses_v3(
    nvml_library_device device, unsigned *count, struct nvml_library_process *processes);
EXPORT nvml_library_result nvmlDeviceGetComputeRunningProcesses_v3(
    nvml_library_device device, unsigned *count, struct nvml_library_process *processes)
{
    static atomic_bool is_later[sizeof places];
    size_t gpu = place_of(device);
    CALLED();
    *count = list_processes(gpu, atomic_exchange(&is_later[gpu], true), processes, *count);
    return NVML_LIBRARY_SUCCESS;
}

EXPORT nvml_library_result nvmlDeviceGetMemoryInfo_v2(nvml_library_device device,
                                                      struct nvml_library_memory *ret);
EXPORT nvml_library_result nvmlDeviceGetMemoryInfo_v2(nvml_library_device device,
                                                      struct nvml_library_memory *ret)
{
    struct nvml_library_process processes[GPUS_MAX];
    struct table table;
    size_t gpu = place_of(device);
    CALLED();
    if (ret->version != NVML_LIBRARY_MEMORY_VERSION)
        return NVML_LIBRARY_ERROR_INVALID_ARGUMENT;
    ret->total = (unsigned long long)GPU_BYTES_GIB << 30;
    ret->used = 0;
    unsigned count = list_processes(gpu, true, processes, GPUS_MAX);
    for (unsigned i = 0; i < count; i++)
        ret->used += processes[i].memory;
    table_open(&table, "memory");
    while (table_next(&table, 2))
        if (number(table.words[0]) == gpu)
            ret->used += number(table.words[1]);
    table_close(&table);
    ret->free = ret->total - ret->used;
    return NVML_LIBRARY_SUCCESS;
}

/* ---- events ---- */

EXPORT nvml_library_result nvmlDeviceGetSupportedEventTypes(nvml_library_device device,
                                                            unsigned long long *ret_types);
EXPORT nvml_library_result nvmlDeviceGetSupportedEventTypes(nvml_library_device device,
                                                            unsigned long long *ret_types)
{
    (void)device;
    CALLED();
    *ret_types =
        NVML_LIBRARY_EVENT_XID | NVML_LIBRARY_EVENT_ECC_DOUBLE | NVML_LIBRARY_EVENT_ECC_SINGLE;
    return NVML_LIBRARY_SUCCESS;
}

EXPORT nvml_library_result nvmlEventSetCreate(nvml_library_event_set *ret);
EXPORT nvml_library_result nvmlEventSetCreate(nvml_library_event_set *ret)
{
    static long told; /* bytes of the file; there is one set */
    CALLED();
    *ret = (nvml_library_event_set)(void *)&told;
    return NVML_LIBRARY_SUCCESS;
}

EXPORT nvml_library_result nvmlDeviceRegisterEvents(nvml_library_device device,
                                                    unsigned long long types,
                                                    nvml_library_event_set set);
EXPORT nvml_library_result nvmlDeviceRegisterEvents(nvml_library_device device,
                                                    unsigned long long types,
                                                    nvml_library_event_set set)
{
    (void)device;
    (void)set;
    CALLED();
    return types != 0 ? NVML_LIBRARY_SUCCESS : NVML_LIBRARY_ERROR_INVALID_ARGUMENT;
}

static bool next_event(long *told, struct nvml_library_event *ret)
{
    struct table table;
    table_open(&table, "events");
    bool found =
        table.file != NULL && fseek(table.file, *told, SEEK_SET) == 0 && table_next(&table, 3);
    if (found) {
        *told = ftell(table.file);
        *ret = (struct nvml_library_event){.device = device_at(number(table.words[0])),
                                           .type = number(table.words[1]),
                                           .data = number(table.words[2])};
    }
    table_close(&table);
    return found;
}

EXPORT nvml_library_result nvmlEventSetWait_v2(nvml_library_event_set set,
                                               struct nvml_library_event *ret, unsigned timeout_ms);
EXPORT nvml_library_result nvmlEventSetWait_v2(nvml_library_event_set set,
                                               struct nvml_library_event *ret, unsigned timeout_ms)
{
    CALLED();
    for (unsigned waited_ms = 0; !next_event((void *)set, ret); waited_ms++) {
        if (waited_ms >= timeout_ms)
            return NVML_LIBRARY_ERROR_TIMEOUT;
        poll(NULL, 0, 1);
    }
    return NVML_LIBRARY_SUCCESS;
}

#endif
