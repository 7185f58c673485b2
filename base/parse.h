/*
 * parse.h - strict parsing of what people and environments give us.
 *
 * The whole text must match: no leading blanks, no trailing bytes, no sign where none is meant,
 * no silent overflow. Nothing here writes to its results unless it succeeds; the sentence for the
 * person says what was expected, and the caller adds where the text came from.
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

/* "0", "1", "false", "true", in any case. */
ddp_status ddpi_parse_bool(const char *text, bool *ret, struct ddp_error *err);

/* A duration in milliseconds: a decimal number, a fraction allowed, then ms, s, m or h; without a
 * unit, @unit_ms milliseconds each (1000 = seconds). */
ddp_status ddpi_parse_duration_ms(const char *text, uint64_t unit_ms, uint64_t max_ms,
                                  uint64_t *ret, struct ddp_error *err);

/* A size in bytes: a whole number, then nothing, B, or K, M, G (times 1024; KiB, MiB, GiB too). */
ddp_status ddpi_parse_size(const char *text, uint64_t max, uint64_t *ret, struct ddp_error *err);

enum { DDPI_HOST_MAX = 256 };

struct ddpi_endpoint {
    char host[DDPI_HOST_MAX]; /* as typed, without brackets */
    uint16_t port;
    bool has_port;
};

/* "host", "host:port", "[v6]", "[v6]:port". More than one colon without brackets is refused, as
 * nobody can tell where such an address ends. */
ddp_status ddpi_parse_endpoint(const char *text, struct ddpi_endpoint *ret, struct ddp_error *err);

/* The value of the variable @name, of @name_len bytes, in @envp (as in environ); NULL: not set. */
const char *ddpi_parse_env(char *const *envp, const char *name, size_t name_len);

/* Walks "a,b,c": *@cursor starts at the text; each call yields the next item (maybe empty) and
 * returns true, or false at the end. */
bool ddpi_parse_list_next(const char **cursor, char separator, const char **item, size_t *len);

#endif
