/*
 * ddprund_options.h - what can be said on ddprund's command line, and how it is understood.
 */
#ifndef CMD_DDPRUND_OPTIONS_H
#define CMD_DDPRUND_OPTIONS_H

#include "log.h"
#include "options.h"
#include "parse.h"
#include "server.h"

enum { DDPRUND_LISTEN_MAX = 16, DDPRUND_PORT = 29400 };

/* Where to listen: of --listen, or of --data-port, all that are given. */
struct ddprund_listen {
    struct ddprund_address {
        char job[DDPI_JOB_MAX + 1]; /* of a data port; else "" */
        struct ddpi_endpoint endpoint;
    } at[DDPRUND_LISTEN_MAX];
    uint32_t count;
    bool is_default; /* from the environment: the command line replaces it */
};

struct ddprund_options {
    struct ddprund_listen listen;
    struct ddprund_listen data_ports;
    struct ddpi_server_options server; /* zero: not given */
    const char *token_file;            /* NULL: where the user's is, if one is needed */
    uint32_t token_fd;                 /* 0: not given */
    const char *state;                 /* a file, or an etcd://...; NULL: in memory */
    uint64_t state_lease_ms;           /* these are for etcd; texts are NULL if not given */
    const char *state_user;
    const char *state_password_file;
    const char *state_ca_file;
    const char *state_cert_file;
    const char *state_key_file;
    const char *advertise;
    const char *cluster;     /* three machines; NULL: not given */
    const char *cluster_job; /* NULL: not given */
    const char *cluster_dir; /* NULL: TMPDIR, or /var/tmp */
    uint32_t peer_port;      /* 0: not given */
    uint32_t keeper_fd;      /* 0: not given */
    const char *log_file;    /* NULL: stderr */
    enum ddpi_log_level log_level;
    uint64_t drain_timeout_ms;
    bool help;
    bool usage;
    bool version;
};

extern const struct option_table ddprund_option_table;

/* Defaults, environment and command line, which must not have operands. */
DDP_MUST_CHECK ddp_status ddprund_options_parse(int argc, char **argv, char *const *envp,
                                                struct ddprund_options *ret_options,
                                                struct ddp_error *err);

#endif
