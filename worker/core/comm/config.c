/*
 * config.c - options and environment -> struct ddpi_config, and the environment of a rank. The only
 * file of the library that knows the names of environment variables. Owns nothing.
 */
#include "config.h"

#include "error.h"
#include "flight_file.h"
#include "life_slot.h"
#include "mem.h"
#include "stripes.h"
#include "text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of struct ddp_comm_options in the first version. */
#define FIRST_SIZE (offsetof(struct ddp_comm_options, algorithm) + sizeof(ddp_algorithm))

const char *ddpi_config_getenv(const char *name)
{
    return getenv(name);
}

static ddp_status env_int(ddpi_getenv *env, const char *name, int64_t min, int64_t max,
                          uint32_t *ret, struct ddp_error *err)
{
    const char *text = env(name);
    if (text == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s is not set; ddprun sets RANK and WORLD_SIZE together", name);
    int64_t value;
    ddp_status status = ddpi_parse_int(text, min, max, &value, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "%s", name);
    *ret = (uint32_t)value;
    return DDP_OK;
}

/* Leaves *@ret, the default, unchanged if the variable is not set. */
static ddp_status env_duration(ddpi_getenv *env, const char *name, uint32_t *ret,
                               struct ddp_error *err)
{
    const char *text = env(name);
    if (text == NULL)
        return DDP_OK;
    uint64_t value;
    ddp_status status = ddpi_parse_duration_ms(text, 1000, UINT32_MAX, &value, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "%s", name);
    if (value == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "%s: a timeout of 0 is too short", name);
    *ret = (uint32_t)value;
    return DDP_OK;
}

/* Optional: ignored if malformed. */
static void load_life(ddpi_getenv *env, struct ddpi_config *config)
{
    const char *fd_text = env(DDPI_LIFE_FD_ENV), *slot_text = env(DDPI_LIFE_SLOT_ENV);
    int64_t fd, slot;
    config->life_fd = -1;
    if (fd_text == NULL || slot_text == NULL ||
        ddpi_parse_int(fd_text, 3, INT32_MAX, &fd, NULL) != DDP_OK ||
        ddpi_parse_int(slot_text, 0, INT32_MAX, &slot, NULL) != DDP_OK)
        return;
    config->life_fd = (int)fd;
    config->life_slot = (uint32_t)slot;
}

static void load_flight(ddpi_getenv *env, struct ddpi_config *config)
{
    const char *text = env(DDPI_FLIGHT_FD_ENV);
    int64_t fd;
    bool given = text != NULL && ddpi_parse_int(text, 3, INT32_MAX, &fd, NULL) == DDP_OK;
    config->flight_fd = given ? (int)fd : -1;
}

static ddp_status env_flag(ddpi_getenv *env, const char *name, bool *ret, struct ddp_error *err)
{
    const char *text = env(name);
    if (text == NULL)
        return DDP_OK;
    ddp_status status = ddpi_parse_bool(text, ret, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "%s", name);
}

static ddp_status env_algorithm(ddpi_getenv *env, const char *name, ddp_algorithm *ret,
                                struct ddp_error *err)
{
    static const struct {
        const char *name;
        ddp_algorithm algorithm;
    } known[] = {
#define ALGORITHM_ROW(symbol, name) {name, symbol},
        DDP_ALGORITHM_MAP(ALGORITHM_ROW)
#undef ALGORITHM_ROW
    };
    const char *text = env(name);
    if (text == NULL)
        return DDP_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].name) == 0) {
            *ret = known[i].algorithm;
            return DDP_OK;
        }
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "%s: '%s' is not an algorithm; use ring, direct, doubling, hierarchical or auto", name,
        text);
}

static ddp_status load_algorithm(const struct ddp_comm_options *options, ddpi_getenv *env,
                                 struct ddpi_config *config, struct ddp_error *err)
{
    config->algorithm = options->algorithm;
    if ((unsigned)options->algorithm > DDP_ALGORITHM_HIERARCHICAL)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not an algorithm",
                              (int)options->algorithm);
    if (config->algorithm != DDP_ALGORITHM_AUTO)
        return DDP_OK;
    return env_algorithm(env, "DDP_ALGORITHM", &config->algorithm, err);
}

enum { TABLE_TEXT = 16 * 1024 };

