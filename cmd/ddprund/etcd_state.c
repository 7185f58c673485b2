/*
 * etcd_state.c - see etcd_state.h. Owns the store in etcd.
 */
#include "etcd_state.h"

#include "error.h"
#include "etcd_batch.h"
#include "etcd_store.h"
#include "mem.h"
#include "proof.h"
#include "token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PASSWORD_MAX = 1024 };

struct etcd_state {
    struct etcd_state_options options;
    struct ddpi_etcd_store *store;
    struct ddpi_etcd_address address;
    char endpoint[DDPI_HOST_MAX + 16];
};

bool etcd_state_is(const struct ddprund_options *options)
{
    return options->state != NULL && ddpi_etcd_address_is(options->state);
}

static void lower(uint32_t *limit, uint32_t most)
{
    if (*limit == 0 || *limit > most)
        *limit = most;
}

void etcd_state_limit(struct ddprund_options *options)
{
    if (!etcd_state_is(options))
        return;
    struct ddpi_server_options *server = &options->server;
    lower(&server->max_value_len, DDPI_ETCD_VALUE_MAX);
    lower(&server->tcpstore_max_value_len, DDPI_ETCD_VALUE_MAX);
    if (server->tcpstore_max_key_len >
        DDPI_ETCD_KEY_MAX / 2) /* the prefix of its job comes before */
        server->tcpstore_max_key_len = DDPI_ETCD_KEY_MAX / 2;
}

/* ---- what the store in etcd says ---- */

static void on_stands_by(void *ctx, const char *leader, uint64_t number)
{
    struct etcd_state *state = ctx;
    ddpi_server_stand_by(state->options.server, leader, number);
    if (leader[0] != '\0')
        ddpi_log(state->options.log, DDPI_LOG_INFO, "standing by; the leader is %s", leader);
    state->options.stands_by(state->options.ctx);
}

static ddp_status on_restore(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err)
{
    struct etcd_state *state = ctx;
    return ddpi_server_restore(state->options.server, mutation, err);
}

static void on_leads(void *ctx, const struct ddpi_mark *mark, const struct ddpi_sink *sink)
{
    struct etcd_state *state = ctx;
    struct ddpi_server *server = state->options.server;
    char number[DDPI_STORE_NUMBER];
    ddpi_server_restore_mark(server, mark);
    ddpi_server_set_sink(server, sink, state->options.failed, state->options.ctx);
    ddpi_server_stand_in(server);
    struct ddpi_server_stats stats = ddpi_server_stats(server);
    ddpi_store_number_put(ddpi_server_number(server), number);
    ddpi_log(state->options.log, DDPI_LOG_INFO,
             "leading as %s; this is the store %s, and %s holds %" PRIu64 " keys and %" PRIu64
             " sessions; the latest version is %" PRIu64,
             state->endpoint, number, state->options.options->state, stats.keys, stats.sessions,
             mark->version);
    state->options.leads(state->options.ctx);
}

static void on_over(void *ctx, const struct ddp_error *why)
{
    struct etcd_state *state = ctx;
    state->options.failed(state->options.ctx, why);
}

/* ---- opening ---- */

/* Other users must not be able to read it, nor to have written it. */
static ddp_status check_password_file(int fd, const char *path, struct ddp_error *err)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return ddpi_error_sys(err, errno, "the password file %s", path);
    if (!S_ISREG(about.st_mode))
        return ddpi_error_set(err, DDP_E_DENIED, "the password file %s is not a regular file",
                              path);
    if (about.st_uid != geteuid() && about.st_uid != 0)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the password file %s belongs to user %u; run 'chown %u %s'", path,
                              about.st_uid, geteuid(), path);
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "other users can access the password file %s; run 'chmod 600 %s'",
                              path, path);
    return DDP_OK;
}

static ddp_status read_password(const char *path, char ret[PASSWORD_MAX], struct ddp_error *err)
{
    ret[0] = '\0';
    if (path == NULL)
        return DDP_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe would block */
    if (fd < 0)
        return ddpi_error_sys(err, errno, "the password file %s cannot be opened", path);
    ddp_status status = check_password_file(fd, path, err);
    ssize_t len = status == DDP_OK ? read(fd, ret, PASSWORD_MAX) : 0;
    if (len < 0)
        status = ddpi_error_sys(err, errno, "the password file %s cannot be read", path);
    close(fd);
    if (status == DDP_OK && len == PASSWORD_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "the password in %s is longer than %d bytes",
                              path, PASSWORD_MAX - 2);
    ret[len > 0 ? len : 0] = '\0';
    ret[strcspn(ret, "\r\n")] = '\0';
    return status;
}

/* Where others reach this process: an address of all interfaces is none. */
static ddp_status choose_endpoint(struct etcd_state *state, struct ddp_error *err)
{
    char name[DDPI_HOST_MAX];
    struct ddpi_endpoint at;
    const char *given = state->options.options->advertise;
    const char *first = ddpi_server_endpoint(state->options.server);
    snprintf(state->endpoint, sizeof state->endpoint, "%s", given != NULL ? given : first);
    ddp_status status = ddpi_parse_endpoint(state->endpoint, &at, err);
    if (status != DDP_OK || given != NULL)
        return status;
    if (strcmp(at.host, "0.0.0.0") != 0 && strcmp(at.host, "::") != 0)
        return DDP_OK;
    if (gethostname(name, sizeof name) != 0)
        return ddpi_error_sys(err, errno, "this machine's name is not known; give --advertise");
    name[sizeof name - 1] = '\0';
    snprintf(state->endpoint, sizeof state->endpoint, "%s:%u", name, at.port);
    return DDP_OK;
}

static ddp_status open_store(uv_loop_t *loop, struct etcd_state *state, const char *password,
                             struct ddp_error *err)
{
    const struct ddprund_options *options = state->options.options;
    const struct ddpi_etcd_store_options store = {.address = &state->address,
                                                  .ca_file = options->state_ca_file,
                                                  .cert_file = options->state_cert_file,
                                                  .key_file = options->state_key_file,
                                                  .user = options->state_user,
                                                  .password = password,
                                                  .endpoint = state->endpoint,
                                                  .lease_ms = (uint32_t)options->state_lease_ms,
                                                  .log = state->options.log,
                                                  .ctx = state,
                                                  .stands_by = on_stands_by,
                                                  .restore = on_restore,
                                                  .leads = on_leads,
                                                  .over = on_over};
    return ddpi_etcd_store_open(loop, &store, &state->store, err);
}

ddp_status etcd_state_open(uv_loop_t *loop, const struct etcd_state_options *options,
                           struct etcd_state **ret, struct ddp_error *err)
{
    char password[PASSWORD_MAX];
    struct etcd_state *state = ddpi_calloc(1, sizeof(*state));
    if (state == NULL)
        return ddpi_error_nomem(err, sizeof(*state));
    state->options = *options;
    ddp_status status = ddpi_etcd_address_parse(options->options->state, &state->address, err);
    if (status == DDP_OK)
        status = choose_endpoint(state, err);
    if (status == DDP_OK)
        status = read_password(options->options->state_password_file, password, err);
    if (status == DDP_OK)
        status = open_store(loop, state, password, err);
    ddpi_wipe(password, sizeof password);
    if (status == DDP_OK)
        *ret = state;
    else
        ddpi_free(state);
    return status;
}

void etcd_state_close(struct etcd_state *state)
{
    if (state == NULL)
        return;
    ddpi_etcd_store_close(state->store);
    ddpi_free(state);
}
