/*
 * parse.h - strict parsing of command lines, environment variables and files.
 *
 * The whole text must match: no leading blanks, no trailing bytes, no unexpected sign, no silent
 * overflow. A function writes its results only if it succeeds. Its error message says which form is
 * expected; the caller adds where the text came from.
 */
#ifndef DDPI_PARSE_H
#define DDPI_PARSE_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A decimal integer in [min, max]. */
ddp_status ddpi_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret,
                          struct ddp_error *err);

/* 1 to 16 of [0-9a-f]. */
bool ddpi_parse_hex(const char *text, uint64_t *ret);

/* "0", "1", "false", "true", in any case. */
ddp_status ddpi_parse_bool(const char *text, bool *ret, struct ddp_error *err);

/* A duration in milliseconds: a decimal number, which may have a fraction, then ms, s, m or h.
 * Without a unit the number counts units of @unit_ms milliseconds (1000 = seconds). */
ddp_status ddpi_parse_duration_ms(const char *text, uint64_t unit_ms, uint64_t max_ms,
                                  uint64_t *ret, struct ddp_error *err);

/* A size in bytes: a whole number, then nothing, B, or K, M, G (powers of 1024; also KiB, ...). */
ddp_status ddpi_parse_size(const char *text, uint64_t max, uint64_t *ret, struct ddp_error *err);

enum { DDPI_HOST_MAX = 256 };

struct ddpi_endpoint {
    char host[DDPI_HOST_MAX]; /* as typed, without brackets */
    uint16_t port;
    bool has_port;
};

/* "host", "host:port", "[v6]", "[v6]:port". Several colons without brackets are refused, as it is
 * ambiguous where the address ends. */
ddp_status ddpi_parse_endpoint(const char *text, struct ddpi_endpoint *ret, struct ddp_error *err);

/* Whether @host is an address in digits, as getaddrinfo(3) takes them, and no name. */
bool ddpi_host_is_address(const char *host);

/* Whether @host is an address of the loopback interface, or "localhost": only this machine reaches
 * it. No resolver is asked. */
bool ddpi_host_is_loopback(const char *host);

/* "host:port" or "[v6]:port". Returns the length as snprintf() does. */
size_t ddpi_endpoint_text(const struct ddpi_endpoint *endpoint, char *text, size_t size);

enum { DDPI_ENDPOINTS_MAX = 8, DDPI_ENDPOINTS_TEXT = DDPI_ENDPOINTS_MAX * (DDPI_HOST_MAX + 16) };

/* Servers that take each other's place. */
struct ddpi_endpoints {
    struct ddpi_endpoint at[DDPI_ENDPOINTS_MAX];
    uint32_t count;
};

/* Endpoints with commas between them, at least one. */
ddp_status ddpi_parse_endpoints(const char *text, struct ddpi_endpoints *ret,
                                struct ddp_error *err);

/* Their texts with commas between them; an empty text if @size is too small. */
void ddpi_endpoints_text(const struct ddpi_endpoints *endpoints, char *text, size_t size);

/* The value of the variable @name, of @name_len bytes, in @envp (as environ); NULL if not set. */
const char *ddpi_parse_env(char *const *envp, const char *name, size_t name_len);

/* Iterate over "a,b,c": *@cursor starts at the text. Each call gives the next item, which may be
 * empty, and returns true; at the end it returns false. */
bool ddpi_parse_list_next(const char **cursor, char separator, const char **item, size_t *len);

#endif
