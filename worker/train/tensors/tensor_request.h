/*
 * tensor_request.h - what a rank wants done with a named tensor, and its form between ranks. Pure.
 */
#ifndef DDPI_TENSOR_REQUEST_H
#define DDPI_TENSOR_REQUEST_H

#include "buf.h"

#include <ddprun/comm.h>

enum {
    DDPI_TENSOR_NAME = 256,          /* with its NUL */
    DDPI_TENSOR_LIST_LIMIT = 1 << 20 /* bytes of requests that a rank sends in one cycle */
};

/* Names of the library's own requests are in a set that no rank can add. */
#define DDPI_SET_INTERNAL UINT32_MAX

/* Kinds: X(symbol, name). The number goes between ranks. */
#define DDPI_TENSOR_KIND_MAP(X)                                 \
    X(DDPI_TENSOR_ALL_REDUCE, "all_reduce")                     \
    X(DDPI_TENSOR_ALL_GATHER, "all_gather")                     \
    X(DDPI_TENSOR_BROADCAST, "broadcast")                       \
    X(DDPI_TENSOR_ALL_TO_ALL, "all_to_all")                     \
    X(DDPI_TENSOR_UNEVEN_GATHER, "all_gather of uneven counts") \
    X(DDPI_TENSOR_JOIN, "join")                                 \
    X(DDPI_TENSOR_ADD_SET, "add a process set")                 \
    X(DDPI_TENSOR_STOP, "stop")

enum ddpi_tensor_kind {
#define DDPI_TENSOR_KIND_ENUM(symbol, name) symbol,
    DDPI_TENSOR_KIND_MAP(DDPI_TENSOR_KIND_ENUM)
#undef DDPI_TENSOR_KIND_ENUM
        DDPI_TENSOR_KINDS
};

struct ddpi_tensor_request {
    enum ddpi_tensor_kind kind;
    ddp_dtype dtype;
    ddp_reduce_op op;    /* of all_reduce */
    uint32_t root;       /* of broadcast: its rank in the whole world */
    uint32_t set;        /* 0: all ranks */
    uint32_t group_size; /* tensors that are carried out together; 0: it has no group */
    uint32_t waited_ms;  /* since the rank has enqueued it; no part of a comparison */
    uint64_t count; /* 0 of an uneven all_gather: ranks learn the counts when it is carried out */
    double prescale;
    double postscale;
    bool on_gpu; /* its buffers; of a join: the rank can give zeros there */
    char name[DDPI_TENSOR_NAME];
    char group[DDPI_TENSOR_NAME]; /* the name of the first tensor of the group */
};

const char *ddpi_tensor_kind_name(enum ddpi_tensor_kind kind);

/* Whether ranks that have joined take part: all elements of theirs are zero, or they give none. */
bool ddpi_tensor_goes_on(enum ddpi_tensor_kind kind);

/* Names go into sentences and files: they have no control characters, and at most 255 bytes. */
bool ddpi_tensor_name_valid(const char *name);

/* The bytes of @count elements; the largest size_t if there are more. */
size_t ddpi_tensor_bytes(const struct ddpi_tensor_request *request);

/* False, with @list unchanged, if the list is full or memory is short. */
bool ddpi_tensor_request_put(struct ddpi_buf *list, const struct ddpi_tensor_request *request);

/* Read the next request of a list; its bytes come from another rank and may be anything. False if
 * they are no request; then *@ret is undefined. */
bool ddpi_tensor_request_read(struct ddpi_rd *rd, struct ddpi_tensor_request *ret);

/* The name of the first argument in which two requests for one name differ, with both values as
 * text; NULL if they are equal. */
enum { DDPI_TENSOR_VALUE = 300 };
const char *ddpi_tensor_difference(const struct ddpi_tensor_request *a,
                                   const struct ddpi_tensor_request *b,
                                   char a_text[DDPI_TENSOR_VALUE], char b_text[DDPI_TENSOR_VALUE]);

#endif
