/*
 * call_header.h - what a rank called, and the header that tells its peer so before any payload.
 */
#ifndef DDPI_CALL_HEADER_H
#define DDPI_CALL_HEADER_H

#include <ddprun/comm.h>
#include <stdbool.h>

/* Operations: X(symbol, name). JOIN is the round that ends ddp_comm_init(); FINALIZE passes nothing
 * between ranks; ALLOC is a meeting for ddp_alloc(), in which a rank need not take part. */
#define DDPI_OPERATION_MAP(X)                \
    X(DDPI_JOIN, "init")                     \
    X(DDPI_BARRIER, "barrier")               \
    X(DDPI_MONITORED, "monitored_barrier")   \
    X(DDPI_BROADCAST, "broadcast")           \
    X(DDPI_ALL_REDUCE, "all_reduce")         \
    X(DDPI_REDUCE, "reduce")                 \
    X(DDPI_ALL_GATHER, "all_gather")         \
    X(DDPI_REDUCE_SCATTER, "reduce_scatter") \
    X(DDPI_GATHER, "gather")                 \
    X(DDPI_SCATTER, "scatter")               \
    X(DDPI_ALL_TO_ALL, "all_to_all")         \
    X(DDPI_SEND, "send")                     \
    X(DDPI_RECV, "recv")                     \
    X(DDPI_FINALIZE, "finalize")             \
    X(DDPI_ALLOC, "alloc")

enum ddpi_operation {
#define DDPI_OPERATION_ENUM(symbol, name) symbol,
    DDPI_OPERATION_MAP(DDPI_OPERATION_ENUM)
#undef DDPI_OPERATION_ENUM
};

#define DDPI_ONE_OPERATION(symbol, name) +1
enum { DDPI_OPERATIONS = 0 DDPI_OPERATION_MAP(DDPI_ONE_OPERATION) };

/* What a header announces. Only messages of one class match each other. */
enum ddpi_message_class {
    DDPI_NOT_A_MESSAGE, /* a collective, over the ring's edges */
    DDPI_USER_MESSAGE,  /* of ddp_send() */
    DDPI_PIECE,         /* of a collective that all ranks call: its number tells which one */
    DDPI_GROUP_MAKING,  /* between ranks that make a group: not for a receive of the program */
    DDPI_MESSAGE_CLASSES
};

struct ddpi_call {
    enum ddpi_operation operation;
    uint64_t seq;
    size_t count;   /* the rest is 0 where the operation does not use it */
    uint32_t parts; /* parts are uneven: their digest (parts.h); 1 if each rank knows its own only;
                       of a list of buffers: the digest of their lengths */
    ddp_dtype dtype;
    ddp_reduce_op op;
    uint32_t root;           /* of send and recv: the peer */
    uint32_t tag;            /* of a message */
    ddp_algorithm algorithm; /* of a reduction: any but auto; on device memory: as configured */
    bool on_device;          /* the buffers are memory of a GPU */
    bool finite_check;       /* the result is checked for inf and NaN */
    uint32_t buffers;        /* how many are in the list */
    enum ddpi_message_class message_class;
    uint64_t bytes; /* of a message: how many follow the header */
};

enum { DDPI_CALL_WIRE_SIZE = 56, DDPI_CALL_TEXT = 208 };

void ddpi_call_encode(const struct ddpi_call *call, uint8_t wire[DDPI_CALL_WIRE_SIZE]);

/* A number that two calls have in common if, but for chance, nothing of their headers differs. */
uint64_t ddpi_call_digest(const struct ddpi_call *call);

/* false: not a header of this version. */
bool ddpi_call_decode(const uint8_t wire[DDPI_CALL_WIRE_SIZE], struct ddpi_call *ret_call);

bool ddpi_call_same(const struct ddpi_call *a, const struct ddpi_call *b);

/* "all_reduce". */
const char *ddpi_operation_name(enum ddpi_operation operation);

/* "all_reduce #17"; and with its arguments: "all_reduce #17 (sum of 100 float32, ring)". */
void ddpi_call_name(const struct ddpi_call *call, char text[DDPI_CALL_TEXT]);
void ddpi_call_describe(const struct ddpi_call *call, char text[DDPI_CALL_TEXT]);

#endif
