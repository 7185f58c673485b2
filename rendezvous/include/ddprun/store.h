/*
 * ddprun/store.h - blocking client of the ddprun store, a small key-value service through which the
 * processes of a job find each other.
 *
 * Keys and values are byte strings. Every value has a version: the server has one counter, which it
 * increments with each change of any key, and with each session. Compare-and-swap compares
 * versions.
 *
 * Threads: any number of threads may use one handle at the same time, and they do not delay each
 * other: a get that waits for an hour does not hold up a set. The library starts no threads. Only
 * ddp_store_close() needs the handle for itself: no other thread may be in a call then. Use
 * ddp_store_cancel() to end the calls of other threads. Different handles are independent. After
 * fork() the child must not use or close the handles of its parent.
 *
 * Blocking: a call returns within its @timeout_ms (milliseconds), plus at most one second if the
 * server or the network is slow. 0 means: look once, do not wait. DDP_STORE_FOREVER is 2^32-1 ms
 * (49 days). There is one exception, the lookup of a host name by DNS; see ddp_store_connect().
 *
 * Lost connections: the handle reconnects by itself while it is used, after 10 ms at first, then
 * less often, at least every two seconds. A connection is also lost when the server's machine has
 * been silent for 10 seconds, as one without power is.
 *   - Sessions do not depend on a connection and continue.
 *   - Watches resume after the last event they reported, before any other request is sent: no event
 *     is missed, repeated or out of order, and watches keep their numbers. If the server no longer
 *     has the changes, if they fill more than half of what a client may leave unread, or if it is
 *     another server, the watch reports one DDP_STORE_EVENT_LOST and goes on. If the server refuses
 *     to resume the watch (too many watches, say), that event says why, and the watch has ended.
 *   - Requests that were not sent yet are sent within their timeout. So are, again, those that only
 *     read, wait, watch or keep a session.
 *   - Other requests that the server may have executed return DDP_E_CLOSED: only the caller knows
 *     whether to repeat them.
 *   - Without a connection, a call waits for one until its deadline, then returns
 *     DDP_E_UNREACHABLE; or DDP_E_CLOSED if it fences or keeps a session, and was sent before the
 *     connection was lost.
 *   - If the server refuses the handle (because its epoch is over, say), all calls return
 *     DDP_E_DENIED or DDP_E_PROTOCOL at once, with the server's reason. Of several servers one that
 *     refuses is enough, but the others are tried first. New calls and existing watches make the
 *     handle try again, at most every two seconds. A handle that was accepted once, and has a token
 *     or keeps sessions, ignores a refusal by a server that does not prove that it has the token,
 *     and treats it as a lost connection.
 *   - With DDP_STORE_NO_RECONNECT the handle ends with its first connection.
 *
 * Errors: a call that fails returns a ddp_status (see ddprun/status.h) and fills @err, if it is not
 * NULL. The handle stays usable, also after a negative status. Besides what its comment lists, a
 * call may return:
 *   DDP_E_TIMEOUT      the deadline passed;
 *   DDP_E_CLOSED       the connection was lost, or the server did not answer within a second after
 *                      the deadline. The server may have executed the request. A handle with
 *                      DDP_STORE_NO_RECONNECT has ended;
 *   DDP_E_UNREACHABLE  there was no connection before the deadline; nothing was executed;
 *   DDP_E_CANCELED     ddp_store_cancel() was called; the server may have executed the request;
 *   DDP_E_LIMIT        a key, a value or a list is larger than the server allows;
 *   DDP_E_DENIED       the client's role does not allow this, or the server refuses the client;
 *   DDP_E_PROTOCOL     the program at that address is not a ddprun store, or its versions of the
 *                      protocol and ours do not overlap;
 *   DDP_E_INVALID      an argument breaks a rule in its comment; nothing was sent;
 *   DDP_E_NOMEM        out of memory; the server may have executed the request;
 *   DDP_E_SYSTEM       the operating system refused a call, e.g. for lack of file descriptors.
 * Output parameters are set on DDP_OK only, unless a comment says otherwise. They must not be NULL,
 * unless a comment says that they may be.
 */
