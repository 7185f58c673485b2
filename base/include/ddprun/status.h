/*
 * ddprun/status.h - the result of every call of libddpstore and libddpcomm.
 *
 * DDP_OK is zero. A negative value is fatal for the object that returned it, unless a comment says
 * otherwise, as that of ddprun/store.h does: stop using the object, and return the value to your
 * caller unchanged. A positive value is about this call only (a deadline, a missing key, a dead
 * peer), and the program is expected to handle it.
 *
 * Every call that can fail takes a struct ddp_error, which may be NULL, as its last argument, and
 * puts a sentence for the user into it.
 */
#ifndef DDPRUN_STATUS_H
#define DDPRUN_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DDP_API          __attribute__((visibility("default")))
#define DDP_MUST_CHECK   __attribute__((warn_unused_result))
#define DDP_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define DDP_API
#define DDP_MUST_CHECK
#define DDP_PRINTF(f, a)
#endif

/* X(symbol, value, name, text, retryable): the list of all results. */
#define DDP_STATUS_MAP(X)                                                                        \
    X(DDP_OK, 0, "ok", "success", 0)                                                             \
    X(DDP_E_NOMEM, -1, "no-memory", "out of memory", 0)                                          \
    X(DDP_E_SYSTEM, -2, "system", "the operating system refused a call", 0)                      \
    X(DDP_E_INVALID, -3, "invalid", "an argument or a setting is not valid", 0)                  \
    X(DDP_E_PROTOCOL, -4, "protocol", "the peer does not speak this protocol", 0)                \
    X(DDP_E_INTERNAL, -5, "internal", "a bug in ddprun", 0)                                      \
    X(DDP_E_UNSUPPORTED, -6, "unsupported", "not available in this build or on this machine", 0) \
    X(DDP_E_CUDA, -7, "cuda", "the CUDA driver refused a call", 0)                               \
    X(DDP_E_TIMEOUT, 1, "timeout", "the deadline passed", 1)                                     \
    X(DDP_E_NOT_FOUND, 2, "not-found", "no such key", 0)                                         \
    X(DDP_E_CONFLICT, 3, "conflict", "the key has another version", 1)                           \
    X(DDP_E_CLOSED, 4, "closed", "the connection was closed", 1)                                 \
    X(DDP_E_UNREACHABLE, 5, "unreachable", "no program answers at that address", 1)              \
    X(DDP_E_DENIED, 6, "denied", "access was refused", 0)                                        \
    X(DDP_E_LIMIT, 7, "limit", "a configured limit was reached", 0)                              \
    X(DDP_E_TYPE, 8, "type", "the value does not have the type that the operation needs", 0)     \
    X(DDP_E_MISMATCH, 9, "mismatch", "the ranks called different operations", 0)                 \
    X(DDP_E_PEER_DEAD, 10, "peer-dead", "a peer has died", 0)                                    \
    X(DDP_E_ABORTED, 11, "aborted", "the operation was aborted", 0)                              \
    X(DDP_E_GONE, 12, "gone", "the server no longer has these changes", 0)                       \
    X(DDP_E_CANCELED, 13, "canceled", "the caller canceled the call", 0)

typedef enum ddp_status {
#define DDP_STATUS_ENUM(symbol, value, name, text, retry) symbol = value,
    DDP_STATUS_MAP(DDP_STATUS_ENUM)
#undef DDP_STATUS_ENUM
} ddp_status;

#define DDP_ERROR_TEXT 1024

/*
 * The error of one call; set only if the call fails. The caller owns it. It has no pointers, so it
 * can be copied, and there is nothing to free.
 */
struct ddp_error {
    ddp_status status;        /* what the call returned */
    int sys_errno;            /* errno of the system call that failed; 0: none did */
    char msg[DDP_ERROR_TEXT]; /* a sentence, never empty: what failed, names, numbers, what to do */
};

/**
 * The short name of @status ("timeout", "peer-dead"), for logs and scripts; it never changes.
 *
 * Does not block; may be called from any thread. The result is a static string, "unknown" if
 * @status is not a ddp_status.
 */
DDP_API const char *ddp_status_name(ddp_status status);

/**
 * What @status means, in general.
 *
 * Does not block; may be called from any thread. The result is a static string, "unknown status" if
 * @status is not a ddp_status.
 */
DDP_API const char *ddp_status_text(ddp_status status);

/**
 * 1 if the same call, unchanged, may succeed later; else 0.
 *
 * Does not block; may be called from any thread.
 */
DDP_API int ddp_status_retryable(ddp_status status);

#ifdef __cplusplus
}
#endif

#endif
