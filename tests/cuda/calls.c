/*
 * calls.c - how a program gets at the functions, and what each of them does first: count, fail
 * where a test wants that, see that the driver is initialised and a context is current.
 *
 * DDP_HOST_CUDA_FAIL=NAME:NTH:RESULT[,...] lets the NTH call of a function return RESULT, a number;
 * NAME:NTH:kill ends the process there with SIGKILL.
 */
#include "host.h"
#include "parse.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAULTS_MAX = 8, RESULT_KILL = -1 };

struct fault {
    enum host_call call;
    unsigned nth;
    int result;
};

static const struct row {
    const char *name;
    int version;
    void *function;
} rows[] = {
#define ROW(member, name, version, parameters) {#name, version, (void *)(uintptr_t)name},
    DDPI_CUDA_FUNCTION_MAP(ROW)
#undef ROW
};

static struct fault faults[FAULTS_MAX];
static size_t nfaults;
static atomic_uint calls[HOST_CALLS];
static _Atomic pid_t initialised_in; /* the process that called cuInit */

const char *host_call_name(enum host_call call)
{
    return rows[call].name;
}

static bool find_call(const char *name, size_t len, enum host_call *ret_call)
{
    for (size_t i = 0; i < HOST_CALLS; i++) {
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0) {
            *ret_call = (enum host_call)i;
            return true;
        }
    }
    return false;
}

static bool parse_fault(const char *item, size_t len, struct fault *ret)
{
    char text[3][64] = {"", "", ""};
    const char *end = item + len;
    for (size_t i = 0; i < 3; i++) {
        const char *colon = memchr(item, ':', (size_t)(end - item));
        const char *stop = colon != NULL ? colon : end;
        snprintf(text[i], sizeof text[i], "%.*s", (int)(stop - item), item);
        item = colon != NULL ? colon + 1 : end;
    }
    int64_t nth = 0;
    int64_t result = RESULT_KILL;
    if (!find_call(text[0], strlen(text[0]), &ret->call) ||
        ddpi_parse_int(text[1], 1, INT32_MAX, &nth, NULL) != DDP_OK)
        return false;
    if (strcmp(text[2], "kill") != 0 && ddpi_parse_int(text[2], 1, 999, &result, NULL) != DDP_OK)
        return false;
    ret->nth = (unsigned)nth;
    ret->result = (int)result;
    return true;
}

/* From here on other functions than cuInit work. */
static void initialise(void)
{
    const char *text = getenv("DDP_HOST_CUDA_FAIL");
    const char *item = NULL;
    size_t len = 0;
    while (text != NULL && nfaults < FAULTS_MAX && ddpi_parse_list_next(&text, ',', &item, &len)) {
        if (!parse_fault(item, len, &faults[nfaults])) {
            fprintf(stderr, "libcuda (host): DDP_HOST_CUDA_FAIL has '%.*s'\n", (int)len, item);
            abort();
        }
        nfaults++;
    }
    atomic_store(&initialised_in, getpid());
}

static ddpi_cu_result inject(enum host_call call)
{
    unsigned nth = atomic_fetch_add(&calls[call], 1) + 1;
    for (size_t i = 0; i < nfaults; i++) {
        if (faults[i].call != call || faults[i].nth != nth)
            continue;
        if (faults[i].result == RESULT_KILL)
            raise(SIGKILL);
        return (ddpi_cu_result)faults[i].result;
    }
    return DDPI_CU_SUCCESS;
}

/* Those that may have to do with other streams: some of them, of which none is harmless. */
static bool disturbs_captures(enum host_call call)
{
    return call == HOST_cuMemAlloc || call == HOST_cuMemFree || call == HOST_cuMemHostAlloc ||
           call == HOST_cuMemFreeHost || call == HOST_cuModuleLoadData ||
           call == HOST_cuIpcCloseMemHandle || call == HOST_cuStreamSynchronize;
}

ddpi_cu_result host_enter(enum host_call call)
{
    if (atomic_load(&initialised_in) != getpid())
        return DDPI_CU_ERROR_NOT_INITIALIZED;
    if (disturbs_captures(call) && host_capture_forbids())
        return DDPI_CU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return inject(call);
}

ddpi_cu_result host_enter_context(enum host_call call, struct host_context **ret_context)
{
    ddpi_cu_result result = host_enter(call);
    if (result != DDPI_CU_SUCCESS)
        return result;
    struct host_context *context = host_current();
    if (context == NULL)
        return DDPI_CU_ERROR_INVALID_CONTEXT;
    host_lock();
    result = context->retained == 0 ? DDPI_CU_ERROR_CONTEXT_IS_DESTROYED : context->error;
    host_unlock();
    if (result == DDPI_CU_SUCCESS)
        *ret_context = context;
    return result;
}

DDP_API ddpi_cu_result cuInit(unsigned flags)
{
    if (flags != 0)
        return DDPI_CU_ERROR_INVALID_VALUE;
    if (host_settings()->devices == 0)
        return DDPI_CU_ERROR_NO_DEVICE;
    /* Before the lock, which a thread that does not exist after a fork may hold. */
    if (atomic_load(&initialised_in) == 0) {
        host_lock();
        if (atomic_load(&initialised_in) == 0)
            initialise();
        host_unlock();
    }
    return host_enter(HOST_cuInit);
}

DDP_API ddpi_cu_result cuDriverGetVersion(int *ret_version)
{
    *ret_version = host_settings()->version;
    return DDPI_CU_SUCCESS;
}

DDP_API ddpi_cu_result cuGetProcAddress_v2(const char *name, void **ret_function, int version,
                                           uint64_t flags, unsigned *ret_found);

DDP_API ddpi_cu_result cuGetProcAddress_v2(const char *name, void **ret_function, int version,
                                           uint64_t flags, unsigned *ret_found)
{
    (void)flags;
    *ret_function = NULL;
    *ret_found = DDPI_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (version > host_settings()->version)
        return DDPI_CU_ERROR_INVALID_VALUE;
    enum host_call call = HOST_CALLS;
    if (!find_call(name, strlen(name), &call))
        return DDPI_CU_SUCCESS;
    *ret_found = DDPI_CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (version < rows[call].version)
        return DDPI_CU_SUCCESS;
    *ret_found = DDPI_CU_GET_PROC_ADDRESS_SUCCESS;
    *ret_function = rows[call].function;
    return DDPI_CU_SUCCESS;
}