#ifndef DDPRUN_STORE_H
#define DDPRUN_STORE_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_STORE_FOREVER   UINT32_MAX
#define DDP_STORE_KEY_MAX   4096               /* bytes, prefix included */
#define DDP_STORE_VALUE_MAX (16 * 1024 * 1024) /* bytes */
#define DDP_STORE_MANY_MAX  4096               /* keys in one call */

#define DDP_STORE_CLAUSES_MAX 64 /* in one ddp_store_transact() */

typedef struct ddp_store ddp_store;

/* Whether client and server prove to each other that they have the same token. If they do, an
 * attacker on the network cannot change, repeat or drop messages unnoticed, but can read them;
 * DDP_STORE_TLS prevents that too. */
enum ddp_store_auth {
    DDP_STORE_AUTH_DEFAULT = 0, /* prove it if token_file or token_fd is given */
    DDP_STORE_AUTH_NONE = 1,    /* never */
    DDP_STORE_AUTH_TOKEN = 2,   /* always, with token_file or token_fd */
    /* The same, but if token_file does not exist, use a server on a loopback address without it.
     * token_file is read once there is a connection. */
    DDP_STORE_AUTH_BEYOND_LOOPBACK = 3
};

/* What a client may do; anything else is DDP_E_DENIED, and the handle stays usable. A client with a
 * job sees the keys of that job only, and without the "job/NAME/" with which clients without a job
 * see them. */
enum ddp_store_role {
    DDP_STORE_AGENT = 0,   /* everything */
    DDP_STORE_WORKER = 1,  /* read; change keys, with an epoch N other than 0 only "gN/..." */
    DDP_STORE_OBSERVER = 2 /* read */
};

/*
 * How to connect. Set @size to sizeof(struct ddp_store_options), and fields that you do not use to
 * zero. Later versions append fields; @size tells the library which of them the program knows.
 */
struct ddp_store_options {
    size_t size;
    /* "host:port" or "[v6]:port"; required. Up to 8 with commas between them: servers that take
     * each other's place, as several ddprund with one etcd do. The client follows the one that
     * serves. */
    const char *endpoint;
    const char *prefix;          /* put in front of every key of this handle; NULL = "" */
    uint32_t connect_timeout_ms; /* for name lookup, attempts to connect, handshake; 0 = 10,000 */

    /* The client's identity and its proof. The library does not read the environment: a program
     * that supports DDPRUN_TOKEN_FILE or DDPRUN_TOKEN_FD passes their values here. */
    enum ddp_store_auth auth;
    const char *token_file;   /* a token, or the key of a role (ddpctl token); NULL = none */
    int token_fd;             /* the same, from an open descriptor; preferred; 0 = none */
    enum ddp_store_role role; /* role, job and epoch all zero: an agent, or the key's own role */
    const char *job; /* 1 to 64 of [A-Za-z0-9._-], the first not '.', not "-"; NULL, "" = none */
    uint64_t epoch;

    uint32_t flags; /* DDP_STORE_NO_RECONNECT, DDP_STORE_TLS */
};

#define DDP_STORE_NO_RECONNECT 1u /* the handle ends with its first connection */
/* Encrypt the connection: TLS 1.3 with a key made from the token, which is required. (A connection
 * to a loopback address is not encrypted without a token, or with DDP_STORE_AUTH_BEYOND_LOOPBACK.)
 * Loads OpenSSL 3; DDP_E_UNSUPPORTED if it is not installed, or this library was built without
 * it. */
#define DDP_STORE_TLS 2u

/**
 * The version of the library that the program runs with, such as "0.2.0". Does not block; any
 * thread may call it. The text is constant.
 */
DDP_API const char *ddp_store_version(void);

