/*
 * ddprun/kv.h - a key-value store that the caller has, for ddp_comm_init() to meet through: a table
 * of functions, for example over a PyTorch Store, or over what an MPI program has.
 *
 * ddp_comm_init() needs one key, comm/NAME/host, whose value is at most 512 bytes. Rank 0 sets it,
 * the others wait for it and get it, and it is removed before ddp_comm_init() returns. Prefixes, to
 * keep the keys of several jobs apart, are up to the functions.
 */
#ifndef DDPRUN_KV_H
#define DDPRUN_KV_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The functions are called by the thread that calls ddp_comm_init(), and not after that has
 * returned. Keys and values belong to the library, and are valid during the call only; a key ends
 * with a zero byte, a value may have any bytes. Each function returns DDP_OK or what its comment
 * says; any other status ends ddp_comm_init(), which returns it, with the sentence in @err if the
 * function has set one. @err is never NULL. A function may block as long as its store takes to
 * answer, which ddp_comm_init() adds to its own time limit.
 */
struct ddp_kv {
    size_t size; /* sizeof(struct ddp_kv) */
    void *ctx;   /* the first argument of each function */

    /* Set @key to the @len bytes at @value, whether it exists or not. @len may be 0. */
    ddp_status (*set)(void *ctx, const char *key, const void *value, size_t len,
                      struct ddp_error *err);

    /* Copy the value of @key, at most @size bytes of it, to @buffer, and set *@ret_len to its whole
     * length. Does not wait: DDP_E_NOT_FOUND if there is no such key. (A PyTorch Store: check()
     * before get(), which would wait.) */
    ddp_status (*get)(void *ctx, const char *key, void *buffer, size_t size, size_t *ret_len,
                      struct ddp_error *err);

    /* Wait until @key exists: DDP_E_TIMEOUT if it does not within @timeout_ms milliseconds. */
    ddp_status (*wait)(void *ctx, const char *key, uint32_t timeout_ms, struct ddp_error *err);

    /* Remove @key; to remove a key that does not exist is no failure. NULL: the store cannot do
     * that. Then ddp_comm_init() leaves the key behind, with an empty value. */
    ddp_status (*remove)(void *ctx, const char *key, struct ddp_error *err);
};

#ifdef __cplusplus
}
#endif

#endif
