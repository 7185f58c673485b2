/*
 * ddprun/store_server.h - the server of the ddprun store inside your program, on your libuv loop.
 * It serves native clients (ddprun/store.h, ddprun/store_uv.h) and PyTorch's TCPStore clients on
 * the same ports.
 *
 * Threads: call a server only from the thread that runs its loop. Do not block that thread in a
 * client of the same server: use the asynchronous client, or another thread.
 * Blocking: only resolving the name of a host to listen on can block.
 * Signals: ignore SIGPIPE, as with all libuv streams; otherwise a client that disconnects at the
 * wrong moment ends your program.
 * Errors: each call returns a ddp_status, and writes a sentence to @err unless that is NULL; output
 * parameters are written on DDP_OK only.
 * Memory: the contents of the store, at most max_bytes, and the buffers of its connections (see the
 * options of ddprund(8), which have the same defaults).
 */
#ifndef DDPRUN_STORE_SERVER_H
#define DDPRUN_STORE_SERVER_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct uv_loop_s;
typedef struct ddp_store_server ddp_store_server;

/* Which clients must authenticate, by proving that they have the token. PyTorch's TCPStore clients
 * cannot do that; a client that would have to is admitted if an authenticated agent is connected
 * from the same host. */
enum ddp_store_server_auth {
    DDP_STORE_SERVER_AUTH_DEFAULT = 0, /* from other machines, and of other users of this one */
    DDP_STORE_SERVER_AUTH_ALWAYS = 1,  /* all */
    DDP_STORE_SERVER_AUTH_NEVER =
        2 /* none: anyone who can reach the store can read and change it */
};

enum ddp_store_server_log_level {
    DDP_STORE_SERVER_LOG_ERROR = 0,
    DDP_STORE_SERVER_LOG_WARNING = 1,
    DDP_STORE_SERVER_LOG_INFO = 2,
    DDP_STORE_SERVER_LOG_DEBUG = 3
};

/*
 * Set @size to sizeof(struct ddp_store_server_options) and set the fields that you do not use
 * to zero, which selects the default. Later versions append fields. The server keeps only @log and
 * @log_data.
 */
struct ddp_store_server_options {
    size_t size;
    enum ddp_store_server_auth auth;
    const char *token_file;      /* made by 'ddpctl token make'; NULL: no token, and then only NEVER
                                    allows addresses that other machines can reach */
    const char *tcpstore_prefix; /* TCPStore clients see the keys with this prefix: "tcp/" */
    uint32_t max_connections;    /* 65,536, and never more than the limit on open files allows */
    uint32_t max_waits;          /* of one connection: 1,024 */
    size_t max_keys;             /* 1,000,000 */
    size_t max_bytes;            /* keys, values and their overhead: 1 GiB */
    uint32_t max_value_len;      /* 16 MiB, which is also the most */
    size_t max_output;           /* unread replies of a connection; more close it: 32 MiB */
    /* Called for each log line, which has no newline; NULL: no log. */
    void (*log)(void *data, enum ddp_store_server_log_level level, const char *line);
    void *log_data;
    /* Not 0: no user of this machine has to authenticate on loopback; 0: only the user of this
     * process and root do not have to. */
    int trust_local_users;
    uint32_t flags; /* DDP_STORE_SERVER_TLS, DDP_STORE_SERVER_TCPSTORE_IN_CLEAR */
};

/* Require TLS 1.3, keyed by the token, from clients on other machines. Needs token_file, and
 * OpenSSL 3 (else DDP_E_UNSUPPORTED). TCPStore clients, which cannot speak TLS, are admitted from
 * this machine only, */
#define DDP_STORE_SERVER_TLS 1u
/* ... unless this flag is set: then their traffic is not encrypted. */
#define DDP_STORE_SERVER_TCPSTORE_IN_CLEAR 2u

/**
 * Create a server on @loop that does not listen yet. @options may be NULL.
 *
 * Close it with ddp_store_server_close(); it keeps the loop alive until then. A failed call leaves
 * no handle on the loop.
 * DDP_E_INVALID: an option is invalid. DDP_E_NOT_FOUND, DDP_E_DENIED: the token file does not
 * exist, or cannot be trusted. DDP_E_NOMEM, DDP_E_SYSTEM.
 */
DDP_API DDP_MUST_CHECK ddp_status
ddp_store_server_open(struct uv_loop_s *loop, const struct ddp_store_server_options *options,
                      ddp_store_server **ret_server, struct ddp_error *err);

/**
 * Listen on one more address. @host is an address, or a name of which the first address is used; an
 * IPv6 address accepts IPv6 only. @port 0 selects a free port. TCPStore clients on this address
 * belong to @job (NULL: to no job).
 *
 * A failed call changes nothing. DDP_E_DENIED: other machines could connect, and the server has no
 * token. DDP_E_UNREACHABLE: the host does not exist. DDP_E_INVALID: @job is not a valid name.
 * DDP_E_SYSTEM: the address is in use or is not an address of this machine; see @err->sys_errno.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_server_listen(ddp_store_server *server,
                                                          const char *host, uint16_t port,
                                                          const char *job, struct ddp_error *err);

/**
 * An address that the server listens on, such as "127.0.0.1:29400" or "[::1]:29400", in the order
 * of the calls; NULL beyond the last. Valid until the server is drained or closed.
 */
DDP_API const char *ddp_store_server_endpoint(const ddp_store_server *server, size_t index);

/**
 * Delete all keys that begin with @prefix, such as those of a job that has ended. Returns their
 * number.
 */
DDP_API size_t ddp_store_server_delete(ddp_store_server *server, const char *prefix);

/**
 * Stop accepting connections; existing connections are served as before. @done is called from the
 * loop, once, when no request is waiting and all replies have been sent. A client can delay that
 * forever: close the server, from @done or earlier.
 */
DDP_API void ddp_store_server_drain(ddp_store_server *server, void (*done)(void *data), void *data);

/**
 * Stop listening, notify the clients, and free the server. @done (may be NULL) is called from the
 * loop when all handles are closed.
 */
DDP_API void ddp_store_server_close(ddp_store_server *server, void (*done)(void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
