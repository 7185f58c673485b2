/*
 * parse.c - strict parsing. The only caller of the strto functions in the project. Owns nothing;
 * does no I/O.
 */
#include "parse.h"

#include "error.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool all_digits(const char *text)
{
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++)
        if (!isdigit((unsigned char)*text))
            return false;
    return true;
}

ddp_status ddpi_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret,
                          struct ddp_error *err)
{
    const char *digits = *text == '-' ? text + 1 : text;
    if (!all_digits(digits))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not a whole number from %lld to %lld",
                              text, (long long)min, (long long)max);
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno == ERANGE || value < min || value > max)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not in the range %lld to %lld", text,
                              (long long)min, (long long)max);
    *ret = value;
    return DDP_OK;
}

ddp_status ddpi_parse_bool(const char *text, bool *ret, struct ddp_error *err)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {{"0", false}, {"1", true}, {"false", false}, {"true", true}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i].word) == 0) {
            *ret = words[i].value;
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not 0, 1, false or true", text);
}

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit *find_unit(const struct unit *units, const char *name)
{
    for (; units->name != NULL; units++)
        if (strcasecmp(units->name, name) == 0)
            return units;
    return NULL;
}

/* A whole part and billionths, to avoid the rounding of binary fractions. */
struct decimal {
    uint64_t whole;
    uint64_t billionths;
    bool overflow; /* the whole part is too large for 64 bits */
};

/* Digits, then an optional fraction, of which nine digits count; *@rest is the text after it. */
static bool parse_decimal(const char *text, struct decimal *number, const char **rest)
{
    if (!isdigit((unsigned char)*text))
        return false;
    *number = (struct decimal){0};
    for (; isdigit((unsigned char)*text); text++)
        if (__builtin_mul_overflow(number->whole, 10, &number->whole) ||
            __builtin_add_overflow(number->whole, (uint64_t)(*text - '0'), &number->whole))
            number->overflow = true;
    if (*text == '.') {
        text++;
        if (!isdigit((unsigned char)*text))
            return false;
        uint64_t weight = 100000000;
        for (; isdigit((unsigned char)*text); text++, weight /= 10)
            number->billionths += weight * (uint64_t)(*text - '0');
    }
    *rest = text;
    return true;
}

ddp_status ddpi_parse_duration_ms(const char *text, uint64_t unit_ms, uint64_t max_ms,
                                  uint64_t *ret, struct ddp_error *err)
{
    const struct unit units[] = {{"", unit_ms}, {"ms", 1},      {"s", 1000},
                                 {"m", 60000},  {"h", 3600000}, {NULL, 0}};
    struct decimal number;
    uint64_t value;
    const char *rest;
    const struct unit *unit = NULL;
    if (parse_decimal(text, &number, &rest))
        unit = find_unit(units, rest);
    if (unit == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not a duration such as 30, 1.5s, 200ms, 5m or 1h", text);
    if (number.overflow || __builtin_mul_overflow(number.whole, unit->factor, &value) ||
        __builtin_add_overflow(value, number.billionths * unit->factor / 1000000000, &value) ||
        value > max_ms)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is longer than the limit of %llu ms", text,
                              (unsigned long long)max_ms);
    *ret = value;
    return DDP_OK;
}

ddp_status ddpi_parse_size(const char *text, uint64_t max, uint64_t *ret, struct ddp_error *err)
{
    static const struct unit units[] = {{"", 1},          {"b", 1},         {"k", 1 << 10},
                                        {"kib", 1 << 10}, {"m", 1 << 20},   {"mib", 1 << 20},
                                        {"g", 1 << 30},   {"gib", 1 << 30}, {NULL, 0}};
    struct decimal number;
    uint64_t value;
    const char *rest;
    const struct unit *unit = NULL;
    if (strchr(text, '.') == NULL && parse_decimal(text, &number, &rest))
        unit = find_unit(units, rest);
    if (unit == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not a size such as 4096, 64K, 1M or 2G",
                              text);
    if (number.overflow || __builtin_mul_overflow(number.whole, unit->factor, &value) ||
        value > max)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is more than the limit of %llu bytes", text,
                              (unsigned long long)max);
    *ret = value;
    return DDP_OK;
}

/* Split into host and rest; false if the form is wrong. */
static bool split_endpoint(const char *text, const char **host, size_t *host_len, const char **rest)
{
    if (*text == '[') {
        const char *close = strchr(text, ']');
        if (close == NULL)
            return false;
        *host = text + 1;
        *host_len = (size_t)(close - text) - 1;
        *rest = close + 1;
    } else {
        *host = text;
        *host_len = strcspn(text, ":");
        *rest = text + *host_len;
        if (**rest == ':' && strchr(*rest + 1, ':') != NULL)
            return false;
    }
    return *host_len > 0 && *host_len < DDPI_HOST_MAX && (**rest == '\0' || **rest == ':');
}