/**
 * Connect to the store at @options->endpoint.
 *
 * Blocks for at most connect_timeout_ms. While no server listens it tries again, so that client and
 * server may start in any order; and so it does while the server has no room. (A lookup of a host
 * name by DNS may block longer: the system's resolver has its own timeout and cannot be
 * interrupted.) @options is not kept.
 *
 * On DDP_OK *@ret_store is a handle; close it with ddp_store_close().
 * DDP_E_UNREACHABLE: no server answered before the deadline; @err names each address and its error.
 * DDP_E_DENIED: the server refuses this client, or could not prove that it has the token; or the
 * token file does not exist, or other users can read or change it. @err says what to do.
 * DDP_E_LIMIT: the server had no room before the deadline; @err says which limit is reached.
 * DDP_E_SYSTEM: this process has too many open files; @err names the limit.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_connect(const struct ddp_store_options *options,
                                                    ddp_store **ret_store, struct ddp_error *err);

/**
 * End all calls in progress on this handle with DDP_E_CANCELED. Does not block; may be called from
 * any thread. Later calls are not affected.
 */
DDP_API void ddp_store_cancel(ddp_store *store);

/**
 * Close the connection and free the handle. NULL is allowed. Does not block.
 *
 * No other thread may be in a call on this handle.
 */
DDP_API void ddp_store_close(ddp_store *store);

/**
 * Set @key to the @value_len bytes at @value, which may be NULL if @value_len is 0.
 *
 * On DDP_OK *@ret_version (may be NULL) is the version of the new value.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_set(ddp_store *store, const char *key,
                                                const void *value, size_t value_len,
                                                uint32_t timeout_ms, uint64_t *ret_version,
                                                struct ddp_error *err);

/**
 * Wait until @key exists, and copy its value.
 *
 * On DDP_OK *@ret_value is a buffer of *@ret_len bytes, followed by a NUL that is not counted; free
 * it with ddp_store_free(). *@ret_version (may be NULL) is the value's version.
 * DDP_E_TIMEOUT: the key did not exist before the deadline.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_get(ddp_store *store, const char *key,
                                                uint32_t timeout_ms, void **ret_value,
                                                size_t *ret_len, uint64_t *ret_version,
                                                struct ddp_error *err);

/**
 * Copy the value of @key if it exists. Results are those of ddp_store_get().
 *
 * DDP_E_NOT_FOUND: there is no such key.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_try_get(ddp_store *store, const char *key,
                                                    uint32_t timeout_ms, void **ret_value,
                                                    size_t *ret_len, uint64_t *ret_version,
                                                    struct ddp_error *err);

/* The value of one key, from ddp_store_try_get_many(). */
struct ddp_store_value {
    uint64_t version;  /* 0: there is no such key */
    const void *value; /* followed by a NUL that is not counted */
    size_t value_len;
};

