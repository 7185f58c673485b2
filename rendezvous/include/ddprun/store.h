/*
 * ddprun/store.h - client of the ddprun store: a small key-value service through which the
 * processes of a job find each other.
 *
 * Keys and values are byte strings. Every value carries a version, which the server counts up over
 * all its keys with each change; versions are what compare-and-swap compares.
 *
 * Threads: any number of threads may use one handle at the same time, and none holds up another: a
 * get that waits for an hour does not delay a set. The library has no threads of its own: the
 * callers that wait work for each other. ddp_store_close() is the exception: by then no other
 * thread may be in a call (ddp_store_cancel() ends those that are). Different handles are
 * independent. A handle belongs to the process that made it: after fork() the child leaves it alone
 * and does not even close it.
 * Blocking: every call has its answer after at most the @timeout_ms it is given, from the server
 * itself, which may take one second more on its way; no call waits without a limit. 0 means look
 * once. DDP_STORE_FOREVER is 2^32-1 ms (49 days).
 * Lost connections: the handle connects again by itself while it is used, first after some
 * milliseconds, then less and less often, at least every two seconds. Sessions do not belong to a
 * connection, and go on. Watches go on behind the last change they told, before anything else is
 * asked: none is missed, doubled or out of order, and they keep their numbers; where that cannot be
 * had, because the server has forgotten the changes or is another one that began anew, there is one
 * event DDP_STORE_EVENT_LOST; where the server refuses to go on with a watch (it has too many,
 * say), that event says so, and the watch has ended. Calls that were not sent yet, and those that
 * only read, wait, watch, or keep a session, are sent again within their time. Those that change or
 * count something, and may have been done, return DDP_E_CLOSED: only the caller knows whether to do
 * them twice. While there is no connection a call waits for one until its deadline, then
 * DDP_E_UNREACHABLE. A server that is there but does not let the handle in any more (its epoch was
 * fenced, say) ends all calls at once with its reason, DDP_E_DENIED or DDP_E_PROTOCOL; it is asked
 * again, every two seconds at most, for a new call or for what is watched. But a handle that proves
 * a token, or keeps sessions, and was let in once, believes only a server that proves itself, too:
 * what else answers at its port counts as no connection. (The call that looks up
 * a name which only DNS knows is the exception, as in ddp_store_connect().) With
 * DDP_STORE_NO_RECONNECT the first loss is the end of the handle. Errors: every call returns a
 * ddp_status (see ddprun/status.h) and, when it fails, fills @err if it is not NULL. Any call may
 * return, besides what its comment lists: DDP_E_TIMEOUT   the deadline passed; the handle stays
 * usable; DDP_E_CLOSED    the connection was lost, or the server was silent for a second beyond the
 *                   deadline; what was asked may have been done or not. The handle stays usable,
 *                   but for DDP_STORE_NO_RECONNECT;
 *   DDP_E_UNREACHABLE  there was no connection until the deadline: nothing was done;
 *   DDP_E_CANCELED  ddp_store_cancel() was called; what was asked may have been done or not;
 *   DDP_E_LIMIT     a key, a value or a list is larger than the server allows;
 *   DDP_E_DENIED    the role of this client may not do that, or it is not let in any more;
 *   DDP_E_PROTOCOL  what answered is not a ddprun store, or speaks a version without overlap;
 *   DDP_E_INVALID   an argument breaks a rule in its comment (nothing was sent);
 *   DDP_E_NOMEM, DDP_E_SYSTEM.
 * Output parameters are written on DDP_OK only, unless a comment says otherwise.
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

/* Whether client and server prove to each other that they have the same token. Where they do,
 * nobody between them can change, repeat or drop what they say without being noticed; all of it
 * can be read, though, but for DDP_STORE_TLS. */
enum ddp_store_auth {
    DDP_STORE_AUTH_DEFAULT = 0, /* with token_file or token_fd, if one is given, else not */
    DDP_STORE_AUTH_NONE = 1,    /* not, even so */
    DDP_STORE_AUTH_TOKEN = 2,   /* by token_file or token_fd */
    /* The same; but where there is no such token_file, a server on a loopback address is talked to
     * without it. token_file is read when there is a connection. */
    DDP_STORE_AUTH_BEYOND_LOOPBACK = 3
};

