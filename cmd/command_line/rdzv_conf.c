/*
 * rdzv_conf.c - parses the value of --rdzv-conf by a table of torchrun's keys. Owns nothing.
 */
#include "rdzv_conf.h"

#include "error.h"
#include "parse.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    PAIR_MAX = 256,
    DAY_S = 24 * 3600,
    KEEP_ALIVE_S = 5, /* torchrun's defaults: a node is lost after three intervals of 5 s */
    KEEP_ALIVE_ATTEMPTS = 3,
    LEASE_MAX_MS = 3600 * 1000,
};

/* The numbers as given; negative: not given. */
struct settings {
    int64_t join_timeout_s;
    int64_t settle_s;
    int64_t keep_alive_s;
    int64_t keep_alive_attempts;
    int64_t is_host;
    int64_t ignored;
};

struct key {
    const char *name;
    ddp_status (*read)(const char *value, int64_t *ret, struct ddp_error *err);
    size_t offset;
};

static ddp_status read_number(const char *value, int64_t *ret, struct ddp_error *err)
{
    return ddpi_parse_int(value, 0, DAY_S, ret, err);
}

/* A lease of 0 would declare every node lost. */
static ddp_status read_positive(const char *value, int64_t *ret, struct ddp_error *err)
{
    return ddpi_parse_int(value, 1, DAY_S, ret, err);
}

static ddp_status read_fraction(const char *value, int64_t *ret, struct ddp_error *err)
{
    uint64_t ms;
    (void)ret; /* only for an ignored key */
    return ddpi_parse_duration_ms(value, 1000, (uint64_t)DAY_S * 1000, &ms, err);
}

static ddp_status read_bool(const char *value, int64_t *ret, struct ddp_error *err)
{
    static const char *const words[2][5] = {{"0", "false", "f", "no", "n"},
                                            {"1", "true", "t", "yes", "y"}};
    for (size_t i = 0; i < 10; i++)
        if (strcasecmp(value, words[i / 5][i % 5]) == 0) {
            *ret = (int64_t)(i / 5);
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not true or false", value);
}

static ddp_status read_store_type(const char *value, int64_t *ret, struct ddp_error *err)
{
    (void)ret;
    if (strcasecmp(value, "tcp") == 0)
        return DDP_OK;
    return ddpi_error_set(
        err, DDP_E_UNSUPPORTED,
        "'%s' is not supported: the store is always on the network, 'tcp'; leave it out", value);
}

/* All keys of torchrun 2.x. The ignored ones are times of its own store and protocol. */
static const struct key keys[] = {
    {"join_timeout", read_number, offsetof(struct settings, join_timeout_s)},
    {"timeout", read_number, offsetof(struct settings, join_timeout_s)},
    {"last_call_timeout", read_number, offsetof(struct settings, settle_s)},
    {"keep_alive_interval", read_positive, offsetof(struct settings, keep_alive_s)},
    {"keep_alive_max_attempt", read_positive, offsetof(struct settings, keep_alive_attempts)},
    {"is_host", read_bool, offsetof(struct settings, is_host)},
    {"store_type", read_store_type, offsetof(struct settings, ignored)},
    {"close_timeout", read_number, offsetof(struct settings, ignored)},
    {"heartbeat_timeout", read_number, offsetof(struct settings, ignored)},
    {"read_timeout", read_number, offsetof(struct settings, ignored)},
    {"cas_backoff_max_seconds", read_fraction, offsetof(struct settings, ignored)},
};

static void add_unknown(struct rdzv_conf *conf, const char *name)
{
    static const char cut[] = "...";
    size_t used = strlen(conf->unknown), room = sizeof conf->unknown - used;
    int len = snprintf(conf->unknown + used, room, "%s%s", used > 0 ? ", " : "", name);
    if (len < 0 || (size_t)len >= room)
        memcpy(conf->unknown + sizeof conf->unknown - sizeof cut, cut, sizeof cut);
}

static ddp_status read_pair(const char *name, const char *value, struct settings *settings,
                            struct rdzv_conf *conf, struct ddp_error *err)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(name, keys[i].name) != 0)
            continue;
        int64_t *field = (int64_t *)(void *)((char *)settings + keys[i].offset);
        ddp_status status = keys[i].read(value, field, err);
        return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "'%s'", name);
    }
    add_unknown(conf, name);
    return DDP_OK;
}

