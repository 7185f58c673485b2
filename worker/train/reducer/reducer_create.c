/*
 * reducer_create.c - makes a reducer from options, and frees it. Checks everything that comes from
 * the caller.
 */
#include "reducer.h"

#include "error.h"
#include "mem.h"

#include <math.h>
#include <string.h>

#define FIRST_LIMIT  (UINT64_C(1) << 20)
#define OTHER_LIMITS (UINT64_C(25) << 20)

/* ---- options ---- */

static ddp_status refuse(struct ddp_error *err, const char *why)
{
    return ddpi_error_set(err, DDP_E_INVALID, "ddp_reducer_create(): %s", why);
}

static ddp_status check_options(const struct ddp_reducer_options *options, struct ddp_error *err)
{
    double predivide = options->predivide;
    if (options->nparameters == 0 || options->parameters == NULL)
        return refuse(err, "there is no parameter");
    if (options->nparameters > INT32_MAX || options->nbuffers > INT32_MAX)
        return refuse(err, "there are more than 2,147,483,647 parameters or buffers");
    if (options->nbuffers != 0 && options->buffers == NULL)
        return refuse(err, "nbuffers is not 0, but buffers is NULL");
    if ((unsigned)options->average > DDP_REDUCER_SUM)
        return refuse(err, "the average is none of enum ddp_reducer_average");
    if (!(predivide == 0 || (predivide > 0 && isfinite(predivide))))
        return refuse(err, "predivide is not a finite number above 0");
    if (predivide != 0 && options->average == DDP_REDUCER_AVERAGE_BEFORE)
        return refuse(err, "predivide goes with DDP_REDUCER_AVERAGE_AFTER or DDP_REDUCER_SUM");
    if (options->message_size != 0 && options->nbucket_bytes != 0)
        return refuse(err, "message_size and bucket_bytes exclude each other");
    if (options->nbucket_bytes > UINT16_MAX ||
        (options->nbucket_bytes != 0 && options->bucket_bytes == NULL))
        return refuse(err, "bucket_bytes is NULL, or has more than 65,535 limits");
    if (options->divide_by_active && !options->uneven_inputs)
        return refuse(err, "divide_by_active goes with uneven_inputs");
    if (options->hook != NULL && options->hook->stage == NULL)
        return refuse(err, "the hook has no function");
    if (options->view_memory != NULL && !options->as_views)
        return refuse(err, "view_memory goes with as_views");
    if (options->on_device && options->as_views && options->view_memory == NULL)
        return refuse(err, "as_views with on_device needs view_memory, memory of the GPU");
    return DDP_OK;
}

bool ddpi_reducer_takes(ddp_dtype dtype)
{
    switch (dtype) {
    case DDP_FLOAT32:
    case DDP_FLOAT64:
    case DDP_FLOAT16:
    case DDP_BFLOAT16:
    case DDP_FLOAT8_E4M3:
    case DDP_FLOAT8_E5M2:
    case DDP_COMPLEX64:
    case DDP_COMPLEX128:
        return true;
    default:
        return false;
    }
}

static ddp_status check_parameter(const struct ddp_reducer_options *options, size_t i, bool buffer,
                                  struct ddp_error *err)
{
    const struct ddp_parameter *parameter = buffer ? &options->buffers[i] : &options->parameters[i];
    const char *why = NULL;
    size_t size = ddp_dtype_size(parameter->dtype);
    if (size == 0)
        why = "its type is unknown";
    else if (parameter->count == 0 || parameter->count > SIZE_MAX / 2 / size)
        why = "it has no element, or more than any memory";
    else if (parameter->rows != 0 && parameter->count % parameter->rows != 0)
        why = "its count is not a multiple of its rows";
    else if (buffer && parameter->data == NULL)
        why = "a buffer needs data";
    else if (!buffer && !ddpi_reducer_takes(parameter->dtype))
        why = "gradients are floats or complex numbers";
    else if (!buffer && !options->as_views && parameter->gradient == NULL)
        why = "it has no gradient; pass its memory, or set as_views";
    else if (!buffer && options->as_views && parameter->gradient != NULL)
        why = "with as_views the reducer has the memory of gradients; pass NULL";
    if (why == NULL)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID, "ddp_reducer_create(): %s %zu (%s): %s",
                          buffer ? "buffer" : "parameter", i,
                          parameter->name != NULL ? parameter->name : "no name", why);
}

