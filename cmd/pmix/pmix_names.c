/*
 * pmix_names.c - see pmix_names.h. A call is one request to the store for each of its names. A
 * value in the store is a byte, whether the first reader deletes it, and what libpmix makes of the
 * name: who has published it, and what.
 */
#include "pmix_names.h"

#include "mem.h"

#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_KEY_SIZE = 1024 };

enum name_verb { NAME_PUBLISH, NAME_LOOKUP, NAME_UNPUBLISH };

struct name_call;

/* One name of a call. */
struct name_item {
    struct name_call *call;
    char key[NAME_KEY_SIZE];   /* in the store */
    pmix_byte_object_t packed; /* PUBLISH: the value; from malloc(), by libpmix */
};

struct name_call {
    struct pmix_task task;
    enum name_verb verb;
    bool waits; /* LOOKUP: until the name is published */
    uint32_t timeout_ms;
    pmix_op_cbfunc_t done;
    pmix_lookup_cbfunc_t looked_up;
    void *cbdata;
    size_t requests; /* not answered yet */
    pmix_status_t status;
    pmix_pdata_t *found; /* LOOKUP: @found_count of them */
    size_t found_count;
    bool once; /* PUBLISH: the first reader deletes it */
    size_t count;
    struct name_item items[];
};

static struct {
    struct pmix_gathering *gathering;
    struct pmix_tasks *tasks;
} names;

/* ---- a call ---- */

static void free_name_call(struct name_call *call)
{
    for (size_t i = 0; i < call->count; i++)
        free(call->items[i].packed.bytes);
    if (call->found != NULL)
        PMIX_PDATA_FREE(call->found, call->count);
    ddpi_free(call);
}

static void answer_name_request(struct name_call *call)
{
    if (--call->requests > 0)
        return;
    if (call->verb != NAME_LOOKUP)
        call->done(call->status, call->cbdata);
    else if (call->found_count == 0)
        call->looked_up(call->status != PMIX_SUCCESS ? call->status : PMIX_ERR_NOT_FOUND, NULL, 0,
                        call->cbdata);
    else
        call->looked_up(call->found_count == call->count ? PMIX_SUCCESS : PMIX_ERR_PARTIAL_SUCCESS,
                        call->found, call->found_count, call->cbdata);
    free_name_call(call);
}

static pmix_status_t status_of_name(const struct name_call *call, ddp_status status)
{
    if (status == DDP_OK || (call->verb == NAME_UNPUBLISH && status == DDP_E_NOT_FOUND))
        return PMIX_SUCCESS;
    if (status == DDP_E_NOT_FOUND)
        return PMIX_ERR_NOT_FOUND;
    return status == DDP_E_TIMEOUT ? PMIX_ERR_TIMEOUT : PMIX_ERROR;
}

/* libpmix frees what it is given to unpack. */
static bool unpack_name(const char *bytes, size_t len, pmix_pdata_t *ret)
{
    pmix_data_buffer_t buffer;
    pmix_byte_object_t packed = {.bytes = malloc(len), .size = len};
    int32_t one = 1;
    if (packed.bytes == NULL)
        return false;
    memcpy(packed.bytes, bytes, len);
    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    bool good = PMIx_Data_load(&buffer, &packed) == PMIX_SUCCESS &&
                PMIx_Data_unpack(NULL, &buffer, ret, &one, PMIX_PDATA) == PMIX_SUCCESS;
    PMIX_DATA_BUFFER_DESTRUCT(&buffer);
    return good;
}

static void take_found(struct name_item *item, const char *value, size_t len)
{
    struct name_call *call = item->call;
    struct ddp_error err;
    const struct ddp_store_request forget = {.size = sizeof forget,
                                             .op = DDP_STORE_OP_DELETE,
                                             .timeout_ms = DDP_STORE_FOREVER,
                                             .key = item->key};
    if (len < 2 || !unpack_name(value + 1, len - 1, &call->found[call->found_count]))
        return;
    call->found_count++;
    if (value[0] != 0) /* without an answer: it expires with the generation */
        (void)!ddp_store_uv_submit(names.gathering->store, &forget, NULL, NULL, NULL, &err);
}

static void on_name_answered(void *data, const struct ddp_store_result *result)
{
    struct name_item *item = data;
    struct name_call *call = item->call;
    pmix_status_t status = status_of_name(call, result->status);
    if (status != PMIX_SUCCESS && call->status == PMIX_SUCCESS)
        call->status = status;
    if (call->verb == NAME_LOOKUP && result->status == DDP_OK)
        take_found(item, result->value, result->value_len);
    answer_name_request(call);
}

static ddp_status ask_for_name(struct name_call *call, struct name_item *item,
                               struct ddp_error *err)
{
    static const enum ddp_store_op ops[] = {[NAME_PUBLISH] = DDP_STORE_OP_SET,
                                            [NAME_LOOKUP] = DDP_STORE_OP_TRY_GET,
                                            [NAME_UNPUBLISH] = DDP_STORE_OP_DELETE};
    const struct ddp_store_request request = {
        .size = sizeof request,
        .op = call->waits ? DDP_STORE_OP_GET : ops[call->verb],
        .timeout_ms = call->timeout_ms,
        .key = item->key,
        .value = item->packed.bytes,
        .value_len = item->packed.size,
    };
    return ddp_store_uv_submit(names.gathering->store, &request, on_name_answered, item, NULL, err);
}

/* With one request more than there are, so that no answer ends the call meanwhile. */
static void run_name_call(struct pmix_task *task)
{
    struct name_call *call = ddpi_container_of(task, struct name_call, task);
    struct ddp_error err;
    ddp_status status = pmix_gather_connect(names.gathering, &err);
    call->requests = 1;
    for (size_t i = 0; i < call->count && status == DDP_OK; i++) {
        status = ask_for_name(call, &call->items[i], &err);
        call->requests += status == DDP_OK;
    }
    if (status != DDP_OK)
        call->status = PMIX_ERROR;
    answer_name_request(call);
}