/* What a client may do. Who has a job sees the keys of that job only, and without the "job/NAME/"
 * with which they begin for those who have none. What may not be done is DDP_E_DENIED, and the
 * handle stays usable. */
enum ddp_store_role {
    DDP_STORE_AGENT = 0,
    DDP_STORE_WORKER = 1,  /* read, and change keys: of epoch N, unless that is 0, "gN/..." only */
    DDP_STORE_OBSERVER = 2 /* read */
};

/*
 * How to connect. Set @size to sizeof(struct ddp_store_options) and leave what you do not use
 * zero; later versions append fields, and @size tells the library which of them you know.
 */
struct ddp_store_options {
    size_t size;
    const char *endpoint;        /* "host:port" or "[v6]:port"; required */
    const char *prefix;          /* put in front of every key of this handle; NULL = "" */
    uint32_t connect_timeout_ms; /* resolve, connect (tried again until then), greet; 0 = 10,000 */

    /* Who this client is, and by what it proves that. The library reads no environment: programs
     * that want DDPRUN_TOKEN_FILE or DDPRUN_TOKEN_FD to count pass them on. */
    enum ddp_store_auth auth;
    const char *token_file;   /* a token, or the key of a role (ddpctl token); NULL = none */
    int token_fd;             /* the same from an open descriptor, before token_file; 0 = none */
    enum ddp_store_role role; /* with job and epoch; all zero: agent, or what the key is for */
    const char *job; /* 1 to 64 of [A-Za-z0-9._-], the first no '.', not "-"; NULL, "" = none */
    uint64_t epoch;

    uint32_t flags; /* DDP_STORE_NO_RECONNECT, DDP_STORE_TLS */
};

#define DDP_STORE_NO_RECONNECT 1u /* the handle ends with its first connection */
/* All that is said to a server on another machine, and by it, is secret: TLS 1.3 by the token or
 * key, which are needed for it. (A server on a loopback address is spoken to by TLS too,
 * but in clear without a token, and with DDP_STORE_AUTH_BEYOND_LOOPBACK.) It takes OpenSSL 3, which
 * is loaded for it: DDP_E_UNSUPPORTED if that is not there, or this library was built without. */
#define DDP_STORE_TLS 2u

/**
 * Connect to the store at @options->endpoint.
 *
 * Blocks for at most connect_timeout_ms; while nobody listens there it tries again, so that client
 * and server may start in any order. (A name that only DNS knows is the exception: the system's
 * resolver cannot be interrupted, and has its own timeout.) @options is not kept.
 *
 * On DDP_OK *@ret_store is a handle that the caller gives back with ddp_store_close().
 * DDP_E_UNREACHABLE: nobody answered before the deadline; the sentence names each address tried.
 * DDP_E_DENIED: the server does not let this client in, or could not prove that it is the right
 * one; or the token file may not be trusted, or is not there. The sentence says what to do.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_connect(const struct ddp_store_options *options,
                                                    ddp_store **ret_store, struct ddp_error *err);

/**
 * End all calls that are in progress on this handle, with DDP_E_CANCELED. From any thread; does not
 * block. Calls that begin later are not concerned.
 */
DDP_API void ddp_store_cancel(ddp_store *store);

/**
 * Close the connection and free the handle. NULL is allowed. Does not block.
 *
 * No other thread may be in a call on it.
 */
DDP_API void ddp_store_close(ddp_store *store);

/**
 * Set @key to the @value_len bytes at @value (NULL is allowed when 0).
 *
 * On DDP_OK *@ret_version (may be NULL) is the version of the value that was written.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_set(ddp_store *store, const char *key,
                                                const void *value, size_t value_len,
                                                uint32_t timeout_ms, uint64_t *ret_version,
                                                struct ddp_error *err);

/**
 * Wait until @key exists, and copy its value.
 *
 * On DDP_OK *@ret_value is a buffer of *@ret_len bytes (and a NUL behind them, not counted), which
 * the caller frees with ddp_store_free(); *@ret_version (may be NULL) is the value's version.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_get(ddp_store *store, const char *key,
                                                uint32_t timeout_ms, void **ret_value,
                                                size_t *ret_len, uint64_t *ret_version,
                                                struct ddp_error *err);

/**
 * Copy the value of @key if it exists; the same results as ddp_store_get().
 *
 * DDP_E_NOT_FOUND: there is no such key.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_try_get(ddp_store *store, const char *key,
                                                    uint32_t timeout_ms, void **ret_value,
                                                    size_t *ret_len, uint64_t *ret_version,
                                                    struct ddp_error *err);

/* What ddp_store_try_get_many() has found of a key. */
struct ddp_store_value {
    uint64_t version;  /* 0: there is no such key */
    const void *value; /* a NUL behind it, not counted */
    size_t value_len;
};

