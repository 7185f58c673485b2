/*
 * json_bytes.h - bytes of a store as JSON, which has only text. Pure.
 */
#ifndef CMD_JSON_BYTES_H
#define CMD_JSON_BYTES_H

#include <jansson.h>
#include <stddef.h>

/* A string if they are UTF-8, else {"base64": "..."}. NULL: out of memory. */
json_t *json_bytes(const void *bytes, size_t len);

#endif
