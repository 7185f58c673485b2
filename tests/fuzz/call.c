/*
 * call.c - fuzzes the header in front of a collective's payload. What is decoded encodes to
 * the same bytes, equals itself, and has words, whatever numbers stand in it.
 */
#include "call_header.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < DDPI_CALL_WIRE_SIZE)
        return 0;
    struct ddpi_call call, same;
    uint8_t *exact = fuzz_copy(data, DDPI_CALL_WIRE_SIZE);
    if (ddpi_call_decode(exact, &call)) {
        uint8_t again[DDPI_CALL_WIRE_SIZE];
        char text[DDPI_CALL_TEXT];
        ddpi_call_encode(&call, again);
        HOLDS(memcmp(again, exact, sizeof again) == 0);
        HOLDS(ddpi_call_decode(again, &same) && ddpi_call_same(&call, &same));
        ddpi_call_name(&call, text);
        HOLDS(strchr(text, '#') != NULL);
        ddpi_call_describe(&call, text);
        HOLDS(strchr(text, '#') != NULL && strlen(text) < sizeof text - 1);
    }
    free(exact);
    return 0;
}
