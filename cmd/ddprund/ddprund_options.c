/*
 * ddprund_options.c - ddprund's option table and the parsers of its particular values.
 */
#include "ddprund_options.h"

#include "auth_option.h"
#include "error.h"
#include "etcd_address.h"

#include <string.h>

static ddp_status take_address(struct ddprund_listen *listen, const char *job, const char *text,
                               struct ddp_error *err)
{
    struct ddprund_address address = {0};
    ddp_status status = ddpi_parse_endpoint(text, &address.endpoint, err);
    if (status != DDP_OK)
        return status;
    if (!address.endpoint.has_port)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' has no port; write HOST:PORT, where port 0 takes a free port",
                              text);
    if (listen->count == DDPRUND_LISTEN_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "more than %d addresses", DDPRUND_LISTEN_MAX);
    memcpy(address.job, job, strlen(job) + 1);
    listen->at[listen->count++] = address;
    return DDP_OK;
}

enum { ADDRESS_TEXT = DDPI_JOB_MAX + DDPI_HOST_MAX + 16 };

/* Call @take for each item of the list @text; items add to those that @listen has. */
static ddp_status take_list(const char *text, struct ddprund_listen *listen,
                            ddp_status (*take)(struct ddprund_listen *, char *, struct ddp_error *),
                            struct ddp_error *err)
{
    if (listen->is_default)
        *listen = (struct ddprund_listen){0};
    const char *item;
    size_t len;
    ddp_status status = DDP_OK;
    for (const char *cursor = text;
         status == DDP_OK && ddpi_parse_list_next(&cursor, ',', &item, &len);) {
        char one[ADDRESS_TEXT];
        snprintf(one, sizeof one, "%.*s", (int)(len < sizeof one ? len : sizeof one), item);
        status = take(listen, one, err);
    }
    return status;
}

/* HOST:PORT */
static ddp_status take_listen(struct ddprund_listen *listen, char *text, struct ddp_error *err)
{
    return take_address(listen, "", text, err);
}

/* JOB=HOST:PORT */
static ddp_status take_data_port(struct ddprund_listen *listen, char *text, struct ddp_error *err)
{
    char *equals = strchr(text, '=');
    if (equals == NULL || !ddpi_job_valid(text, (size_t)(equals - text)))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not JOB=HOST:PORT; JOB is 1 to %d of [A-Za-z0-9._-], not "
                              "'-', and does not begin with '.'",
                              text, DDPI_JOB_MAX);
    *equals = '\0';
    return take_address(listen, text, equals + 1, err);
}

static ddp_status parse_listen(const struct option *option, const char *text, void *field,
                               struct ddp_error *err)
{
    (void)option;
    return take_list(text, field, take_listen, err);
}

static ddp_status parse_data_port(const struct option *option, const char *text, void *field,
                                  struct ddp_error *err)
{
    (void)option;
    return take_list(text, field, take_data_port, err);
}

static ddp_status parse_job(const struct option *option, const char *text, void *field,
                            struct ddp_error *err)
{
    (void)option;
    if (!ddpi_job_valid(text, strlen(text)))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' cannot be the name of a job", text);
    *(const char **)field = text;
    return DDP_OK;
}

static ddp_status parse_busy_poll(const struct option *option, const char *text, void *field,
                                  struct ddp_error *err)
{
    int64_t value;
    ddp_status status = ddpi_parse_int(text, option->min, option->max, &value, err);
    if (status == DDP_OK)
        *(uint32_t *)field = value > 0 ? (uint32_t)value : DDPI_SERVER_NO_BUSY_POLL;
    return status;
}

static ddp_status parse_state(const struct option *option, const char *text, void *field,
                              struct ddp_error *err)
{
    (void)option;
    struct ddpi_etcd_address address;
    if (ddpi_etcd_address_is(text)) {
        ddp_status status = ddpi_etcd_address_parse(text, &address, err);
        if (status != DDP_OK)
            return status;
    }
    *(const char **)field = text;
    return DDP_OK;
}

