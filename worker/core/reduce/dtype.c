/*
 * dtype.c - sizes and names of element types and reductions, from the lists in the public header.
 * Pure.
 */
#include <ddprun/comm.h>

size_t ddp_dtype_size(ddp_dtype dtype)
{
    switch (dtype) {
#define SIZE_CASE(symbol, size, name) \
    case symbol:                      \
        return size;
        DDP_DTYPE_MAP(SIZE_CASE)
#undef SIZE_CASE
    }
    return 0;
}

const char *ddp_dtype_name(ddp_dtype dtype)
{
    switch (dtype) {
#define NAME_CASE(symbol, size, name) \
    case symbol:                      \
        return name;
        DDP_DTYPE_MAP(NAME_CASE)
#undef NAME_CASE
    }
    return "unknown";
}

const char *ddp_reduce_op_name(ddp_reduce_op op)
{
    switch (op) {
#define NAME_CASE(symbol, name) \
    case symbol:                \
        return name;
        DDP_REDUCE_OP_MAP(NAME_CASE)
#undef NAME_CASE
    }
    return "unknown";
}
