/*
 * ddprun/store_server.h - the server of the ddprun store inside your program, on its own libuv
 * loop: for native clients (ddprun/store.h, ddprun/store_uv.h) and for PyTorch's TCPStore clients,
 * on the same ports.
 *
 * Threads: a server belongs to the thread that runs its loop; all calls come from there. Clients of
 * this very server must not block that thread: use the asynchronous client, or another thread.
 * Blocking: no call blocks, but for resolving a name to listen on.
 * Signals: like every user of libuv's streams, ignore SIGPIPE, or a client that goes at the wrong
 * moment ends your program.
 * Errors: a ddp_status, and a sentence in @err if it is not NULL; output parameters are written on
 * DDP_OK only.
 * Memory: what clients store, at most max_bytes, and what it takes to talk to them (see the options
 * of ddprund(8), whose defaults are the same).
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

/* Who has to prove, by the token, who he is. PyTorch's TCPStore clients cannot: where it would be
 * asked of them, they are admitted from hosts from which an agent that has the token is connected.
 */
enum ddp_store_server_auth {
    DDP_STORE_SERVER_AUTH_DEFAULT = 0, /* who comes from another machine, or is another user here */
    DDP_STORE_SERVER_AUTH_ALWAYS = 1,  /* everybody */
    DDP_STORE_SERVER_AUTH_NEVER = 2    /* nobody: who reaches the address can change all keys */
};

enum ddp_store_server_log_level {
    DDP_STORE_SERVER_LOG_ERROR = 0,
    DDP_STORE_SERVER_LOG_WARNING = 1,
    DDP_STORE_SERVER_LOG_INFO = 2,
    DDP_STORE_SERVER_LOG_DEBUG = 3
};

/*
 * Set @size to sizeof(struct ddp_store_server_options) and leave what you do not use zero, which
 * means the default; later versions append fields. Nothing of it is kept but @log and @log_data.
 */
struct ddp_store_server_options {
    size_t size;
    enum ddp_store_server_auth auth;
    const char *token_file;      /* a file as ddpctl token makes it; NULL: no token, and then only
                                    NEVER allows addresses that other machines can reach */
    const char *tcpstore_prefix; /* of the keys that TCPStore clients see, without it: "tcp/" */
    uint32_t max_connections;    /* 65,536, and never more than the limit on open files allows */
    uint32_t max_waits;          /* of one connection: 1,024 */
    size_t max_keys;             /* 1,000,000 */
    size_t max_bytes;            /* keys, values, and what it takes to hold them: 1 GiB */
    uint32_t max_value_len;      /* 16 MiB, which is also the most */
    size_t max_output;           /* of one connection, unread; beyond, it is closed: 32 MiB */
    /* What happens, a line at a time without its newline; NULL: nobody wants to know. */
    void (*log)(void *data, enum ddp_store_server_log_level level, const char *line);
    void *log_data;
    /* Not 0: other users of this machine count as the one whose process this is, who need not prove
     * anything on loopback, nor does root. */
    int trust_local_users;
    uint32_t flags; /* DDP_STORE_SERVER_TLS, DDP_STORE_SERVER_TCPSTORE_IN_CLEAR */
};

/* Whoever comes from another machine speaks TLS 1.3 by the token, or is not let in: that takes
 * token_file, and OpenSSL 3 (else DDP_E_UNSUPPORTED). TCPStore clients cannot ... */
#define DDP_STORE_SERVER_TLS 1u
/* ... and are let in from this machine only, but for this; what they say is no secret then. */
#define DDP_STORE_SERVER_TCPSTORE_IN_CLEAR 2u

/**
 * A server on @loop that listens nowhere yet. @options may be NULL.
 *
 * On DDP_OK *@ret_server is a server that the caller gives back with ddp_store_server_close(), and
 * which keeps the loop alive until then. On failure nothing is left on the loop.
 * DDP_E_INVALID: an option breaks a rule. DDP_E_NOT_FOUND, DDP_E_DENIED: the token file is not
 * there, or not to be trusted. DDP_E_NOMEM, DDP_E_SYSTEM.
 */
DDP_API DDP_MUST_CHECK ddp_status
ddp_store_server_open(struct uv_loop_s *loop, const struct ddp_store_server_options *options,
                      ddp_store_server **ret_server, struct ddp_error *err);

/**
 * Listen on one more address: @host is an address or a name, of which the first address counts
 * (IPv6 takes IPv6 only); @port 0 takes a free one. With @job, TCPStore clients on this address are
 * that job's (NULL: none's in particular).
 *
 * Fails with nothing changed. DDP_E_DENIED: other machines could connect, and there is no token.
 * DDP_E_UNREACHABLE: there is no such host. DDP_E_INVALID: no job can have this name. DDP_E_SYSTEM:
 * the address is in use, or not this machine's; @err->sys_errno says which.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_server_listen(ddp_store_server *server,
                                                          const char *host, uint16_t port,
                                                          const char *job, struct ddp_error *err);

/**
 * Where it listens: "127.0.0.1:29400", "[::1]:29400", in the order of the calls; NULL beyond the
 * last. Valid until the server is drained or closed.
 */
DDP_API const char *ddp_store_server_endpoint(const ddp_store_server *server, size_t index);

/**
 * Remove all keys that begin with @prefix, such as those of a job that is over; how many.
 */
DDP_API size_t ddp_store_server_delete(ddp_store_server *server, const char *prefix);

/**
 * Accept no more connections; those that are there are served as before. @done is called from the
 * loop, once, when no request waits and all replies have left, which a client can put off for
 * ever: to end it, close the server, from @done or without waiting for it.
 */
DDP_API void ddp_store_server_drain(ddp_store_server *server, void (*done)(void *data), void *data);

/**
 * Stop listening, tell the clients, free the server. @done (may be NULL) is called from the loop
 * when nothing of it is left there.
 */
DDP_API void ddp_store_server_close(ddp_store_server *server, void (*done)(void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