static ddp_status load_table(ddpi_getenv *env, struct ddpi_config *config, struct ddp_error *err)
{
    const char *path = env("DDP_ALGORITHM_TABLE");
    if (path == NULL)
        return DDP_OK;
    char *text = ddpi_calloc(TABLE_TEXT, 1);
    if (text == NULL)
        return ddpi_error_nomem(err, TABLE_TEXT);
    size_t len;
    ddp_status status = ddpi_text_file_load(path, text, TABLE_TEXT, &len, err);
    if (status == DDP_OK && len == 0)
        status = ddpi_error_set(
            err, DDP_E_INVALID,
            "'%s' is empty: it has lines such as 'all_reduce 8 2 65536 doubling'", path);
    if (status == DDP_OK)
        status = ddpi_selection_parse(path, text, len, &config->table, err);
    if (status != DDP_OK)
        ddpi_error_wrap(err, status, "DDP_ALGORITHM_TABLE");
    ddpi_free(text);
    return status;
}

static ddp_status load_place(const struct ddp_comm_options *options, ddpi_getenv *env,
                             struct ddpi_config *config, struct ddp_error *err)
{
    if (options->world_size != 0) {
        config->world_size = options->world_size;
        config->rank = options->rank;
    } else if (env("RANK") == NULL && env("WORLD_SIZE") == NULL) {
        config->world_size = 1;
    } else {
        ddp_status status = env_int(env, "WORLD_SIZE", 1, DDPI_WORLD_MAX, &config->world_size, err);
        if (status == DDP_OK)
            status = env_int(env, "RANK", 0, DDPI_WORLD_MAX - 1, &config->rank, err);
        if (status != DDP_OK)
            return status;
    }
    if (config->world_size > DDPI_WORLD_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "a world of %u ranks is larger than %d",
                              config->world_size, DDPI_WORLD_MAX);
    if (config->rank >= config->world_size)
        return ddpi_error_set(err, DDP_E_INVALID, "rank %u does not exist in a world of %u ranks",
                              config->rank, config->world_size);
    return DDP_OK;
}

static ddp_status env_fd(ddpi_getenv *env, const char *name, int *ret, struct ddp_error *err)
{
    uint32_t fd;
    if (env(name) == NULL)
        return DDP_OK;
    ddp_status status = env_int(env, name, 3, INT32_MAX, &fd, err);
    if (status == DDP_OK)
        *ret = (int)fd;
    return status;
}

/* The keys are for the launcher's store and the ranks that meet there, not for another store that
 * the caller names: ranks may join there from elsewhere. */
static ddp_status load_keys(ddpi_getenv *env, struct ddpi_config *config, struct ddp_error *err)
{
    const char *launchers = env("DDPRUN_STORE");
    if (launchers == NULL || strcmp(config->store_endpoint, launchers) != 0)
        return DDP_OK;
    ddp_status status = env_fd(env, "DDPRUN_TOKEN_FD", &config->token_fd, err);
    if (status == DDP_OK)
        status = env_flag(env, "DDPRUN_TLS", &config->tls, err);
    if (status == DDP_OK)
        status = env_flag(env, "DDPRUN_TLS_RANKS", &config->tls_ranks, err);
    if (status == DDP_OK)
        status = env_fd(env, "DDPRUN_RANK_KEY_FD", &config->rank_key_fd, err);
    return status;
}

/* Where the store behind functions of the caller probably is: PyTorch's is at MASTER_ADDR. Host "":
 * the environment says nothing. */
static void guess_server(ddpi_getenv *env, struct ddpi_endpoint *ret)
{
    const char *store = env("DDPRUN_STORE"), *master = env("MASTER_ADDR");
    struct ddpi_endpoints endpoints;
    if (master != NULL && strlen(master) < sizeof ret->host)
        snprintf(ret->host, sizeof ret->host, "%s", master);
    else if (store != NULL && ddpi_parse_endpoints(store, &endpoints, NULL) == DDP_OK)
        *ret = endpoints.at[0];
}

static ddp_status load_kv(const struct ddp_comm_options *options, ddpi_getenv *env,
                          struct ddpi_config *config, struct ddp_error *err)
{
    const struct ddp_kv *kv = options->kv;
    if (kv->size < sizeof *kv)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "size in struct ddp_kv is %zu, at least %zu expected", kv->size,
                              sizeof *kv);
    if (kv->set == NULL || kv->get == NULL || kv->wait == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "struct ddp_kv lacks a function: only remove may be NULL");
    config->way = DDPI_WAY_KV;
    config->kv = kv;
    guess_server(env, &config->server);
    return DDP_OK;
}