ddp_status ddpi_parse_endpoint(const char *text, struct ddpi_endpoint *ret, struct ddp_error *err)
{
    const char *host, *rest;
    size_t host_len;
    if (!split_endpoint(text, &host, &host_len, &rest))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not HOST, HOST:PORT, [IPV6] or [IPV6]:PORT", text);
    for (size_t i = 0; i < host_len; i++)
        if (!isgraph((unsigned char)host[i]) || strchr("[]/,", host[i]) != NULL)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "'%s' has a character that no host name or address can have",
                                  text);
    struct ddpi_endpoint endpoint = {.has_port = *rest == ':'};
    if (endpoint.has_port) {
        int64_t port;
        ddp_status status = ddpi_parse_int(rest + 1, 0, UINT16_MAX, &port, err);
        if (status != DDP_OK)
            return ddpi_error_wrap(err, status, "the port in '%s'", text);
        endpoint.port = (uint16_t)port;
    }
    memcpy(endpoint.host, host, host_len);
    *ret = endpoint;
    return DDP_OK;
}

bool ddpi_host_is_address(const char *host)
{
    struct in_addr v4;
    return strchr(host, ':') != NULL || inet_aton(host, &v4) != 0;
}

bool ddpi_host_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcasecmp(host, "localhost") == 0;
}

/* The item of @len bytes at @item of the list @text. */
static ddp_status parse_one_of(const char *text, const char *item, size_t len,
                               struct ddpi_endpoint *ret, struct ddp_error *err)
{
    char one[DDPI_HOST_MAX + 16];
    if (len == 0 || len >= sizeof one)
        return ddpi_error_set(err, DDP_E_INVALID, "'%.200s' has an item that is %s", text,
                              len == 0 ? "empty" : "too long for HOST:PORT");
    memcpy(one, item, len);
    one[len] = '\0';
    ddp_status status = ddpi_parse_endpoint(one, ret, err);
    return status == DDP_OK || strlen(text) == len ? status
                                                   : ddpi_error_wrap(err, status, "'%.200s'", text);
}

ddp_status ddpi_parse_endpoints(const char *text, struct ddpi_endpoints *ret, struct ddp_error *err)
{
    struct ddpi_endpoints endpoints = {.count = 0};
    const char *item = text;
    for (bool more = true; more;) {
        size_t len = strcspn(item, ",");
        if (endpoints.count == DDPI_ENDPOINTS_MAX)
            return ddpi_error_set(err, DDP_E_INVALID, "'%.200s' has more than %d endpoints", text,
                                  DDPI_ENDPOINTS_MAX);
        ddp_status status = parse_one_of(text, item, len, &endpoints.at[endpoints.count++], err);
        if (status != DDP_OK)
            return status;
        more = item[len] == ',';
        item += len + more;
    }
    *ret = endpoints;
    return DDP_OK;
}

size_t ddpi_endpoint_text(const struct ddpi_endpoint *endpoint, char *text, size_t size)
{
    bool v6 = strchr(endpoint->host, ':') != NULL;
    return (size_t)snprintf(text, size, v6 ? "[%s]:%u" : "%s:%u", endpoint->host, endpoint->port);
}

void ddpi_endpoints_text(const struct ddpi_endpoints *endpoints, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < endpoints->count; i++) {
        if (i > 0 && used + 1 < size)
            text[used++] = ',';
        used += ddpi_endpoint_text(&endpoints->at[i], text + used, size - used);
        if (used >= size) {
            text[0] = '\0';
            return;
        }
    }
}

const char *ddpi_parse_env(char *const *envp, const char *name, size_t name_len)
{
    for (; *envp != NULL; envp++)
        if (strncmp(*envp, name, name_len) == 0 && (*envp)[name_len] == '=')
            return *envp + name_len + 1;
    return NULL;
}

bool ddpi_parse_list_next(const char **cursor, char separator, const char **item, size_t *len)
{
    if (*cursor == NULL)
        return false;
    const char *end = strchr(*cursor, separator);
    *item = *cursor;
    *len = end != NULL ? (size_t)(end - *cursor) : strlen(*cursor);
    *cursor = end != NULL ? end + 1 : NULL;
    return true;
}

bool ddpi_parse_hex(const char *text, uint64_t *ret)
{
    static const char digits[] = "0123456789abcdef";
    size_t len = strlen(text);
    if (len == 0 || len > 16)
        return false;
    *ret = 0;
    for (size_t i = 0; i < len; i++) {
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL)
            return false;
        *ret = *ret << 4 | (uint64_t)(digit - digits);
    }
    return true;
}
