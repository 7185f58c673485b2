/*
 * json_bytes.c - see json_bytes.h.
 */
#include "json_bytes.h"

#include "mem.h"

/* RFC 4648: four characters for every three bytes, padded. */
static char *encode_base64(const unsigned char *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = ddpi_calloc(len / 3 + 1, 4 + 1);
    if (text == NULL)
        return NULL;
    char *at = text;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        unsigned group = (unsigned)bytes[i] << 16;
        group |= left > 1 ? (unsigned)bytes[i + 1] << 8 : 0;
        group |= left > 2 ? bytes[i + 2] : 0;
        *at++ = digits[group >> 18];
        *at++ = digits[group >> 12 & 63];
        *at++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[group & 63] : '=';
    }
    return text;
}

json_t *json_bytes(const void *bytes, size_t len)
{
    json_t *string = json_stringn(len > 0 ? bytes : "", len);
    if (string != NULL)
        return string;
    char *text = encode_base64(bytes, len);
    json_t *object = text != NULL ? json_pack("{s:s}", "base64", text) : NULL;
    ddpi_free(text);
    return object;
}
