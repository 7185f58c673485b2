/*
 * ddprun/status.h - the result of every call of libddpstore and libddpcomm.
 *
 * Results come in two classes. Negative values are fatal for the object that returned them: stop
 * using it and forward the value unchanged. Positive values describe this call only (a deadline, a
 * missing key, a dead peer): the caller is meant to handle them. DDP_OK is zero.
 *
 * The sentence meant for a person is in struct ddp_error, which every call that can fail takes as
 * an optional last argument.
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

/* X(symbol, value, name, default text, worth trying again). The one list of all results. */
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
    X(DDP_E_UNREACHABLE, 5, "unreachable", "nobody answers at that address", 1)                  \
    X(DDP_E_DENIED, 6, "denied", "access was refused", 0)                                        \
    X(DDP_E_LIMIT, 7, "limit", "a configured limit was reached", 0)                              \
    X(DDP_E_TYPE, 8, "type", "the value does not have the type that the operation needs", 0)     \
    X(DDP_E_MISMATCH, 9, "mismatch", "the ranks called different operations", 0)                 \
    X(DDP_E_PEER_DEAD, 10, "peer-dead", "a peer has died", 0)                                    \
    X(DDP_E_ABORTED, 11, "aborted", "the operation was aborted", 0)                              \
    X(DDP_E_GONE, 12, "gone", "the changes asked for are not remembered any more", 0)            \
    X(DDP_E_CANCELED, 13, "canceled", "the caller gave it up", 0)

typedef enum ddp_status {
#define DDP_STATUS_ENUM(symbol, value, name, text, retry) symbol = value,
    DDP_STATUS_MAP(DDP_STATUS_ENUM)
#undef DDP_STATUS_ENUM
} ddp_status;

#define DDP_ERROR_TEXT 1024

/*
 * The error of one call, filled only when the call fails. The caller owns it; it holds no
 * pointers, so it may be copied and needs no clean-up.
 */
struct ddp_error {
    ddp_status status;        /* what the call returned */
    int sys_errno;            /* errno of the failed system call, 0 if there was none */
    char msg[DDP_ERROR_TEXT]; /* one sentence: names, numbers, what to do next; never empty */
};

/**
 * The short stable name of @status ("timeout", "peer-dead"), for logs and scripts.
 *
 * Does not block, may be called from any thread. The result is a static string; a value that is
 * not a ddp_status gives "unknown".
 */
DDP_API const char *ddp_status_name(ddp_status status);

/**
 * What @status means, in words, without the particulars of a call.
 *
 * Does not block, may be called from any thread. The result is a static string; a value that is
 * not a ddp_status gives "unknown status".
 */
DDP_API const char *ddp_status_text(ddp_status status);

/**
 * 1 if the same call may succeed later without any change by the caller, else 0.
 *
 * Does not block, may be called from any thread.
 */
DDP_API int ddp_status_retryable(ddp_status status);

#ifdef __cplusplus
}
#endif

#endif