/**
 * Copy the values of those of the @count keys that exist, in one round trip.
 * 1 <= @count <= DDP_STORE_MANY_MAX.
 *
 * The values are not a snapshot: each was current at some moment during the call. The server sends
 * all replies at once and disconnects a client that leaves too much unread, so ask for fewer keys
 * at a time if values are large.
 *
 * On DDP_OK *@ret_values is an array of @count values in the order of @keys; free it, as one block,
 * with ddp_store_free(). A key that does not exist is not an error.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_try_get_many(ddp_store *store, const char *const *keys,
                                                         size_t count, uint32_t timeout_ms,
                                                         struct ddp_store_value **ret_values,
                                                         struct ddp_error *err);

/**
 * Add @delta to the decimal integer stored at @key; a key that does not exist counts as 0.
 *
 * On DDP_OK *@ret_sum (may be NULL) is the sum; the new value is the sum as decimal text.
 * DDP_E_TYPE: the value is not a decimal 64-bit integer, or the sum would overflow one; the value
 * is unchanged.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta,
                                                uint32_t timeout_ms, int64_t *ret_sum,
                                                struct ddp_error *err);

/**
 * Set @key to @value if its version is @expected_version; 0 means: if @key does not exist.
 *
 * On DDP_OK *@ret_version (may be NULL) is the version of the new value.
 * DDP_E_CONFLICT: the key has another version, which is set in *@ret_version (0: no such key).
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_compare_and_swap(
    ddp_store *store, const char *key, uint64_t expected_version, const void *value,
    size_t value_len, uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err);

/**
 * Set @key to @value if its value is the @expected_len bytes at @expected.
 *
 * Both values together may have at most DDP_STORE_VALUE_MAX bytes.
 * On DDP_OK *@ret_version (may be NULL) is the version of the new value.
 * DDP_E_CONFLICT: the key has another value, whose version is set in *@ret_version (0: no such key;
 * a missing key differs from an empty value).
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_compare_and_swap_value(
    ddp_store *store, const char *key, const void *expected, size_t expected_len, const void *value,
    size_t value_len, uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err);

/* The kinds of clauses of a transaction. */
enum ddp_store_clause_kind {
    DDP_STORE_IF_VERSION = 1, /* a condition: @key has the version @version; 0: it does not exist */
    DDP_STORE_IF_VALUE = 2,   /* a condition: @key exists, and its value is @value */
    DDP_STORE_THEN_SET = 3,   /* a change: set @key to @value */
    DDP_STORE_THEN_DELETE = 4 /* a change: remove @key, if it exists */
};

/* One clause of a transaction. Fields that its kind does not use are ignored; set them to zero. */
struct ddp_store_clause {
    enum ddp_store_clause_kind kind;
    const char *key;
    uint64_t version;
    const void *value; /* may be NULL if @value_len is 0 */
    size_t value_len;
};

/**
 * Make all changes in @clauses, atomically, if all conditions in it hold; else make none.
 *
 * 1 <= @count <= DDP_STORE_CLAUSES_MAX. Conditions come before changes, and no key is changed twice
 * (else DDP_E_INVALID). All values together may have at most DDP_STORE_VALUE_MAX bytes.
 * On DDP_OK *@ret_version (may be NULL) is the version of the last change.
 * DDP_E_CONFLICT: a condition does not hold; @err names its key, whose version is set in
 * *@ret_version (0: no such key).
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_transact(ddp_store *store,
                                                     const struct ddp_store_clause *clauses,
                                                     size_t count, uint32_t timeout_ms,
                                                     uint64_t *ret_version, struct ddp_error *err);

/**
 * Wait until all @count keys exist at the same time. 1 <= @count <= DDP_STORE_MANY_MAX.
 *
 * DDP_E_TIMEOUT: some did not exist before the deadline.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_wait(ddp_store *store, const char *const *keys,
                                                 size_t count, uint32_t timeout_ms,
                                                 struct ddp_error *err);

/**
 * Delete @key. DDP_E_NOT_FOUND: there is no such key.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_delete(ddp_store *store, const char *key,
                                                   uint32_t timeout_ms, struct ddp_error *err);

/**
 * List all keys that begin with @prefix ("" = all keys of this handle), sorted by bytes, without
 * the prefix of the handle.
 *
 * The list is not a snapshot, as the server serves other clients while it gathers a long one: a key
 * that is set or deleted during the call may be in the list or not.
 * On DDP_OK *@ret_keys is an array of *@ret_count strings; free it, as one block, with
 * ddp_store_free(). DDP_E_LIMIT: the list would be longer than DDP_STORE_VALUE_MAX bytes; use a
 * longer prefix.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_list(ddp_store *store, const char *prefix,
                                                 uint32_t timeout_ms, char ***ret_keys,
                                                 size_t *ret_count, struct ddp_error *err);

/**
 * Wait until @count calls (of this or other processes) are in the barrier @name; @count >= 1.
 *
 * All calls return at once, and the name can be used again.
 * DDP_E_TIMEOUT: the deadline passed first, and this call has left the barrier; @err says how many
 * calls were in it. DDP_E_MISMATCH: calls with another @count are in this barrier.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_barrier(ddp_store *store, const char *name,
                                                    uint32_t count, uint32_t timeout_ms,
                                                    struct ddp_error *err);

#define DDP_STORE_WATCH_PREFIX 1u /* a flag of ddp_store_watch() */

