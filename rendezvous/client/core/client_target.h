/*
 * client_target.h - the server and the prefix of a handle, from struct ddp_store_options; adds the
 * prefix to keys and removes it from answers and events. For both clients.
 */
#ifndef DDPI_CLIENT_TARGET_H
#define DDPI_CLIENT_TARGET_H

#include "client_auth.h"
#include "client_core.h"
#include "parse.h"

#include <ddprun/store.h>

struct ddpi_target {
    struct ddpi_endpoints addresses;    /* the core says which of them to dial */
    char endpoint[DDPI_ENDPOINTS_TEXT]; /* all of them, for error messages */
    char *prefix;
    size_t prefix_len;
    uint32_t connect_timeout_ms;
    uint32_t flags;
    struct ddpi_client_auth auth;
};

/* Check and copy @options; fields beyond its size are taken as zero. */
ddp_status ddpi_target_init(struct ddpi_target *target, const struct ddp_store_options *options,
                            struct ddp_error *err);
void ddpi_target_finish(struct ddpi_target *target);

/* Join prefix and key in a new string *@ret, which the caller frees; *@ret_bytes points to it. */
ddp_status ddpi_target_key(const struct ddpi_target *target, const struct ddpi_welcome *limits,
                           const char *key, char **ret, struct ddpi_bytes *ret_bytes,
                           struct ddp_error *err);
ddp_status ddpi_target_check_value(const struct ddpi_welcome *limits, const void *value, size_t len,
                                   struct ddp_error *err);
/* Pack @count keys, or clauses, with the prefix. The caller finishes @packed even on failure. */
ddp_status ddpi_target_pack_keys(const struct ddpi_target *target,
                                 const struct ddpi_welcome *limits, const char *const *keys,
                                 size_t count, struct ddpi_buf *packed, struct ddp_error *err);
ddp_status ddpi_target_pack_clauses(const struct ddpi_target *target,
                                    const struct ddpi_welcome *limits,
                                    const struct ddp_store_clause *clauses, size_t count,
                                    struct ddpi_buf *packed, struct ddp_error *err);

/* List the keys without the prefix; the pointers and the strings are one block. */
ddp_status ddpi_target_unpack(const struct ddpi_target *target, struct ddpi_keys keys,
                              char ***ret_keys, size_t *ret_count, struct ddp_error *err);

/* The sentence for a request that has failed with @status: @op and the store before @why, whose
 * keys are without the prefix. Returns @status. */
ddp_status ddpi_target_failure(const struct ddpi_target *target, enum ddpi_op op, ddp_status status,
                               const char *why, struct ddp_error *err);

/* An event, its key and its value in one block; it begins with the part that the caller gets. */
struct ddpi_event {
    struct ddp_store_event event;
    struct ddpi_list of_store;
    size_t size; /* of the block */
};
ddp_status ddpi_target_event(const struct ddpi_target *target, uint64_t watch,
                             const struct ddpi_message *message, struct ddpi_event **ret,
                             struct ddp_error *err);

#endif
