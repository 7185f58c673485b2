/*
 * tensor_check.c - what a caller may enqueue, and the request that it becomes. Owns nothing.
 */
#include "tensors.h"

#include "error.h"
#include "reduce_check.h"
#include "task.h"
#include "tensor_scale.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The same arguments would end the object when the operation is carried out. Of an average a sum
 * is carried out. */
static ddp_status check_operation(const struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                                  enum ddpi_tensor_kind kind, struct ddp_error *err)
{
    static const enum ddpi_operation operations[] = {
        [DDPI_TENSOR_ALL_REDUCE] = DDPI_ALL_REDUCE,
        [DDPI_TENSOR_ALL_GATHER] = DDPI_ALL_GATHER,
        [DDPI_TENSOR_BROADCAST] = DDPI_BROADCAST,
        [DDPI_TENSOR_ALL_TO_ALL] = DDPI_ALL_TO_ALL,
    };
    const struct ddpi_process_set *set = &tensors->negotiation.sets[op->set];
    uint32_t place = 0;
    for (uint32_t rank = 0; rank < tensors->rank; rank++)
        place += set->has[rank];
    struct ddpi_task task = {.call = {.operation = operations[kind],
                                      .count = op->count,
                                      .dtype = op->dtype,
                                      .op = op->op == DDP_AVERAGE ? DDP_SUM : op->op},
                             .send = kind == DDPI_TENSOR_BROADCAST ? op->recv : op->send,
                             .recv = op->recv};
    ddp_status status = ddpi_task_prepare(&task, place, set->size, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "tensor \"%s\"", op->name);
}

static ddp_status check_buffers(const struct ddp_tensor_op *op, uint32_t members,
                                struct ddp_error *err)
{
    size_t bytes;
    if (__builtin_mul_overflow(op->count, ddp_dtype_size(op->dtype), &bytes) ||
        __builtin_mul_overflow(bytes, members, &bytes) || bytes > PTRDIFF_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": %zu elements are more than any memory holds",
                              op->name, op->count);
    if (op->uneven && op->recv != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": with uneven counts the object has the memory of the "
                              "result: pass NULL as recv, and call ddp_tensors_gathered()",
                              op->name);
    if (op->count > 0 &&
        ((op->recv == NULL && !op->uneven) || (op->send == NULL && op->kind != DDP_KIND_BROADCAST)))
        return ddpi_error_set(err, DDP_E_INVALID, "tensor \"%s\": a buffer is NULL", op->name);
    return DDP_OK;
}

static ddp_status check_reduction(const struct ddp_tensor_op *op, double prescale, double postscale,
                                  struct ddp_error *err)
{
    ddp_status status = ddpi_reduce_check(op->dtype, op->op, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "tensor \"%s\"", op->name);
    if (op->op > DDP_PRODUCT)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": tensors have sum, average, min, max and product, not "
                              "%s",
                              op->name, ddp_reduce_op_name(op->op));
    if (!isfinite(prescale) || !isfinite(postscale))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": prescale is %g and postscale %g: both must be finite",
                              op->name, prescale, postscale);
    if ((prescale != 1 || postscale != 1) && !ddpi_tensor_can_scale(op->dtype))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": elements of %s cannot be multiplied by a factor",
                              op->name, ddp_dtype_name(op->dtype));
    return DDP_OK;
}

/* Kinds that callers can enqueue; the enumerations have different numbers. */
static bool find_kind(const struct ddp_tensor_op *op, enum ddpi_tensor_kind *ret)
{
    static const struct {
        ddp_kind kind;
        enum ddpi_tensor_kind own;
    } kinds[] = {{DDP_KIND_ALL_REDUCE, DDPI_TENSOR_ALL_REDUCE},
                 {DDP_KIND_ALL_GATHER, DDPI_TENSOR_ALL_GATHER},
                 {DDP_KIND_BROADCAST, DDPI_TENSOR_BROADCAST},
                 {DDP_KIND_ALL_TO_ALL, DDPI_TENSOR_ALL_TO_ALL}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == op->kind) {
            *ret = op->uneven ? DDPI_TENSOR_UNEVEN_GATHER : kinds[i].own;
            return true;
        }
    return false;
}

/* Members of the set that @op names. */
static ddp_status check_set(const struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                            uint32_t *ret_members, struct ddp_error *err)
{
    if (op->set >= tensors->nsets)
        return ddpi_error_set(err, DDP_E_INVALID, "tensor \"%s\": there is no process set %" PRIu32,
                              op->name, op->set);
    const struct ddpi_process_set *set = &tensors->negotiation.sets[op->set];
    if (!set->has[tensors->rank])
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": rank %" PRIu32 " is not in process set %" PRIu32,
                              op->name, tensors->rank, op->set);
    if (op->kind == DDP_KIND_BROADCAST && (op->root >= tensors->world_size || !set->has[op->root]))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": root %" PRIu32 " is not in process set %" PRIu32,
                              op->name, op->root, op->set);
    *ret_members = set->size;
    return DDP_OK;
}

ddp_status ddpi_tensor_check(const struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                             struct ddpi_tensor_request *request, struct ddp_error *err)
{
    uint32_t members = 1;
    if (op->name == NULL || op->name[0] == '\0' || !ddpi_tensor_name_valid(op->name))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor: a name has 1 to 255 bytes, and no control characters");
    if (!find_kind(op, &request->kind))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": kind %d: there are all_reduce, all_gather, broadcast "
                              "and all_to_all",
                              op->name, (int)op->kind);
    if (op->uneven && op->kind != DDP_KIND_ALL_GATHER)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tensor \"%s\": only all_gather takes uneven counts", op->name);
    if (ddp_dtype_size(op->dtype) == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "tensor \"%s\": type %d is unknown", op->name,
                              (int)op->dtype);
    request->dtype = op->dtype;
    request->count = op->uneven ? 0 : op->count;
    request->set = op->set;
    request->prescale = op->prescale == 0 ? 1 : op->prescale;
    request->postscale = op->postscale == 0 ? 1 : op->postscale;
    request->root = op->kind == DDP_KIND_BROADCAST ? op->root : 0;
    request->op = op->kind == DDP_KIND_ALL_REDUCE ? op->op : DDP_SUM;
    memcpy(request->name, op->name, strlen(op->name) + 1);
    ddp_status status = check_set(tensors, op, &members, err);
    if (status == DDP_OK)
        status = check_buffers(op, op->kind == DDP_KIND_ALL_REDUCE ? 1 : members, err);
    if (status == DDP_OK && op->kind == DDP_KIND_ALL_REDUCE)
        status = check_reduction(op, request->prescale, request->postscale, err);
    if (status == DDP_OK && !op->uneven)
        status = check_operation(tensors, op, request->kind, err);
    return status;
}
