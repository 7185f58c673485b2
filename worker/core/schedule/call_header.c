/*
 * call_header.c - calls as headers and as text. Pure.
 */
#include "call_header.h"

#include "buf.h"
#include "reduce.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

enum { CALL_MAGIC = 0x33504444 /* "DDP3" */ };

enum { ON_DEVICE = 1, FINITE_CHECK = 2, FLAGS = 3 };

enum { WORDS = DDPI_CALL_WIRE_SIZE / sizeof(uint64_t) };

static const char *const operation_names[] = {
#define OPERATION_NAME(symbol, name) [symbol] = (name),
    DDPI_OPERATION_MAP(OPERATION_NAME)
#undef OPERATION_NAME
};

static const char *const algorithm_names[] = {
#define ALGORITHM_NAME(symbol, name) [symbol] = (name),
    DDP_ALGORITHM_MAP(ALGORITHM_NAME)
#undef ALGORITHM_NAME
};

const char *ddpi_operation_name(enum ddpi_operation operation)
{
    return operation_names[operation];
}

/* The header as numbers. */
static void set_words(const struct ddpi_call *call, uint64_t words[WORDS])
{
    uint64_t flags = (call->on_device ? ON_DEVICE : 0) | (call->finite_check ? FINITE_CHECK : 0);
    words[0] = CALL_MAGIC | (uint64_t)(uint8_t)call->operation << 32 |
               (uint64_t)(uint8_t)call->dtype << 40 | (uint64_t)(uint8_t)call->op << 48 |
               (uint64_t)(uint8_t)call->algorithm << 56;
    words[1] = call->seq;
    words[2] = call->count;
    words[3] = call->root | flags << 32;
    words[4] = call->parts | (uint64_t)call->message_class << 32;
    words[5] = call->tag | (uint64_t)call->buffers << 32;
    words[6] = call->bytes;
}

/* Word by word: to copy a struct whose members have just been written, the processor would wait
 * until they are all in its cache. */
void ddpi_call_encode(const struct ddpi_call *call, uint8_t wire[DDPI_CALL_WIRE_SIZE])
{
    uint64_t words[WORDS];
    set_words(call, words);
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t word = htole64(words[i]);
        memcpy(wire + i * sizeof word, &word, sizeof word);
    }
}

/* It need not be secret, only differ if calls differ by mistake. Products that do not wait for each
 * other, as ranks wait for this before they arrive. */
uint64_t ddpi_call_digest(const struct ddpi_call *call)
{
    static const uint64_t factors[WORDS] = {
        0xd6e8feb86659fd93, 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0xa0761d6478bd642f,
        0x8ebc6af09c88c6e3, 0xe7037ed1a0b428db, 0x94d049bb133111eb};
    uint64_t words[WORDS], digest = 0;
    set_words(call, words);
    for (unsigned i = 0; i < WORDS; i++)
        digest += words[i] * factors[i];
    return digest;
}

bool ddpi_call_decode(const uint8_t wire[DDPI_CALL_WIRE_SIZE], struct ddpi_call *ret_call)
{
    struct ddpi_rd rd = ddpi_rd_of(wire, DDPI_CALL_WIRE_SIZE);
    uint32_t magic = ddpi_rd_u32(&rd);
    uint8_t operation = ddpi_rd_u8(&rd), dtype = ddpi_rd_u8(&rd), op = ddpi_rd_u8(&rd);
    uint8_t algorithm = ddpi_rd_u8(&rd);
    struct ddpi_call call = {
        .operation = operation, .dtype = dtype, .op = op, .algorithm = algorithm};
    call.seq = ddpi_rd_u64(&rd);
    call.count = ddpi_rd_u64(&rd);
    call.root = ddpi_rd_u32(&rd);
    uint32_t flags = ddpi_rd_u32(&rd);
    call.on_device = (flags & ON_DEVICE) != 0;
    call.finite_check = (flags & FINITE_CHECK) != 0;
    call.parts = ddpi_rd_u32(&rd);
    uint32_t message_class = ddpi_rd_u32(&rd);
    call.message_class = message_class;
    call.tag = ddpi_rd_u32(&rd);
    call.buffers = ddpi_rd_u32(&rd);
    call.bytes = ddpi_rd_u64(&rd);
    if (magic != CALL_MAGIC || flags > FLAGS || message_class >= DDPI_MESSAGE_CLASSES ||
        operation >= sizeof operation_names / sizeof *operation_names || dtype >= DDPI_DTYPES ||
        op >= DDPI_REDUCE_OPS || algorithm >= sizeof algorithm_names / sizeof *algorithm_names)
        return false;
    *ret_call = call;
    return true;
}