enum ddp_store_event_kind {
    DDP_STORE_EVENT_SET = 1,     /* a key was set, for the first time or again */
    DDP_STORE_EVENT_DELETED = 2, /* a key was deleted */
    DDP_STORE_EVENT_LOST = 3     /* changes were missed: list and get the keys again */
};

/* One event. DDP_STORE_EVENT_LOST has an empty key. Its value is empty if the watch goes on, and
 * all later changes are reported; else the watch has ended, and the value is a sentence that says
 * why. Later versions may append fields. */
struct ddp_store_event {
    enum ddp_store_event_kind kind;
    uint64_t watch;   /* from ddp_store_watch() */
    uint64_t version; /* of the change; a deletion has one too */
    const char *key;  /* without the prefix of the handle; followed by a NUL that is not counted */
    size_t key_len;
    const void *value; /* the new value; followed by a NUL that is not counted */
    size_t value_len;
};

/**
 * Watch the key @name, or with DDP_STORE_WATCH_PREFIX in @flags all keys that begin with @name (""
 * = all keys of this handle). Each change becomes an event for ddp_store_next_event(). No event is
 * missed or repeated, and their versions increase.
 *
 * @from_version 0 starts with the next change. To know the present keys and all that happens to
 * them, watch first, then list and get: what you read may be newer than the first events.
 * Any other @from_version starts with the change that has this version. To go on where a closed
 * handle left off, use the version of its last event, plus 1. (A handle that reconnects does that
 * by itself.) The server remembers a limited number of changes, from the first watch of any client
 * on.
 *
 * On DDP_OK *@ret_watch (may be NULL) is the number of the watch, and *@ret_version (may be NULL)
 * is the version of the latest change in the store. The watch ends with ddp_store_unwatch() or with
 * the handle. DDP_E_GONE: the server has forgotten changes since @from_version, or never made them,
 * or they are too many to be sent at once; watch from 0, and list the keys again. DDP_E_LIMIT: this
 * handle has too many watches.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_watch(ddp_store *store, const char *name,
                                                  uint32_t flags, uint64_t from_version,
                                                  uint32_t timeout_ms, uint64_t *ret_watch,
                                                  uint64_t *ret_version, struct ddp_error *err);

/**
 * End @watch. Events that have arrived before are still reported.
 *
 * DDP_E_NOT_FOUND: this handle has no such watch.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_unwatch(ddp_store *store, uint64_t watch,
                                                    uint32_t timeout_ms, struct ddp_error *err);

/**
 * Wait for the next event of any watch of this handle.
 *
 * On DDP_OK *@ret_event is an event; free it, with its key and value, with ddp_store_free().
 * DDP_E_TIMEOUT: no watched key has changed. Several threads may wait; each event goes to one of
 * them.
 *
 * Any call of the handle receives events, which then wait in the handle, and survive a lost
 * connection: at most 64 MiB of them. If there are more, the watch reports one
 * DDP_STORE_EVENT_LOST, and goes on when the program has read that. While no call is in progress
 * nothing is received, and the server disconnects a handle that leaves too much unread; the next
 * call reconnects.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_next_event(ddp_store *store, uint32_t timeout_ms,
                                                       struct ddp_store_event **ret_event,
                                                       struct ddp_error *err);

#define DDP_STORE_LEASE_MAX_MS (24 * 60 * 60 * 1000)

/*
 * A session: keys that are set with it are deleted when it ends. It does not belong to a handle:
 * any program that has a copy of these bytes can use it, on any connection; they are a secret.
 */
