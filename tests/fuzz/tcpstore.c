/*
 * tcpstore.c - fuzzes what a TCPStore client may send, in any pieces. All that a request
 * points to lies within its bytes, and no byte of them but the lengths is left out. A key of a
 * MULTI_GET is a request of its own, of which the first has the type and the number of keys.
 */
#include "dialect_tcpstore.h"

#include "conversation.h"
#include "fuzz.h"

static size_t within(struct ddpi_bytes part, const uint8_t *bytes, size_t len)
{
    const uint8_t *data = part.data;
    if (data == NULL)
        return 0;
    HOLDS(data >= bytes && data <= bytes + len && part.len <= (size_t)(bytes + len - data));
    return sizeof(uint64_t) + part.len;
}

static void accounts_for(const struct ddpi_message *request, const uint8_t *bytes, size_t len)
{
    size_t parts = within(request->key, bytes, len) + within(request->value, bytes, len) +
                   within(request->expected, bytes, len);
    struct ddpi_keys keys = request->keys;
    struct ddpi_bytes key;
    if (request->op == DDPI_OP_GET_MANY && keys.count == 1 && keys.packed == bytes) {
        HOLDS(ddpi_keys_next(&keys, &key) && within(key, bytes, len) == len);
        return;
    }
    for (size_t list = sizeof(uint64_t); keys.packed != NULL; list = 0) {
        parts += list;
        if (!ddpi_keys_next(&keys, &key))
            break;
        parts += within(key, bytes, len);
    }
    HOLDS(keys.count == 0);
    bool has_number = request->op == DDPI_OP_ADD_WRAP || request->op == DDPI_OP_ARRIVE;
    HOLDS(1 + parts + (has_number ? sizeof(int64_t) : 0) == len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conversation talk = converse(&ddpi_dialect_tcpstore, accounts_for, data, size);
    conversation_finish(&talk);
    return 0;
}