static const char digits[] = "0123456789abcdef";

/* Two hexadecimal digits for each byte. */
static bool parse_id(const char *text, struct ddp_unique_id *ret)
{
    if (strlen(text) != 2 * sizeof ret->bytes)
        return false;
    for (size_t i = 0; i < sizeof ret->bytes; i++) {
        const char *high = strchr(digits, text[2 * i]), *low = strchr(digits, text[2 * i + 1]);
        if (high == NULL || low == NULL)
            return false;
        ret->bytes[i] = (char)((high - digits) << 4 | (low - digits));
    }
    return true;
}

static ddp_status load_id(const struct ddp_comm_options *options, ddpi_getenv *env,
                          struct ddpi_config *config, struct ddp_error *err)
{
    config->way = DDPI_WAY_ID;
    if (options->unique_id != NULL) {
        config->unique_id = *options->unique_id;
        return DDP_OK;
    }
    if (parse_id(env("DDP_UNIQUE_ID"), &config->unique_id))
        return DDP_OK;
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "DDP_UNIQUE_ID is not a unique id: %zu hexadecimal digits, 0-9 and a-f, are expected",
        2 * sizeof config->unique_id.bytes);
}

/* Below torchrun, and below launchers that set its variables. */
static ddp_status load_master(ddpi_getenv *env, struct ddpi_config *config, struct ddp_error *err)
{
    const char *host = env("MASTER_ADDR"), *agent = env("TORCHELASTIC_USE_AGENT_STORE");
    uint32_t port;
    if (strlen(host) >= sizeof config->master.host || *host == '\0')
        return ddpi_error_set(err, DDP_E_INVALID, "MASTER_ADDR: '%.40s' is not a host", host);
    if (env("MASTER_PORT") == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "MASTER_ADDR is set and MASTER_PORT is not: set both, or neither");
    ddp_status status = env_int(env, "MASTER_PORT", 1, UINT16_MAX, &port, err);
    if (status != DDP_OK)
        return status;
    config->master = (struct ddpi_endpoint){.port = (uint16_t)port, .has_port = true};
    snprintf(config->master.host, sizeof config->master.host, "%s", host);
    bool hosted = agent != NULL && strcmp(agent, "True") == 0; /* as PyTorch reads it */
    config->way = hosted ? DDPI_WAY_TORCH_STORE : DDPI_WAY_MASTER;
    return DDP_OK;
}

static ddp_status load_store(const struct ddp_comm_options *options, ddpi_getenv *env,
                             struct ddpi_config *config, struct ddp_error *err)
{
    config->store_endpoint =
        options->store_endpoint != NULL ? options->store_endpoint : env("DDPRUN_STORE");
    if (config->store_endpoint == NULL && env("MASTER_ADDR") != NULL)
        return load_master(env, config, err);
    if (config->store_endpoint == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "DDPRUN_STORE is not set, and MASTER_ADDR is not: %u ranks cannot "
                              "find each other; start the program with ddprun or torchrun",
                              config->world_size);
    config->way = DDPI_WAY_STORE;
    config->store_prefix =
        options->store_prefix != NULL ? options->store_prefix : env("DDPRUN_STORE_PREFIX");
    return load_keys(env, config, err);
}

static ddp_status load_way(const struct ddp_comm_options *options, ddpi_getenv *env,
                           struct ddpi_config *config, struct ddp_error *err)
{
    config->name = options->name != NULL ? options->name : "world";
    size_t name_len = strlen(config->name);
    if (name_len == 0 || name_len > 128 || strchr(config->name, '/') != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the name of a communicator has 1 to 128 characters and no '/'");
    if ((options->kv != NULL) + (options->unique_id != NULL) + (options->store_endpoint != NULL) >
        1)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "kv, unique_id and store_endpoint are different ways to meet: set one of them");
    if (options->unique_id != NULL ||
        (options->kv == NULL && options->store_endpoint == NULL && env("DDP_UNIQUE_ID") != NULL))
        return load_id(options, env, config, err);
    if (config->world_size == 1)
        return DDP_OK;
    if (options->kv != NULL)
        return load_kv(options, env, config, err);
    return load_store(options, env, config, err);
}

static ddp_status load_sockets(ddpi_getenv *env, struct ddpi_config *config, struct ddp_error *err)
{
    static const char name[] = "DDP_SOCKETS_PER_EDGE";
    uint32_t sockets = 1;
    ddp_status status = DDP_OK;
    if (env(name) != NULL)
        status = env_int(env, name, 1, DDPI_SOCKETS_MAX, &sockets, err);
    config->sockets = (uint8_t)sockets;
    return status;
}