struct ddp_store_session {
    unsigned char token[24];
};

/**
 * Open a session. It ends when ddp_store_session_keep() has not been called for @lease_ms
 * milliseconds of the server's clock (1 to DDP_STORE_LEASE_MAX_MS), or with
 * ddp_store_session_close(). Closing the handle does not end it.
 *
 * On DDP_OK *@ret_session is the session. DDP_E_LIMIT: the store has too many sessions.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_session_open(ddp_store *store, uint32_t lease_ms,
                                                         uint32_t timeout_ms,
                                                         struct ddp_store_session *ret_session,
                                                         struct ddp_error *err);

/**
 * Renew the lease of @session. Call it about every sixth of the lease, to leave time for retries.
 *
 * DDP_E_NOT_FOUND: the session has ended, and its keys are deleted.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_session_keep(ddp_store *store,
                                                         const struct ddp_store_session *session,
                                                         uint32_t timeout_ms,
                                                         struct ddp_error *err);

/**
 * End @session and delete its keys. DDP_E_NOT_FOUND: it has ended already.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_session_close(ddp_store *store,
                                                          const struct ddp_store_session *session,
                                                          uint32_t timeout_ms,
                                                          struct ddp_error *err);

/**
 * Set @key as ddp_store_set() does, until @session ends; then the key is deleted, which watches
 * report.
 *
 * The last change decides: a key that is then set, added to or swapped without a session stays.
 * DDP_E_NOT_FOUND: the session has ended; nothing is set.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_set_ephemeral(
    ddp_store *store, const struct ddp_store_session *session, const char *key, const void *value,
    size_t value_len, uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err);

/**
 * Open a port for PyTorch's TCPStore clients of @job. Their protocol cannot name a job, so the port
 * does: clients of this port see only the keys of the job that begin with "tcp/", without "tcp/".
 *
 * @job may be NULL if the handle has a job. The port is opened on the server's address that this
 * handle is connected to. It closes with @session or with the server; after a restart of the
 * server, open another one. On DDP_OK *@ret_port is its number. DDP_E_NOT_FOUND: the session has
 * ended. DDP_E_LIMIT: the server has too many such ports. DDP_E_DENIED: the handle is not an
 * agent's, or belongs to another job.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_open_port(ddp_store *store,
                                                      const struct ddp_store_session *session,
                                                      const char *job, uint32_t timeout_ms,
                                                      uint16_t *ret_port, struct ddp_error *err);

/**
 * End all epochs of @job before @epoch: the server disconnects their workers and refuses them from
 * now on. It also disconnects all TCPStore clients of the job, whose protocol has no epoch, closes
 * the ports that clients have opened for them (open one for the new epoch), and deletes their keys.
 * A port that the server was started with stays open.
 *
 * @job as in ddp_store_open_port(). If the job is in @epoch already, nothing changes. On DDP_OK
 * *@ret_epoch (may be NULL) is @epoch. DDP_E_CONFLICT: the job is in a later epoch, which is set in
 * *@ret_epoch. DDP_E_DENIED: the handle is not an agent's, or belongs to another job.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_fence(ddp_store *store, const char *job, uint64_t epoch,
                                                  uint32_t timeout_ms, uint64_t *ret_epoch,
                                                  struct ddp_error *err);

/**
 * Get the server's counters as text: for each a line with its name, a blank and a decimal number.
 *
 * "connections", "keys", "bytes", "waits" (requests that wait), "watches", "sessions", "jobs" (with
 * rounds) and "members" are current values; others, such as "requests" and "refused" (connections),
 * only increase. Later servers may add lines. On DDP_OK *@ret_text is a string; free it with
 * ddp_store_free().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_stats(ddp_store *store, uint32_t timeout_ms,
                                                  char **ret_text, struct ddp_error *err);

/**
 * Free memory that a call of this library returned. NULL is allowed. Does not block; may be called
 * from any thread.
 */
DDP_API void ddp_store_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