/**
 * Copy the values of those of the @count keys that exist, in one round trip.
 * 1 <= @count <= DDP_STORE_MANY_MAX.
 *
 * Each value is that of some moment of the call, and not all of the same one. Their answers come
 * one behind the other without being asked for again: who expects large values asks for fewer at a
 * time, so that the server does not take him for a client that leaves too much unread. On DDP_OK
 * *@ret_values is an array of @count values in the order of @keys, freed as a whole with
 * ddp_store_free(). A key that does not exist is no failure.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_try_get_many(ddp_store *store, const char *const *keys,
                                                         size_t count, uint32_t timeout_ms,
                                                         struct ddp_store_value **ret_values,
                                                         struct ddp_error *err);

/**
 * Add @delta to the decimal integer stored at @key; a key that does not exist counts as 0.
 *
 * On DDP_OK *@ret_sum (may be NULL) is the sum, which is also the new value, as decimal text.
 * DDP_E_TYPE: the value is not a decimal 64-bit integer, or the sum would not fit one; it is
 * left as it was.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta,
                                                uint32_t timeout_ms, int64_t *ret_sum,
                                                struct ddp_error *err);

/**
 * Set @key to @value if its version still is @expected_version; 0 means "if it does not exist".
 *
 * On DDP_OK *@ret_version (may be NULL) is the version that was written.
 * DDP_E_CONFLICT: the key has another version, which is then in *@ret_version (0: no such key).
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_compare_and_swap(
    ddp_store *store, const char *key, uint64_t expected_version, const void *value,
    size_t value_len, uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err);

/**
 * Set @key to @value if its value is the @expected_len bytes at @expected.
 *
 * The two values together may have DDP_STORE_VALUE_MAX bytes.
 * On DDP_OK *@ret_version (may be NULL) is the version that was written.
 * DDP_E_CONFLICT: the key has another value, whose version is then in *@ret_version (0: there is no
 * such key, not even with an empty value).
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_compare_and_swap_value(
    ddp_store *store, const char *key, const void *expected, size_t expected_len, const void *value,
    size_t value_len, uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err);

/* What a clause of a transaction says. */
enum ddp_store_clause_kind {
    DDP_STORE_IF_VERSION = 1, /* a condition: @key has the version @version; 0: it does not exist */
    DDP_STORE_IF_VALUE = 2,   /* a condition: @key exists, and its value is @value */
    DDP_STORE_THEN_SET = 3,   /* a change: set @key to @value */
    DDP_STORE_THEN_DELETE = 4 /* a change: remove @key, if it exists */
};

/* One clause of a transaction; what its kind does not name is ignored, and best left zero. */
struct ddp_store_clause {
    enum ddp_store_clause_kind kind;
    const char *key;
    uint64_t version;
    const void *value; /* NULL is allowed when @value_len is 0 */
    size_t value_len;
};