static ddp_status load_limits(const struct ddp_comm_options *options, ddpi_getenv *env,
                              struct ddpi_config *config, struct ddp_error *err)
{
    config->init_timeout_ms = options->init_timeout_ms;
    config->timeout_ms = options->timeout_ms;
    config->force_tcp = options->force_tcp != 0;
    ddp_status status = DDP_OK;
    if (config->init_timeout_ms == 0) {
        config->init_timeout_ms = DDPI_DEFAULT_TIMEOUT_MS;
        status = env_duration(env, "DDP_INIT_TIMEOUT", &config->init_timeout_ms, err);
    }
    if (status == DDP_OK && config->timeout_ms == 0) {
        config->timeout_ms = DDPI_DEFAULT_TIMEOUT_MS;
        status = env_duration(env, "DDP_TIMEOUT", &config->timeout_ms, err);
    }
    if (status == DDP_OK && !config->force_tcp)
        status = env_flag(env, "DDP_FORCE_TCP", &config->force_tcp, err);
    return status == DDP_OK ? load_sockets(env, config, err) : status;
}

const char *ddpi_config_interfaces(ddpi_getenv *env)
{
    return env("DDP_SOCKET_IFNAME");
}

const char *ddpi_config_timeline(ddpi_getenv *env)
{
    const char *path = env("DDP_TIMELINE");
    return path != NULL && *path != '\0' ? path : NULL;
}

ddp_status ddpi_config_load(const struct ddp_comm_options *options, ddpi_getenv *env,
                            struct ddpi_config *ret_config, struct ddp_error *err)
{
    struct ddp_comm_options known = {0}; /* members of later versions stay zero */
    if (options != NULL && options->size < FIRST_SIZE)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "size in struct ddp_comm_options is %zu, at least %zu expected",
                              options->size, FIRST_SIZE);
    if (options != NULL)
        memcpy(&known, options, options->size < sizeof known ? options->size : sizeof known);
    struct ddpi_config config = {.interfaces = ddpi_config_interfaces(env),
                                 .local_address = env("DDPRUN_LOCAL_ADDR"),
                                 .host_id = env("DDP_HOST_ID")};
    ddp_status status = load_place(&known, env, &config, err);
    if (status == DDP_OK)
        status = load_way(&known, env, &config, err);
    if (status == DDP_OK)
        status = load_limits(&known, env, &config, err);
    if (status == DDP_OK)
        status = load_algorithm(&known, env, &config, err);
    if (status == DDP_OK)
        status = load_table(env, &config, err);
    load_life(env, &config);
    load_flight(env, &config);
    if (status == DDP_OK)
        *ret_config = config;
    return status;
}

static void print_id(const struct ddp_unique_id *id, char text[2 * sizeof id->bytes + 1])
{
    for (size_t i = 0; i < sizeof id->bytes; i++) {
        text[2 * i] = digits[(unsigned char)id->bytes[i] >> 4];
        text[2 * i + 1] = digits[(unsigned char)id->bytes[i] & 15];
    }
    text[2 * sizeof id->bytes] = '\0';
}

/* The slot of life_slot.h is the parent's: its agent would take the end of this rank for its. */
ddp_status ddpi_config_enter_rank(uint32_t rank, uint32_t world_size,
                                  const struct ddp_unique_id *id, struct ddp_error *err)
{
    char id_text[2 * sizeof id->bytes + 1], rank_text[16], world_text[16];
    const struct {
        const char *name, *value;
    } variables[] = {{"RANK", rank_text},
                     {"LOCAL_RANK", rank_text},
                     {"WORLD_SIZE", world_text},
                     {"LOCAL_WORLD_SIZE", world_text},
                     {"DDP_UNIQUE_ID", id_text}};
    print_id(id, id_text);
    snprintf(rank_text, sizeof rank_text, "%u", rank);
    snprintf(world_text, sizeof world_text, "%u", world_size);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (setenv(variables[i].name, variables[i].value, 1) != 0)
            return ddpi_error_sys(err, errno, "set the variable %s", variables[i].name);
    unsetenv(DDPI_LIFE_FD_ENV);
    unsetenv(DDPI_LIFE_SLOT_ENV);
    return DDP_OK;
}