/* ---- from libpmix's thread ---- */

static struct name_call *make_name_call(enum name_verb verb, size_t count, void *cbdata)
{
    struct name_call *call = ddpi_calloc(1, sizeof *call + count * sizeof *call->items);
    if (call == NULL)
        return NULL;
    call->task.run = run_name_call;
    call->verb = verb;
    call->timeout_ms = DDP_STORE_FOREVER;
    call->cbdata = cbdata;
    return call;
}

static bool add_name(struct name_call *call, const char *name)
{
    struct name_item *item = &call->items[call->count];
    int len = snprintf(item->key, sizeof item->key, "pmix/name/%s", name);
    item->call = call;
    call->count++;
    return len < (int)sizeof item->key;
}

/* Names of PMIx's own say how to do it: none is published. */
static bool is_directive(const pmix_info_t *info)
{
    return strncmp(info->key, "pmix.", 5) == 0;
}

static void take_directives(struct name_call *call, const pmix_info_t info[], size_t ninfo)
{
    int seconds = 0;
    for (size_t i = 0; i < ninfo; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_WAIT))
            call->waits = call->verb == NAME_LOOKUP;
        else if (PMIX_CHECK_KEY(&info[i], PMIX_PERSISTENCE))
            call->once = info[i].value.data.persist == PMIX_PERSIST_FIRST_READ;
        else if (PMIX_CHECK_KEY(&info[i], PMIX_TIMEOUT) && info[i].value.type == PMIX_INT)
            seconds = info[i].value.data.integer;
    if (seconds > 0 && (uint32_t)seconds < DDP_STORE_FOREVER / 1000)
        call->timeout_ms = (uint32_t)seconds * 1000;
}

static bool pack_name(const struct name_call *call, const pmix_proc_t *proc,
                      const pmix_info_t *info, pmix_byte_object_t *ret)
{
    pmix_data_buffer_t buffer;
    pmix_pdata_t data = {.proc = *proc, .value = info->value};
    uint8_t once = call->once;
    PMIX_LOAD_KEY(data.key, info->key);
    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    bool good = PMIx_Data_pack(NULL, &buffer, &data, 1, PMIX_PDATA) == PMIX_SUCCESS &&
                PMIx_Data_unload(&buffer, ret) == PMIX_SUCCESS;
    PMIX_DATA_BUFFER_DESTRUCT(&buffer);
    char *bytes = good ? realloc(ret->bytes, ret->size + 1) : NULL;
    if (bytes == NULL)
        return false;
    memmove(bytes + 1, bytes, ret->size);
    bytes[0] = (char)once;
    *ret = (pmix_byte_object_t){.bytes = bytes, .size = ret->size + 1};
    return true;
}

static pmix_status_t post_names(struct name_call *call, bool good)
{
    if (!good) {
        free_name_call(call);
        return PMIX_ERR_BAD_PARAM;
    }
    pmix_task_post(names.tasks, &call->task);
    return PMIX_SUCCESS;
}

pmix_status_t pmix_names_publish(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                                 pmix_op_cbfunc_t done, void *cbdata)
{
    struct name_call *call = make_name_call(NAME_PUBLISH, ninfo, cbdata);
    bool good = true;
    if (call == NULL)
        return PMIX_ERR_NOMEM;
    call->done = done;
    take_directives(call, info, ninfo);
    for (size_t i = 0; i < ninfo && good; i++)
        if (!is_directive(&info[i]))
            good = add_name(call, info[i].key) &&
                   pack_name(call, proc, &info[i], &call->items[call->count - 1].packed);
    return post_names(call, good);
}

static pmix_status_t ask_names(struct name_call *call, char **keys, const pmix_info_t info[],
                               size_t ninfo)
{
    bool good = true;
    take_directives(call, info, ninfo);
    for (char **key = keys; *key != NULL && good; key++)
        good = add_name(call, *key);
    if (call->verb == NAME_LOOKUP) {
        PMIX_PDATA_CREATE(call->found, call->count);
        good = good && call->found != NULL;
    }
    return post_names(call, good);
}

static size_t count_keys(char **keys)
{
    size_t count = 0;
    while (keys != NULL && keys[count] != NULL)
        count++;
    return count;
}

pmix_status_t pmix_names_lookup(const pmix_proc_t *proc, char **keys, const pmix_info_t info[],
                                size_t ninfo, pmix_lookup_cbfunc_t done, void *cbdata)
{
    struct name_call *call = make_name_call(NAME_LOOKUP, count_keys(keys), cbdata);
    (void)proc;
    if (call == NULL)
        return PMIX_ERR_NOMEM;
    call->looked_up = done;
    return ask_names(call, keys, info, ninfo);
}

/* Without keys, all that the rank has published: such names end with the generation. */
pmix_status_t pmix_names_unpublish(const pmix_proc_t *proc, char **keys, const pmix_info_t info[],
                                   size_t ninfo, pmix_op_cbfunc_t done, void *cbdata)
{
    struct name_call *call = make_name_call(NAME_UNPUBLISH, count_keys(keys), cbdata);
    (void)proc;
    if (call == NULL)
        return PMIX_ERR_NOMEM;
    if (keys == NULL) {
        free_name_call(call);
        return PMIX_OPERATION_SUCCEEDED;
    }
    call->done = done;
    return ask_names(call, keys, info, ninfo);
}

void pmix_names_open(struct pmix_gathering *gathering, struct pmix_tasks *tasks)
{
    names.gathering = gathering;
    names.tasks = tasks;
}