/**
 * Make all changes in @clauses if all conditions in it hold, and else none: nobody sees a part.
 *
 * 1 <= @count <= DDP_STORE_CLAUSES_MAX. Conditions stand before changes, and no key is changed
 * twice (else DDP_E_INVALID). All values together may have DDP_STORE_VALUE_MAX bytes.
 * On DDP_OK *@ret_version (may be NULL) is the version of the last change.
 * DDP_E_CONFLICT: a condition does not hold; @err says of which key, whose version is then in
 * *@ret_version (0: no such key).
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_transact(ddp_store *store,
                                                     const struct ddp_store_clause *clauses,
                                                     size_t count, uint32_t timeout_ms,
                                                     uint64_t *ret_version, struct ddp_error *err);

/**
 * Wait until all @count keys exist at the same time. 1 <= @count <= DDP_STORE_MANY_MAX.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_wait(ddp_store *store, const char *const *keys,
                                                 size_t count, uint32_t timeout_ms,
                                                 struct ddp_error *err);

/**
 * Remove @key. DDP_E_NOT_FOUND: there was no such key.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_delete(ddp_store *store, const char *key,
                                                   uint32_t timeout_ms, struct ddp_error *err);

/**
 * The names of all keys that begin with @prefix ("" = all of this handle), sorted by bytes, without
 * the prefix of the handle. Each that was there from the call to its end is among them, and none
 * that was there at no time in between; a server gathers long lists while it serves others, so a
 * key that came or went meanwhile may be among them or not.
 *
 * On DDP_OK *@ret_keys is an array of *@ret_count strings, freed as a whole with
 * ddp_store_free(). DDP_E_LIMIT: the answer would be longer than DDP_STORE_VALUE_MAX bytes; ask
 * for a longer prefix.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_list(ddp_store *store, const char *prefix,
                                                 uint32_t timeout_ms, char ***ret_keys,
                                                 size_t *ret_count, struct ddp_error *err);

/**
 * Wait until @count handles (of this or other processes) are in the barrier called @name.
 *
 * All of them are released at once, and the name can be used again. A caller whose deadline passes
 * leaves the barrier again: DDP_E_TIMEOUT, and the sentence says how many had come.
 * DDP_E_MISMATCH: others are in this barrier with another @count.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_barrier(ddp_store *store, const char *name,
                                                    uint32_t count, uint32_t timeout_ms,
                                                    struct ddp_error *err);

#define DDP_STORE_WATCH_PREFIX 1u /* a flag of ddp_store_watch() */

enum ddp_store_event_kind {
    DDP_STORE_EVENT_SET = 1,     /* it has a value, a new one or the first */
    DDP_STORE_EVENT_DELETED = 2, /* it is there no more */
    DDP_STORE_EVENT_LOST = 3     /* changes were missed; list and get again: the rest is told */
};

/* One change. Of DDP_STORE_EVENT_LOST the key is empty, and so is the value while the watch goes
 * on; if there is one, the watch has ended, and the value is the sentence that says why. Later
 * versions may append fields. */
struct ddp_store_event {
    enum ddp_store_event_kind kind;
    uint64_t watch;   /* which watch tells it */
    uint64_t version; /* of the change; those of a deletion count too */
    const char *key;  /* without the prefix of the handle; a NUL behind it, not counted */
    size_t key_len;
    const void *value; /* the new one; a NUL behind it, not counted */
    size_t value_len;
};

/**
 * Watch the key @name, or with DDP_STORE_WATCH_PREFIX in @flags all keys that begin with @name (""
 * = all of this handle): each change from now on is an event for ddp_store_next_event(). None is
 * missing, none comes twice, and their versions only grow.
 *
 * @from_version 0 begins with the next change. To know the keys and all that happens to them,
 * watch first, and then list and get them: what you read may be newer than the first events.
 * Any other @from_version begins with the change that has this version: when a handle was closed,
 * watch from the last version it told, plus 1, and nothing is lost. The server remembers a
 * bounded number of changes since somebody first watched anything. A handle that lost its
 * connection does that by itself.
 *
 * On DDP_OK *@ret_watch (may be NULL) names the watch, and *@ret_version (may be NULL) is the
 * version of the latest change in the store. The watch ends with ddp_store_unwatch() or with the
 * handle. DDP_E_GONE: changes since @from_version are forgotten, or it is not this server's; watch
 * from 0, and list the keys again. DDP_E_LIMIT: this handle has too many watches.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_watch(ddp_store *store, const char *name,
                                                  uint32_t flags, uint64_t from_version,
                                                  uint32_t timeout_ms, uint64_t *ret_watch,
                                                  uint64_t *ret_version, struct ddp_error *err);

/**
 * End @watch. Events that came before are still told.
 *
 * DDP_E_NOT_FOUND: this handle has no such watch.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_unwatch(ddp_store *store, uint64_t watch,
                                                    uint32_t timeout_ms, struct ddp_error *err);

/**
 * Wait for the next event of any watch of this handle.
 *
 * On DDP_OK *@ret_event is an event that the caller frees with ddp_store_free(); that frees its key
 * and value, too. DDP_E_TIMEOUT: nothing that is watched has changed.
 * Several threads may wait; each event goes to one of them. Events wait in the handle while other
 * calls are made: at most 64 MiB of them, then those of a watch end with one DDP_STORE_EVENT_LOST,
 * and go on when that has been read. While no call is made nothing is read, and the server closes
 * the connection of a handle that leaves too much unread; the next call makes a new one. Events
 * that have come outlive the connection.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_next_event(ddp_store *store, uint32_t timeout_ms,
                                                       struct ddp_store_event **ret_event,
                                                       struct ddp_error *err);

#define DDP_STORE_LEASE_MAX_MS (24 * 60 * 60 * 1000)

/*
 * A session, by which keys can vanish when those who set them do. It belongs to no handle: whoever
 * has a copy of these bytes may use it, after a lost connection or in another process, and nobody
 * else.
 */
