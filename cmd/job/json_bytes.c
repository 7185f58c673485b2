/*
 * json_bytes.c - see job_json.h.
 */
#include "job_json.h"

#include "mem.h"

#include <sodium.h>

json_t *json_bytes(const void *bytes, size_t len)
{
    json_t *string = json_stringn(len > 0 ? bytes : "", len);
    if (string != NULL)
        return string;
    size_t room = sodium_base64_ENCODED_LEN(len, sodium_base64_VARIANT_ORIGINAL);
    char *text = ddpi_calloc(room, 1);
    if (text == NULL)
        return NULL;
    sodium_bin2base64(text, room, bytes, len, sodium_base64_VARIANT_ORIGINAL);
    json_t *object = json_pack("{s:s}", "base64", text);
    ddpi_free(text);
    return object;
}
