/*
 * tensor_request.c - a request as bytes, and the comparison of two. Owns nothing, allocates nothing
 * but room in the list.
 */
#include "tensor_request.h"

#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* In the byte of the kind. */
enum { ON_GPU = 0x80 };

static const char *const kind_names[] = {
#define KIND_NAME(symbol, name) [symbol] = name,
    DDPI_TENSOR_KIND_MAP(KIND_NAME)
#undef KIND_NAME
};

const char *ddpi_tensor_kind_name(enum ddpi_tensor_kind kind)
{
    return kind_names[kind];
}

bool ddpi_tensor_goes_on(enum ddpi_tensor_kind kind)
{
    return kind == DDPI_TENSOR_ALL_REDUCE || kind == DDPI_TENSOR_UNEVEN_GATHER;
}

size_t ddpi_tensor_bytes(const struct ddpi_tensor_request *request)
{
    size_t bytes;
    return __builtin_mul_overflow(request->count, ddp_dtype_size(request->dtype), &bytes) ? SIZE_MAX
                                                                                          : bytes;
}

/* ---- bytes ---- */

static bool put_text(struct ddpi_buf *list, const char *text)
{
    size_t len = strlen(text);
    return ddpi_buf_put_u8(list, (uint8_t)len) && ddpi_buf_append(list, text, len);
}

static bool put_double(struct ddpi_buf *list, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return ddpi_buf_put_u64(list, bits);
}

bool ddpi_tensor_request_put(struct ddpi_buf *list, const struct ddpi_tensor_request *request)
{
    size_t before = ddpi_buf_len(list);
    bool fits =
        ddpi_buf_put_u8(list, (uint8_t)(request->kind | (request->on_gpu ? ON_GPU : 0))) &&
        ddpi_buf_put_u8(list, (uint8_t)request->dtype) &&
        ddpi_buf_put_u8(list, (uint8_t)request->op) && ddpi_buf_put_u32(list, request->root) &&
        ddpi_buf_put_u32(list, request->set) && ddpi_buf_put_u32(list, request->group_size) &&
        ddpi_buf_put_u32(list, request->waited_ms) && ddpi_buf_put_u64(list, request->count) &&
        put_double(list, request->prescale) && put_double(list, request->postscale) &&
        put_text(list, request->name) && put_text(list, request->group);
    if (!fits)
        ddpi_buf_truncate(list, before);
    return fits;
}

bool ddpi_tensor_name_valid(const char *name)
{
    char masked[DDPI_TENSOR_NAME];
    size_t len = strnlen(name, DDPI_TENSOR_NAME);
    if (len == DDPI_TENSOR_NAME)
        return false;
    memcpy(masked, name, len + 1);
    ddpi_text_mask(masked);
    return strcmp(masked, name) == 0;
}

static bool read_text(struct ddpi_rd *rd, char text[DDPI_TENSOR_NAME])
{
    size_t len = ddpi_rd_u8(rd);
    const uint8_t *bytes = ddpi_rd_bytes(rd, len);
    if (rd->failed || memchr(bytes, '\0', len) != NULL)
        return false;
    memcpy(text, bytes, len);
    text[len] = '\0';
    return ddpi_tensor_name_valid(text);
}

static double read_double(struct ddpi_rd *rd)
{
    uint64_t bits = ddpi_rd_u64(rd);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

bool ddpi_tensor_request_read(struct ddpi_rd *rd, struct ddpi_tensor_request *ret)
{
    uint8_t first = ddpi_rd_u8(rd), kind = (uint8_t)(first & ~ON_GPU);
    *ret = (struct ddpi_tensor_request){.kind = (enum ddpi_tensor_kind)kind,
                                        .on_gpu = (first & ON_GPU) != 0};
    ret->dtype = (ddp_dtype)ddpi_rd_u8(rd);
    ret->op = (ddp_reduce_op)ddpi_rd_u8(rd);
    ret->root = ddpi_rd_u32(rd);
    ret->set = ddpi_rd_u32(rd);
    ret->group_size = ddpi_rd_u32(rd);
    ret->waited_ms = ddpi_rd_u32(rd);
    ret->count = ddpi_rd_u64(rd);
    ret->prescale = read_double(rd);
    ret->postscale = read_double(rd);
    return !rd->failed && read_text(rd, ret->name) && read_text(rd, ret->group) &&
           kind < DDPI_TENSOR_KINDS && ddp_dtype_size(ret->dtype) != 0 && ret->name[0] != '\0' &&
           (ret->group_size == 0) == (ret->group[0] == '\0') &&
           (ret->set == DDPI_SET_INTERNAL) == (kind >= DDPI_TENSOR_JOIN);
}

/* ---- comparison ---- */

struct argument {
    const char *name;
    bool (*equal)(const struct ddpi_tensor_request *a, const struct ddpi_tensor_request *b);
    void (*print)(const struct ddpi_tensor_request *request, char text[DDPI_TENSOR_VALUE]);
};

#define ARGUMENT(member, format, ...)                                     \
    static bool equal_##member(const struct ddpi_tensor_request *a,       \
                               const struct ddpi_tensor_request *b)       \
    {                                                                     \
        return memcmp(&a->member, &b->member, sizeof a->member) == 0;     \
    }                                                                     \
    static void print_##member(const struct ddpi_tensor_request *request, \
                               char text[DDPI_TENSOR_VALUE])              \
    {                                                                     \
        snprintf(text, DDPI_TENSOR_VALUE, format, __VA_ARGS__);           \
    }

ARGUMENT(kind, "%s", ddpi_tensor_kind_name(request->kind))
ARGUMENT(dtype, "%s", ddp_dtype_name(request->dtype))
ARGUMENT(count, "%" PRIu64, request->count)
ARGUMENT(op, "%s", ddp_reduce_op_name(request->op))
ARGUMENT(root, "%" PRIu32, request->root)
ARGUMENT(prescale, "%.17g", request->prescale)
ARGUMENT(postscale, "%.17g", request->postscale)
ARGUMENT(on_gpu, "%s", request->on_gpu ? "on a GPU" : "of the host")
ARGUMENT(group_size, "%" PRIu32, request->group_size)

static bool equal_group(const struct ddpi_tensor_request *a, const struct ddpi_tensor_request *b)
{
    return strcmp(a->group, b->group) == 0;
}

static void print_group(const struct ddpi_tensor_request *request, char text[DDPI_TENSOR_VALUE])
{
    snprintf(text, DDPI_TENSOR_VALUE, "\"%s\"", request->group);
}

static const struct argument arguments[] = {
    {"the operation", equal_kind, print_kind},
    {"the type", equal_dtype, print_dtype},
    {"the count", equal_count, print_count},
    {"the reduction", equal_op, print_op},
    {"the memory", equal_on_gpu, print_on_gpu},
    {"the root", equal_root, print_root},
    {"prescale", equal_prescale, print_prescale},
    {"postscale", equal_postscale, print_postscale},
    {"the size of its group", equal_group_size, print_group_size},
    {"the first tensor of its group", equal_group, print_group},
};

const char *ddpi_tensor_difference(const struct ddpi_tensor_request *a,
                                   const struct ddpi_tensor_request *b,
                                   char a_text[DDPI_TENSOR_VALUE], char b_text[DDPI_TENSOR_VALUE])
{
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++)
        if (!arguments[i].equal(a, b)) {
            arguments[i].print(a, a_text);
            arguments[i].print(b, b_text);
            return arguments[i].name;
        }
    return NULL;
}