/* Strip blanks from both ends of the @len bytes at *@text. */
static void strip(const char **text, size_t *len)
{
    static const char blanks[] = " \t\n\r\f\v";
    while (*len > 0 && strchr(blanks, **text) != NULL) {
        ++*text;
        --*len;
    }
    while (*len > 0 && strchr(blanks, (*text)[*len - 1]) != NULL)
        --*len;
}

static ddp_status read_item(const char *item, size_t len, struct settings *settings,
                            struct rdzv_conf *conf, struct ddp_error *err)
{
    char name[PAIR_MAX], value[PAIR_MAX];
    const char *equals = memchr(item, '=', len);
    size_t name_len = equals != NULL ? (size_t)(equals - item) : len;
    const char *text = equals != NULL ? equals + 1 : item + len;
    size_t text_len = (size_t)(item + len - text);
    strip(&item, &name_len);
    strip(&text, &text_len);
    if (name_len == 0 || text_len == 0 || name_len >= PAIR_MAX || text_len >= PAIR_MAX)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "'%.*s' is not KEY=VALUE; the list is KEY=VALUE,KEY=VALUE,... with no comma at the end",
            name_len < PAIR_MAX ? (int)name_len : PAIR_MAX, item);
    snprintf(name, sizeof name, "%.*s", (int)name_len, item);
    snprintf(value, sizeof value, "%.*s", (int)text_len, text);
    return read_pair(name, value, settings, conf, err);
}

static uint64_t in_ms(int64_t seconds)
{
    return seconds < 0 ? UINT64_MAX : (uint64_t)seconds * 1000;
}

/* torchrun declares a node dead after this many silent intervals. */
static ddp_status make_lease(const struct settings *settings, uint64_t *ret_ms,
                             struct ddp_error *err)
{
    *ret_ms = UINT64_MAX;
    if (settings->keep_alive_s < 0 && settings->keep_alive_attempts < 0)
        return DDP_OK;
    int64_t seconds = settings->keep_alive_s < 0 ? KEEP_ALIVE_S : settings->keep_alive_s;
    int64_t attempts =
        settings->keep_alive_attempts < 0 ? KEEP_ALIVE_ATTEMPTS : settings->keep_alive_attempts;
    char lease[32];
    snprintf(lease, sizeof lease, "%" PRId64 "s", seconds * attempts);
    ddp_status status = ddpi_parse_duration_ms(lease, 1000, LEASE_MAX_MS, ret_ms, err);
    return status == DDP_OK ? DDP_OK
                            : ddpi_error_wrap(err, status,
                                              "the lease, 'keep_alive_interval' (%" PRId64
                                              " s) times 'keep_alive_max_attempt' (%" PRId64 ")",
                                              seconds, attempts);
}

ddp_status rdzv_conf_parse(const char *text, struct rdzv_conf *ret_conf, struct ddp_error *err)
{
    struct settings settings = {-1, -1, -1, -1, -1, -1};
    struct rdzv_conf conf = {0};
    const char *rest = text, *item;
    size_t len = strlen(text);
    strip(&rest, &len);
    if (len > 0)
        for (const char *cursor = text; ddpi_parse_list_next(&cursor, ',', &item, &len);) {
            ddp_status status = read_item(item, len, &settings, &conf, err);
            if (status != DDP_OK)
                return status;
        }
    conf.join_timeout_ms = in_ms(settings.join_timeout_s);
    conf.settle_ms = in_ms(settings.settle_s);
    conf.is_host = (int)settings.is_host;
    ddp_status status = make_lease(&settings, &conf.lease_ms, err);
    if (status == DDP_OK)
        *ret_conf = conf;
    return status;
}
