/*
 * parse.c - fuzzes base/parse.h: the input is one text, given to every parser. What was parsed,
 * written down again, parses to the same; what is refused leaves the result alone.
 */
#include "parse.h"

#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void parse_int(const char *text, int64_t min, int64_t max)
{
    int64_t value = 4711, again;
    struct ddp_error err;
    char written[32];
    ddp_status status = ddpi_parse_int(text, min, max, &value, &err);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        HOLDS(value == 4711);
        return;
    }
    HOLDS(value >= min && value <= max);
    snprintf(written, sizeof written, "%lld", (long long)value);
    HOLDS(ddpi_parse_int(written, min, max, &again, NULL) == DDP_OK && again == value);
}

static void parse_bool(const char *text)
{
    bool no = false, yes = true;
    struct ddp_error err;
    ddp_status status = ddpi_parse_bool(text, &no, &err);
    HOLDS(ddpi_parse_bool(text, &yes, NULL) == status);
    if (status != DDP_OK)
        fuzz_check_error(&err, status);
    HOLDS((no == yes) == (status == DDP_OK));
}

static void parse_duration(const char *text, uint64_t unit_ms, uint64_t max_ms)
{
    uint64_t value = 4711, again;
    struct ddp_error err;
    char written[32];
    ddp_status status = ddpi_parse_duration_ms(text, unit_ms, max_ms, &value, &err);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        HOLDS(value == 4711);
        return;
    }
    HOLDS(value <= max_ms);
    snprintf(written, sizeof written, "%llums", (unsigned long long)value);
    HOLDS(ddpi_parse_duration_ms(written, 1, max_ms, &again, NULL) == DDP_OK && again == value);
}

static void parse_size(const char *text, uint64_t max)
{
    uint64_t value = 4711, again;
    struct ddp_error err;
    char written[32];
    ddp_status status = ddpi_parse_size(text, max, &value, &err);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        HOLDS(value == 4711);
        return;
    }
    HOLDS(value <= max);
    snprintf(written, sizeof written, "%lluB", (unsigned long long)value);
    HOLDS(ddpi_parse_size(written, max, &again, NULL) == DDP_OK && again == value);
}

static void parse_endpoint(const char *text)
{
    struct ddpi_endpoint endpoint = {.port = 4711}, again;
    struct ddp_error err;
    char written[DDPI_HOST_MAX + 16];
    ddp_status status = ddpi_parse_endpoint(text, &endpoint, &err);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        HOLDS(endpoint.port == 4711);
        return;
    }
    size_t len = strnlen(endpoint.host, sizeof endpoint.host);
    HOLDS(len > 0 && len < sizeof endpoint.host);
    HOLDS(endpoint.has_port || endpoint.port == 0);
    snprintf(written, sizeof written, endpoint.has_port ? "[%s]:%u" : "[%s]", endpoint.host,
             endpoint.port);
    HOLDS(ddpi_parse_endpoint(written, &again, NULL) == DDP_OK);
    HOLDS(strcmp(again.host, endpoint.host) == 0 && again.port == endpoint.port &&
          again.has_port == endpoint.has_port);
}

/* The items with separators between them are the text. */
static void parse_list(const char *text)
{
    const char *item, *expected = text;
    size_t len;
    for (const char *cursor = text; ddpi_parse_list_next(&cursor, ',', &item, &len);) {
        HOLDS(item == expected && memchr(item, ',', len) == NULL);
        HOLDS(cursor == NULL || item[len] == ',');
        HOLDS(cursor != NULL || item[len] == '\0');
        expected = cursor;
    }
    HOLDS(expected == NULL);
}

/* The text as a variable, looked up by every beginning of it. */
static void parse_env(char *text)
{
    char *const envp[] = {text, NULL};
    size_t len = strlen(text);
    for (size_t name_len = 0; name_len <= len && name_len < 64; name_len++) {
        const char *value = ddpi_parse_env(envp, text, name_len);
        HOLDS(value == (text[name_len] == '=' ? text + name_len + 1 : NULL));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    parse_int(text, INT64_MIN, INT64_MAX);
    parse_int(text, 0, UINT16_MAX);
    parse_int(text, -5, 5);
    parse_bool(text);
    parse_duration(text, 1000, UINT64_MAX);
    parse_duration(text, 3600000, UINT32_MAX);
    parse_size(text, UINT64_MAX);
    parse_size(text, 65536);
    parse_endpoint(text);
    parse_list(text);
    parse_env(text);
    free(text);
    return 0;
}