struct ddp_store_session {
    unsigned char token[24];
};

/**
 * Begin a session, which ends when nobody has called ddp_store_session_keep() for @lease_ms
 * milliseconds of the server's clock (1 to DDP_STORE_LEASE_MAX_MS), or by
 * ddp_store_session_close().
 *
 * Closing the handle does not end it. On DDP_OK the session is in *@ret_session.
 * DDP_E_LIMIT: the store has too many of them.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_session_open(ddp_store *store, uint32_t lease_ms,
                                                         uint32_t timeout_ms,
                                                         struct ddp_store_session *ret_session,
                                                         struct ddp_error *err);

/**
 * Begin the lease of @session anew. A sixth of the lease between two calls leaves time for trouble.
 *
 * DDP_E_NOT_FOUND: it has ended, and its keys are gone.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_session_keep(ddp_store *store,
                                                         const struct ddp_store_session *session,
                                                         uint32_t timeout_ms,
                                                         struct ddp_error *err);

/**
 * End @session and remove its keys. DDP_E_NOT_FOUND: it has ended before.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_session_close(ddp_store *store,
                                                          const struct ddp_store_session *session,
                                                          uint32_t timeout_ms,
                                                          struct ddp_error *err);

/**
 * ddp_store_set() of a key that is removed when @session ends, and watched as a deletion then.
 *
 * The last change decides: whoever sets, adds to or swaps the key by another call makes it stay.
 * DDP_E_NOT_FOUND: the session has ended; nothing is set.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_set_ephemeral(
    ddp_store *store, const struct ddp_store_session *session, const char *key, const void *value,
    size_t value_len, uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err);

/**
 * Open a port for PyTorch's TCPStore clients of @job, who cannot say to which job they belong:
 * those who connect there see the keys of that job that begin with "tcp/", without that, and no
 * others.
 *
 * @job is that of the handle if it has one, and may then be NULL. The port is on the address at
 * which this client has reached the server. It ends with @session, or with the server: after a
 * restart, ask for another. On DDP_OK *@ret_port is its number.
 * DDP_E_NOT_FOUND: the session has ended. DDP_E_LIMIT: the server has too many such ports.
 * DDP_E_DENIED: the handle is no agent's, or belongs to another job.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_open_port(ddp_store *store,
                                                      const struct ddp_store_session *session,
                                                      const char *job, uint32_t timeout_ms,
                                                      uint16_t *ret_port, struct ddp_error *err);

/**
 * End all epochs of @job before @epoch: their workers are disconnected, and let in no more; so are
 * all its TCPStore clients, who do not say theirs, and the ports that clients have opened for them
 * are closed: open one for the new epoch. (A port that the server was started with stays open.) The
 * keys of the TCPStore clients are removed.
 *
 * @job as in ddp_store_open_port(). Asking for the epoch that is there already changes nothing. On
 * DDP_OK *@ret_epoch (may be NULL) is @epoch. DDP_E_CONFLICT: the job is in a later epoch, which is
 * then in *@ret_epoch. DDP_E_DENIED: as above.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_fence(ddp_store *store, const char *job, uint64_t epoch,
                                                  uint32_t timeout_ms, uint64_t *ret_epoch,
                                                  struct ddp_error *err);

/**
 * What the server has counted: a line for each counter, its name, a blank, and a decimal number.
 *
 * "connections", "keys", "bytes", "waits" (requests that wait), "watches", "sessions", "jobs" (that
 * have rounds) and "members" are what there is now; the others, such as "requests" and "refused"
 * (connections), only grow. Later servers may have more lines. On DDP_OK *@ret_text is a string
 * that the caller frees with ddp_store_free().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_stats(ddp_store *store, uint32_t timeout_ms,
                                                  char **ret_text, struct ddp_error *err);

/**
 * Free what a call of this library returned. NULL is allowed. Does not block, any thread.
 */
DDP_API void ddp_store_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