static ddp_status check_parameters(const struct ddp_reducer_options *options, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < options->nparameters && status == DDP_OK; i++)
        status = check_parameter(options, i, false, err);
    for (size_t i = 0; i < options->nbuffers && status == DDP_OK; i++)
        status = check_parameter(options, i, true, err);
    return status;
}

/* ---- copies ---- */

static bool copy_parameters(const struct ddp_parameter *parameters, size_t count, const char *kind,
                            struct ddpi_parameter **ret)
{
    struct ddpi_parameter *copies = ddpi_calloc(count + 1, sizeof *copies);
    *ret = copies;
    for (size_t i = 0; copies != NULL && i < count; i++) {
        const struct ddp_parameter *from = &parameters[i];
        copies[i] = (struct ddpi_parameter){
            .name = from->name != NULL ? ddpi_strdup(from->name) : ddpi_asprintf("%s %zu", kind, i),
            .data = from->data,
            .gradient = from->gradient,
            .count = from->count,
            .rows = from->rows,
            .dtype = from->dtype,
        };
        if (copies[i].name == NULL)
            return false;
    }
    return copies != NULL;
}

static bool copy_limits(struct ddp_reducer *reducer, const struct ddp_reducer_options *options)
{
    uint32_t given = (uint32_t)options->nbucket_bytes;
    reducer->nlimits = options->message_size != 0 ? 1 : given != 0 ? given : 2;
    reducer->limits = ddpi_calloc(reducer->nlimits, sizeof *reducer->limits);
    if (reducer->limits == NULL)
        return false;
    if (options->message_size != 0) {
        reducer->limits[0] = options->message_size;
    } else if (given == 0) {
        reducer->limits[0] = FIRST_LIMIT;
        reducer->limits[1] = OTHER_LIMITS;
    }
    for (uint32_t i = 0; i < given; i++)
        reducer->limits[i] = options->bucket_bytes[i];
    return true;
}

static ddp_status copy_options(struct ddp_reducer *reducer,
                               const struct ddp_reducer_options *options, struct ddp_error *err)
{
    reducer->nparameters = (uint32_t)options->nparameters;
    reducer->nbuffers = (uint32_t)options->nbuffers;
    if (options->hook != NULL)
        reducer->hook = *options->hook;
    if (options->uneven_inputs)
        reducer->roles = ddpi_calloc(reducer->world_size, DDPI_REDUCER_ROLES);
    if (!copy_limits(reducer, options) || (options->uneven_inputs && reducer->roles == NULL) ||
        !copy_parameters(options->parameters, options->nparameters, "parameter",
                         &reducer->parameters) ||
        !copy_parameters(options->buffers, options->nbuffers, "buffer", &reducer->buffers))
        return ddpi_error_nomem(err, (options->nparameters + options->nbuffers) *
                                         sizeof *reducer->parameters);
    return DDP_OK;
}

/* ---- creating ---- */

/* Before any stream waits for another rank. */
static ddp_status open_memory(struct ddp_reducer *reducer, struct ddp_error *err)
{
    const struct ddp_reducer_options *options = &reducer->options;
    const void *address =
        options->as_views ? options->view_memory : reducer->parameters[0].gradient;
    bool multiplies = options->average == DDP_REDUCER_AVERAGE_AFTER &&
                      (options->predivide != 0 || options->divide_by_active);
    ddp_status status = ddpi_gradient_memory_open(
        address, options->as_views ? "view_memory" : "the gradient of parameter 0",
        &reducer->memory, err);
    if (status == DDP_OK && multiplies)
        status = ddpi_gradient_memory_load(reducer->memory, err);
    return status;
}

/* What all ranks do together. */
static ddp_status meet_ranks(struct ddp_reducer *reducer, struct ddp_error *err)
{
    const struct ddp_reducer_options *options = &reducer->options;
    ddp_status status = ddpi_reducer_match(reducer, err);
    if (status == DDP_OK && options->as_views)
        status = ddpi_views_make(reducer, err);
    if (status == DDP_OK && !options->no_broadcast)
        status = ddpi_reducer_share(reducer, reducer->parameters, reducer->nparameters, 0, err);
    if (status == DDP_OK && !options->no_broadcast)
        status = ddpi_reducer_share(reducer, reducer->buffers, reducer->nbuffers, 0, err);
    if (status == DDP_OK && !options->no_progress_thread && reducer->world_size > 1)
        status = ddp_comm_start_progress(reducer->comm, err);
    return status;
}