static ddp_status parse_advertise(const struct option *option, const char *text, void *field,
                                  struct ddp_error *err)
{
    (void)option;
    struct ddpi_endpoint at;
    ddp_status status = ddpi_parse_endpoint(text, &at, err);
    if (status != DDP_OK)
        return status;
    if (!at.has_port || at.port == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' has no port; write HOST:PORT", text);
    *(const char **)field = text;
    return DDP_OK;
}

static ddp_status parse_count(const struct option *option, const char *text, void *field,
                              struct ddp_error *err)
{
    uint64_t value = 0;
    ddp_status status = option_u64(option, text, &value, err);
    if (status == DDP_OK)
        *(size_t *)field = (size_t)value;
    return status;
}

static ddp_status parse_size(const struct option *option, const char *text, void *field,
                             struct ddp_error *err)
{
    uint64_t value = 0;
    ddp_status status = option_size(option, text, &value, err);
    if (status == DDP_OK)
        *(size_t *)field = (size_t)value;
    return status;
}

static ddp_status parse_length(const struct option *option, const char *text, void *field,
                               struct ddp_error *err)
{
    uint64_t value = 0;
    ddp_status status = option_size(option, text, &value, err);
    if (status == DDP_OK)
        *(uint32_t *)field = (uint32_t)value;
    return status;
}

static ddp_status parse_ms(const struct option *option, const char *text, void *field,
                           struct ddp_error *err)
{
    uint64_t value;
    ddp_status status = option_duration(option, text, &value, err);
    if (status == DDP_OK)
        *(uint32_t *)field = (uint32_t)value;
    return status;
}

#define FIELD(member)  offsetof(struct ddprund_options, member)
#define LISTENING      "Listening"
#define AUTHENTICATION "Authentication"
#define LIMITS         "Limits (what exceeds one is refused, counted and logged)"
#define TCPSTORE       "TCPStore clients (PyTorch)"
#define STATE          "State"
#define CLUSTER        "Three machines that keep one store"
#define RUNNING        "Running and logging"
#define OTHER          "Other"

#define KIB   INT64_C(1024)
#define MIB   (1024 * KIB)
#define TIB   (1024 * 1024 * MIB)
#define HOURS (INT64_C(3600) * 1000)

static const struct option table[] = {
    {"listen", 0, "HOST:PORT", "DDPRUND_LISTEN", "127.0.0.1:29400", LISTENING,
     "address to listen on; for several, separate them by commas or repeat the option. Port 0 "
     "takes a free port; write an IPv6 address in brackets (it takes IPv6 only)",
     parse_listen, FIELD(listen), 0, 0},
    {"data-port", 0, "JOB=HOST:PORT", "DDPRUND_DATA_PORT", NULL, LISTENING,
     "address for the TCPStore clients (PyTorch) of JOB: their protocol cannot name the job. "
     "Several as with --listen",
     parse_data_port, FIELD(data_ports), 0, 0},

    AUTH_OPTIONS("DDPRUND", AUTHENTICATION, FIELD(server.auth), FIELD(server.trust_local_users)),
    {"tls", 0, NULL, "DDPRUN_TLS", NULL, AUTHENTICATION,
     "require TLS 1.3, keyed by the token, of clients from other machines. TCPStore clients cannot "
     "speak it, so they are admitted from this machine only",
     option_switch, FIELD(server.tls), 0, 0},
    {"tcpstore-in-clear", 0, NULL, "DDPRUND_TCPSTORE_IN_CLEAR", NULL, AUTHENTICATION,
     "with --tls: admit TCPStore clients as without it; their data is not encrypted", option_switch,
     FIELD(server.tcpstore_in_clear), 0, 0},
    {"token-file", 0, "FILE", "DDPRUN_TOKEN_FILE", "~/.config/ddprun/token", AUTHENTICATION,
     "the token; the default file is created when it is first needed", option_text,
     FIELD(token_file), 0, 0},
    {"token-fd", 0, "N", "DDPRUN_TOKEN_FD", NULL, AUTHENTICATION,
     "read the token from the open descriptor N; overrides --token-file", option_u32,
     FIELD(token_fd), 3, INT32_MAX},

    {"max-connections", 0, "N", "DDPRUND_MAX_CONNECTIONS",
     "65536, or what the limit on open files allows", LIMITS, "connections at the same time",
     option_u32, FIELD(server.max_connections), 1, 10000000},
    {"max-half-open", 0, "N", "DDPRUND_MAX_HALF_OPEN", "4096", LIMITS,
     "connections that have not authenticated yet; when there are more, the oldest is closed",
     option_u32, FIELD(server.max_half_open), 1, 10000000},
    {"connection-rate", 0, "N", "DDPRUND_CONNECTION_RATE", "20", LIMITS,
     "connections per second and address that may end before they authenticate (bursts: ten times "
     "as many); when there are more, further ones are not accepted. On loopback it counts per "
     "user, for the server's own user only with --auth=always",
     option_u32, FIELD(server.connection_rate), 1, 1000000},
    {"max-data-ports", 0, "N", "DDPRUND_MAX_DATA_PORTS", "256", LIMITS,
     "data ports that clients open for their jobs", option_u32, FIELD(server.max_data_ports), 1,
     65536},
    {"max-keys", 0, "N", "DDPRUND_MAX_KEYS", "1000000", LIMITS, "keys", parse_count,
     FIELD(server.max_keys), 1, INT64_C(1000000000)},
    {"max-bytes", 0, "SIZE", "DDPRUND_MAX_BYTES", "1G", LIMITS,
     "memory for keys, values and waiting requests", parse_size, FIELD(server.max_bytes), 4 * KIB,
     16 * TIB},
    {"max-key", 0, "SIZE", "DDPRUND_MAX_KEY", "4K", LIMITS, "length of a key; at most 4K",
     parse_length, FIELD(server.max_key_len), 1, 4 * KIB},
    {"max-value", 0, "SIZE", "DDPRUND_MAX_VALUE", "16M", LIMITS, "length of a value; at most 16M",
     parse_length, FIELD(server.max_value_len), 1, 16 * MIB},
    {"max-waits", 0, "N", "DDPRUND_MAX_WAITS", "1024", LIMITS, "waiting requests of one connection",
     option_u32, FIELD(server.max_waits), 1, 1000000},
    {"max-keys-per-wait", 0, "N", "DDPRUND_MAX_KEYS_PER_WAIT", "4096", LIMITS,
     "keys that one request waits for; at most 4096", option_u32, FIELD(server.max_keys_per_wait),
     1, 4 * KIB},
    {"max-watches", 0, "N", "DDPRUND_MAX_WATCHES", "1024", LIMITS, "watches of one connection",
     option_u32, FIELD(server.max_watches), 1, 1000000},
    {"max-sessions", 0, "N", "DDPRUND_MAX_SESSIONS", "65536", LIMITS, "sessions", parse_count,
     FIELD(server.max_sessions), 1, 10000000},
    {"max-job-keys", 0, "N", "DDPRUND_MAX_JOB_KEYS", "a fair share", LIMITS,
     "keys of one job. By default a job may use half of what the other jobs leave free. All keys "
     "outside jobs count as one job",
     parse_count, FIELD(server.max_job_keys), 1, INT64_C(1000000000)},
    {"max-job-bytes", 0, "SIZE", "DDPRUND_MAX_JOB_BYTES", "a fair share", LIMITS,
     "memory of one job, out of --max-bytes", parse_size, FIELD(server.max_job_bytes), 4 * KIB,
     16 * TIB},
    {"max-job-sessions", 0, "N", "DDPRUND_MAX_JOB_SESSIONS", "a fair share", LIMITS,
     "sessions of one job, out of --max-sessions", parse_count, FIELD(server.max_job_sessions), 1,
     10000000},
    {"reserve", 0, "SIZE", "DDPRUND_RESERVE", "64M", LIMITS,
     "memory in addition to --max-bytes for the rendezvous of nodes, 1K for each if there are more "
     "than 65536; clients cannot use it, and --max-keys, --max-sessions and --max-value do not "
     "apply to it",
     parse_size, FIELD(server.reserve), 4 * KIB, 16 * TIB},
    {"history", 0, "N", "DDPRUND_HISTORY", "65536", LIMITS,
     "changes to remember, so that an interrupted watch can resume", parse_count,
     FIELD(server.history_changes), 1, INT64_C(1000000000)},
    {"history-bytes", 0, "SIZE", "DDPRUND_HISTORY_BYTES", "32M", LIMITS,
     "memory for the keys and values of these changes", parse_size, FIELD(server.history_bytes), 1,
     16 * TIB},
    {"output-limit", 0, "SIZE", "DDPRUND_OUTPUT_LIMIT", "32M", LIMITS,
     "replies that one client has not read; when there are more, it is disconnected", parse_size,
     FIELD(server.output_hard), 64 * KIB, 16 * KIB *MIB},
    {"output-soft-limit", 0, "SIZE", "DDPRUND_OUTPUT_SOFT_LIMIT", "a quarter of --output-limit",
     LIMITS, "stop reading requests of a client that has more unread replies than this", parse_size,
     FIELD(server.output_soft), 4 * KIB, 16 * KIB *MIB},
    {"max-output-total", 0, "SIZE", "DDPRUND_MAX_OUTPUT_TOTAL", "1G", LIMITS,
     "unread replies of all clients together, beyond the first 16K of each; a client that needs "
     "more is disconnected",
     parse_size, FIELD(server.output_total), 64 * KIB, 16 * TIB},
    {"max-input-total", 0, "SIZE", "DDPRUND_MAX_INPUT_TOTAL", "512M", LIMITS,
     "incomplete requests of all clients together, beyond the first 16K of each; a client that "
     "sends more is disconnected",
     parse_size, FIELD(server.input_total), 64 * KIB, 16 * TIB},
    {"output-timeout", 0, "DURATION", "DDPRUND_OUTPUT_TIMEOUT", "60s", LIMITS,
     "disconnect a client that stays above the soft limit for this long", parse_ms,
     FIELD(server.output_ms), 1, 24 * HOURS},
    {"greeting-timeout", 0, "DURATION", "DDPRUND_GREETING_TIMEOUT", "5s", LIMITS,
     "close a connection that has not sent its greeting after this long", parse_ms,
     FIELD(server.handshake_ms), 1, 24 * HOURS},
    {"request-timeout", 0, "DURATION", "DDPRUND_REQUEST_TIMEOUT", "60s", LIMITS,
     "close a connection whose request is still incomplete after this long", parse_ms,
     FIELD(server.frame_ms), 1, 24 * HOURS},

    {"tcpstore-prefix", 0, "TEXT", "DDPRUND_TCPSTORE_PREFIX", "tcp/", TCPSTORE,
     "put TEXT in front of their keys in this store; they do not see it", option_text,
     FIELD(server.tcpstore_prefix), 0, 0},
    {"tcpstore-max-key", 0, "SIZE", "DDPRUND_TCPSTORE_MAX_KEY", "8K", TCPSTORE,
     "length of a key; at most 1M", parse_length, FIELD(server.tcpstore_max_key_len), 1, MIB},
    {"tcpstore-max-value", 0, "SIZE", "DDPRUND_TCPSTORE_MAX_VALUE", "8M", TCPSTORE,
     "length of a value; at most 16M", parse_length, FIELD(server.tcpstore_max_value_len), 1,
     16 * MIB},
    {"tcpstore-max-keys", 0, "N", "DDPRUND_TCPSTORE_MAX_KEYS", "131072", TCPSTORE,
     "keys in one request; at most 131072", option_u32, FIELD(server.tcpstore_max_keys), 1,
     128 * KIB},

    {"state", 0, "FILE|etcd://HOST:PORT,.../PREFIX", "DDPRUND_STATE", "in memory only", STATE,
     "keep keys, queues and sessions in FILE (SQLite), or below PREFIX in etcd (etcds:// for TLS): "
     "changes are acknowledged once they are durable, and a restarted server continues with all of "
     "them. Of several servers with one PREFIX in etcd one serves; the others refuse clients with "
     "its address, and one of them takes over when it dies",
     parse_state, FIELD(state), 0, 0},
    {"advertise", 0, "HOST:PORT", "DDPRUND_ADVERTISE", "the first address of --listen", STATE,
     "with etcd: where clients and the other servers reach this one", parse_advertise,
     FIELD(advertise), 0, 0},
    {"state-lease", 0, "DURATION", "DDPRUND_STATE_LEASE", "5s", STATE,
     "with etcd: a server whose machine is silent for this long is replaced", option_duration,
     FIELD(state_lease_ms), 2000, HOURS},
    {"state-user", 0, "NAME", "DDPRUND_STATE_USER", "none", STATE, "with etcd: its user",
     option_text, FIELD(state_user), 0, 0},
    {"state-password-file", 0, "FILE", "DDPRUND_STATE_PASSWORD_FILE", "none", STATE,
     "with etcd: read the user's password from FILE, which no other user may be able to read",
     option_text, FIELD(state_password_file), 0, 0},
    {"state-ca-file", 0, "FILE", "DDPRUND_STATE_CA_FILE", "the system's", STATE,
     "with etcds://: certificates (PEM) of the authorities to trust", option_text,
     FIELD(state_ca_file), 0, 0},
    {"state-cert-file", 0, "FILE", "DDPRUND_STATE_CERT_FILE", "none", STATE,
     "with etcds://: a certificate (PEM) that etcd wants to see", option_text,
     FIELD(state_cert_file), 0, 0},
    {"state-key-file", 0, "FILE", "DDPRUND_STATE_KEY_FILE", "none", STATE,
     "with etcds://: its key (PEM)", option_text, FIELD(state_key_file), 0, 0},

    {"cluster", 0, "HOST[:PORT],HOST[:PORT],HOST[:PORT]", "DDPRUND_CLUSTER", NULL, CLUSTER,
     "keep the store together with the other two of these machines, each of which runs the same: "
     "any one of them may die, and no acknowledged change is lost. It starts an etcd (3.4 or 3.5; "
     "Debian: etcd-server) and a ddprund with its state there, starts either of them again when it "
     "ends, and ends both when it ends. The token is the same on all three",
     option_text, FIELD(cluster), 0, 0},
    {"cluster-job", 0, "JOB", "DDPRUND_CLUSTER_JOB", NULL, CLUSTER,
     "this store is for JOB, and ends with it. On a machine that is not listed it ends at once, "
     "with exit code 0. Given by ddprun",
     parse_job, FIELD(cluster_job), 0, 0},
    {"cluster-dir", 0, "FOLDER", "DDPRUND_CLUSTER_DIR", "TMPDIR, or /var/tmp", CLUSTER,
     "put etcd's data, some 130 MB, into a new folder in FOLDER, on a local disk. It is removed at "
     "the end, or when the next one starts",
     option_text, FIELD(cluster_dir), 0, 0},
    {"peer-port", 0, "PORT", "DDPRUND_PEER_PORT", "the store's + 1000", CLUSTER,
     "port at which the etcds of the three machines reach each other, the same on all", option_u32,
     FIELD(peer_port), 1, UINT16_MAX},
    {"keeper-fd", 0, "N", NULL, NULL, CLUSTER,
     "the socket of the --cluster that starts this ddprund; given by no one else", option_u32,
     FIELD(keeper_fd), 3, INT32_MAX},

    {"busy-poll", 0, "USEC", "DDPRUND_BUSY_POLL", "100", RUNNING,
     "poll this long for the next request before sleeping, if the last two were this close "
     "together; 0: never",
     parse_busy_poll, FIELD(server.busy_poll_us), 0, 1000000},
    {"log-file", 0, "FILE", "DDPRUND_LOG_FILE", "standard error", RUNNING,
     "append the log to FILE; SIGHUP reopens it. Lines for a FIFO without a reader are dropped and "
     "counted",
     option_text, FIELD(log_file), 0, 0},
    {"log-level", 0, "error|warning|info|debug", "DDPRUND_LOG_LEVEL", "info", RUNNING,
     "log messages of this level and above", option_choice, FIELD(log_level), 0, 0},
    {"drain-timeout", 0, "DURATION", "DDPRUND_DRAIN_TIMEOUT", "5s", RUNNING,
     "after SIGTERM or SIGINT, keep answering waiting requests for this long", option_duration,
     FIELD(drain_timeout_ms), 0, 24 * HOURS},

    {"help", 0, NULL, NULL, NULL, OTHER, "print this list and exit", option_show, FIELD(help), 0,
     0},
    {"usage", 'h', NULL, NULL, NULL, OTHER, "print a summary with examples and exit", option_show,
     FIELD(usage), 0, 0},
    {"version", 0, NULL, NULL, NULL, OTHER, "print the version and exit", option_show,
     FIELD(version), 0, 0},
};

const struct option_table ddprund_option_table = {
    .program = "ddprund",
    .options = table,
    .count = sizeof table / sizeof *table,
};

/* A soft limit above the hard one would have no effect. */
static void derive_limits(struct ddpi_server_options *server)
{
    if (server->output_hard != 0 && server->output_soft == 0)
        server->output_soft = server->output_hard / 4;
}

enum { CLUSTER_LEASE_MAX_MS = 200 * 1000 };

/* What a keeper decides itself, or cannot do without. */
static ddp_status check_cluster(const struct ddprund_options *options, struct ddp_error *err)
{
    if (options->cluster == NULL && options->cluster_job != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--cluster-job needs --cluster, the machines that keep its store");
    if (options->cluster == NULL)
        return DDP_OK;
    if (options->state != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--cluster keeps the state itself, so leave --state out");
    if (options->server.auth == DDPI_SERVER_AUTH_NEVER)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--cluster needs the token, by which its machines know each other, "
                              "and --no-auth disables it; leave one out");
    if (options->state_lease_ms > CLUSTER_LEASE_MAX_MS)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "--state-lease is at most %d s with --cluster, since an etcd waits at "
            "most 50 s for its leader",
            CLUSTER_LEASE_MAX_MS / 1000);
    return DDP_OK;
}

ddp_status ddprund_options_parse(int argc, char **argv, char *const *envp,
                                 struct ddprund_options *ret_options, struct ddp_error *err)
{
    char *const no_envp[] = {NULL};
    struct ddprund_options options = {.server = {.fair_shares = true, .named_jobs_only = true},
                                      .log_level = DDPI_LOG_INFO,
                                      .drain_timeout_ms = 5000,
                                      .state_lease_ms = 5000};
    struct ddprund_options shown = options; /* --help works whatever the environment holds */
    int operand = argc;
    if (options_parse(&ddprund_option_table, argc, argv, no_envp, &shown, &operand, NULL) ==
            DDP_OK &&
        (shown.help || shown.version || shown.usage)) {
        *ret_options = shown;
        return DDP_OK;
    }
    ddp_status status =
        options_parse(&ddprund_option_table, 1, argv, envp, &options, &operand, err);
    options.listen.is_default = options.data_ports.is_default = true;
    if (status == DDP_OK)
        status = options_parse(&ddprund_option_table, argc, argv, no_envp, &options, &operand, err);
    if (status != DDP_OK)
        return status;
    if (operand < argc)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not an option, and ddprund takes nothing else; 'ddprund "
                              "--help' lists the options",
                              argv[operand]);
    if (options.keeper_fd == 0)
        status = check_cluster(&options, err);
    if (status != DDP_OK)
        return status;
    derive_limits(&options.server);
    *ret_options = options;
    return DDP_OK;
}
