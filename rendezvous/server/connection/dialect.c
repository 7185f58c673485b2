/*
 * dialect.c - which dialects there are, and what they say at a glance of requests to come.
 */
#include "dialect.h"

static const struct ddpi_dialect *const dialects[] = {&ddpi_dialect_native, &ddpi_dialect_tcpstore};

const struct ddpi_dialect *ddpi_dialect_of(uint8_t first_byte)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (dialects[i]->first_byte == first_byte)
            return dialects[i];
    return NULL;
}

size_t ddpi_dialect_look_ahead(const struct ddpi_dialect *dialect,
                               const struct ddpi_session *session, const uint8_t *bytes, size_t len,
                               struct ddpi_bytes keys[DDPI_KV_AHEAD], size_t *ret_count)
{
    size_t count = 0, seen = 0, size = 1;
    while (dialect->peek != NULL && count < DDPI_KV_AHEAD && seen < len && size > 0) {
        size = dialect->peek(session, bytes + seen, len - seen, &keys[count]);
        count += size > 0;
        seen += size;
    }
    *ret_count = count;
    return dialect->peek != NULL ? seen : len;
}