static ddp_status fill_reducer(struct ddp_reducer *reducer,
                               const struct ddp_reducer_options *options, struct ddp_error *err)
{
    ddp_status status = copy_options(reducer, options, err);
    if (status == DDP_OK && options->on_device)
        status = open_memory(reducer, err);
    if (status == DDP_OK && options->trace != NULL)
        status = ddpi_trace_open(reducer, options->trace, err);
    if (status == DDP_OK)
        status = meet_ranks(reducer, err);
    return status == DDP_OK ? ddpi_reducer_plan(reducer, err) : status;
}

ddp_status ddp_reducer_create(ddp_comm *comm, const struct ddp_reducer_options *given,
                              ddp_reducer **ret_reducer, struct ddp_error *err)
{
    struct ddp_reducer_options options = {0};
    *ret_reducer = NULL;
    if (given->size < offsetof(struct ddp_reducer_options, bucket_bytes))
        return refuse(err, "the size of the options is not set");
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    ddp_status status = check_options(&options, err);
    if (status == DDP_OK)
        status = check_parameters(&options, err);
    if (status != DDP_OK)
        return status;
    struct ddp_reducer *reducer = ddpi_calloc(1, sizeof *reducer);
    if (reducer == NULL)
        return ddpi_error_nomem(err, sizeof *reducer);
    reducer->comm = comm;
    reducer->options = options;
    reducer->rank = ddp_comm_rank(comm);
    reducer->world_size = reducer->active = ddp_comm_world_size(comm);
    reducer->want_sync = true;
    pthread_mutex_init(&reducer->lock, NULL);
    pthread_mutex_init(&reducer->ends_lock, NULL);
    pthread_cond_init(&reducer->ended, NULL);
    status = fill_reducer(reducer, &options, err);
    if (status != DDP_OK) {
        ddp_reducer_destroy(reducer);
        return status;
    }
    *ret_reducer = reducer;
    return DDP_OK;
}

/* ---- freeing ---- */

static void free_parameters(struct ddpi_gradient_memory *memory, struct ddpi_parameter *parameters,
                            uint32_t count)
{
    for (uint32_t i = 0; parameters != NULL && i < count; i++) {
        ddpi_free(parameters[i].name);
        ddpi_gradients_free(memory, parameters[i].scratch);
    }
    ddpi_free(parameters);
}

void ddp_reducer_destroy(ddp_reducer *reducer)
{
    if (reducer == NULL)
        return;
    if (reducer->state != DDPI_REDUCER_IDLE)
        ddp_comm_abort(reducer->comm);
    ddpi_buckets_drain(reducer);
    (void)ddpi_buckets_settle(reducer, NULL);
    ddpi_reducer_drop_buckets(reducer);
    ddpi_bucket_pass_free(&reducer->pass);
    ddpi_views_free(reducer);
    free_parameters(reducer->memory, reducer->parameters, reducer->nparameters);
    free_parameters(reducer->memory, reducer->buffers, reducer->nbuffers);
    ddpi_gradient_memory_close(reducer->memory);
    ddpi_free(reducer->roles);
    ddpi_free(reducer->limits);
    ddpi_free(reducer->pieces);
    ddpi_free(reducer->runs);
    ddpi_free(reducer->rows);
    ddpi_free(reducer->used_map);
    ddpi_trace_close(reducer);
    pthread_cond_destroy(&reducer->ended);
    pthread_mutex_destroy(&reducer->ends_lock);
    pthread_mutex_destroy(&reducer->lock);
    ddpi_free(reducer);
}

void *ddp_reducer_gradient(const ddp_reducer *reducer, size_t parameter)
{
    return parameter < reducer->nparameters ? reducer->parameters[parameter].gradient : NULL;
}

int ddp_reducer_non_finite(const ddp_reducer *reducer)
{
    return reducer->non_finite;
}