bool ddpi_call_same(const struct ddpi_call *a, const struct ddpi_call *b)
{
    return a->operation == b->operation && a->seq == b->seq && a->count == b->count &&
           a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->algorithm == b->algorithm && a->on_device == b->on_device && a->parts == b->parts &&
           a->finite_check == b->finite_check && a->message_class == b->message_class &&
           a->tag == b->tag && a->buffers == b->buffers && a->bytes == b->bytes;
}

void ddpi_call_name(const struct ddpi_call *call, char text[DDPI_CALL_TEXT])
{
    snprintf(text, DDPI_CALL_TEXT, "%s #%llu", operation_names[call->operation],
             (unsigned long long)call->seq);
}

static void describe_call(const struct ddpi_call *call, char text[DDPI_CALL_TEXT])
{
    const char *dtype = ddp_dtype_name(call->dtype);
    unsigned long long count = call->count, seq = call->seq;
    const char *name = operation_names[call->operation], *op = ddp_reduce_op_name(call->op);
    const char *algorithm = algorithm_names[call->algorithm];
    switch (call->operation) {
    case DDPI_ALL_REDUCE:
    case DDPI_REDUCE_SCATTER:
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%s of %llu %s, %s)", name, seq, op, count, dtype,
                 algorithm);
        return;
    case DDPI_REDUCE:
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%s of %llu %s to rank %u, %s)", name, seq, op,
                 count, dtype, call->root, algorithm);
        return;
    case DDPI_ALL_GATHER:
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%llu %s)", name, seq, count, dtype);
        return;
    case DDPI_ALL_TO_ALL:
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%llu %s for each rank)", name, seq, count, dtype);
        return;
    case DDPI_GATHER:
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%llu %s of each rank to rank %u)", name, seq,
                 count, dtype, call->root);
        return;
    case DDPI_SCATTER:
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%llu %s for each rank from rank %u)", name, seq,
                 count, dtype, call->root);
        return;
    case DDPI_BROADCAST:
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%llu %s from rank %u)", name, seq, count, dtype,
                 call->root);
        return;
    case DDPI_SEND:
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%llu %s to rank %u)", name, seq, count, dtype,
                 call->root);
        return;
    case DDPI_RECV:
        if (call->root == DDP_ANY_RANK) {
            snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%llu %s from any rank)", name, seq, count,
                     dtype);
            return;
        }
        snprintf(text, DDPI_CALL_TEXT, "%s #%llu (%llu %s from rank %u)", name, seq, count, dtype,
                 call->root);
        return;
    case DDPI_JOIN:
    case DDPI_BARRIER:
    case DDPI_MONITORED:
    case DDPI_FINALIZE:
    case DDPI_ALLOC:
        ddpi_call_name(call, text);
    }
}

/* Operations that take a list of buffers have no uneven parts. */
static bool takes_list(enum ddpi_operation operation)
{
    return operation == DDPI_ALL_REDUCE || operation == DDPI_BROADCAST;
}

void ddpi_call_describe(const struct ddpi_call *call, char text[DDPI_CALL_TEXT])
{
    describe_call(call, text);
    size_t used = strlen(text);
    if (call->parts != 0 && takes_list(call->operation))
        used +=
            (size_t)snprintf(text + used, DDPI_CALL_TEXT - used,
                             " in %u buffers (digest of lengths %08x)", call->buffers, call->parts);
    else if (call->parts != 0)
        used += (size_t)snprintf(text + used, DDPI_CALL_TEXT - used, " in uneven parts");
    if (call->message_class == DDPI_USER_MESSAGE && call->tag != 0)
        used += (size_t)snprintf(text + used, DDPI_CALL_TEXT - used, " with tag %u", call->tag);
    if (call->finite_check)
        used += (size_t)snprintf(text + used, DDPI_CALL_TEXT - used, " with a finite check");
    if (call->on_device)
        snprintf(text + used, DDPI_CALL_TEXT - used, " on a GPU");
}
