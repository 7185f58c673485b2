/*
 * client_target.c - checks options, adds the prefix to keys and removes it again. Owns the copies
 * of the options.
 */
#include "client_target.h"

#include "error.h"
#include "mem.h"

#include <stdio.h>

_Static_assert((int)DDP_STORE_WATCH_PREFIX == (int)DDPI_WATCH_PREFIX &&
                   (int)DDP_STORE_EVENT_SET == (int)DDPI_CHANGE_SET &&
                   (int)DDP_STORE_EVENT_DELETED == (int)DDPI_CHANGE_DELETE,
               "flags and kinds cross the wire as they are");
_Static_assert((int)DDP_STORE_IF_VERSION == (int)DDPI_IF_VERSION &&
                   (int)DDP_STORE_IF_VALUE == (int)DDPI_IF_VALUE &&
                   (int)DDP_STORE_THEN_SET == (int)DDPI_THEN_SET &&
                   (int)DDP_STORE_THEN_DELETE == (int)DDPI_THEN_DELETE,
               "kinds of clauses cross the wire as they are");

enum { CONNECT_DEFAULT_MS = 10000 };

/* ---- options ---- */

static ddp_status check_options(const struct ddp_store_options *options,
                                struct ddpi_endpoints *ret_addresses, struct ddp_error *err)
{
    if (options->endpoint == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "the endpoint is missing");
    ddp_status status = ddpi_parse_endpoints(options->endpoint, ret_addresses, err);
    if (status != DDP_OK)
        return status;
    for (uint32_t i = 0; i < ret_addresses->count; i++)
        if (!ret_addresses->at[i].has_port || ret_addresses->at[i].port == 0)
            return ddpi_error_set(err, DDP_E_INVALID, "the endpoint '%.200s' has no port%s%s",
                                  options->endpoint, i > 0 ? " after " : "",
                                  i > 0 ? ret_addresses->at[i].host : "");
    if (options->prefix != NULL && strlen(options->prefix) > DDP_STORE_KEY_MAX)
        return ddpi_error_set(err, DDP_E_LIMIT, "a prefix of more than %d bytes",
                              DDP_STORE_KEY_MAX);
    if (options->flags & ~(uint32_t)(DDP_STORE_NO_RECONNECT | DDP_STORE_TLS))
        return ddpi_error_set(err, DDP_E_INVALID, "unknown flags of a handle: 0x%x",
                              options->flags);
    return DDP_OK;
}

ddp_status ddpi_target_init(struct ddpi_target *target, const struct ddp_store_options *given,
                            struct ddp_error *err)
{
    struct ddp_store_options options = {0};
    if (given == NULL || given->size < offsetof(struct ddp_store_options, connect_timeout_ms) ||
        given->size > DDP_STORE_KEY_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "struct ddp_store_options has no plausible size; set it to "
                              "sizeof(struct ddp_store_options)");
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    struct ddpi_endpoints addresses = {.count = 0};
    ddp_status status = check_options(&options, &addresses, err);
    if (status != DDP_OK)
        return status;
    const char *prefix = options.prefix != NULL ? options.prefix : "";
    *target = (struct ddpi_target){
        .addresses = addresses, .prefix_len = strlen(prefix), .flags = options.flags};
    target->connect_timeout_ms =
        options.connect_timeout_ms > 0 ? options.connect_timeout_ms : CONNECT_DEFAULT_MS;
    ddpi_endpoints_text(&addresses, target->endpoint, sizeof target->endpoint);
    status = ddpi_client_auth_init(&target->auth, &options, err);
    if (status != DDP_OK)
        return status;
    target->prefix = ddpi_strdup(prefix);
    if (target->prefix != NULL)
        return DDP_OK;
    ddpi_client_auth_finish(&target->auth);
    return ddpi_error_nomem(err, target->prefix_len + 1);
}

void ddpi_target_finish(struct ddpi_target *target)
{
    ddpi_client_auth_finish(&target->auth);
    ddpi_free(target->prefix);
    target->prefix = NULL;
}

/* ---- requests ---- */

ddp_status ddpi_target_key(const struct ddpi_target *target, const struct ddpi_welcome *limits,
                           const char *key, char **ret, struct ddpi_bytes *ret_bytes,
                           struct ddp_error *err)
{
    if (key == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "a key is NULL");
    size_t key_len = strlen(key);
    if (key_len > DDP_STORE_KEY_MAX || target->prefix_len + key_len > limits->key_max)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "a key of %zu bytes, prefix included; at most %u are allowed",
                              target->prefix_len + key_len, limits->key_max);
    char *full = ddpi_asprintf("%s%s", target->prefix, key);
    if (full == NULL)
        return ddpi_error_nomem(err, target->prefix_len + key_len + 1);
    *ret = full;
    *ret_bytes = ddpi_bytes_of(full, target->prefix_len + key_len);
    return DDP_OK;
}

ddp_status ddpi_target_check_value(const struct ddpi_welcome *limits, const void *value, size_t len,
                                   struct ddp_error *err)
{
    if (value == NULL && len > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "a value of %zu bytes at NULL", len);
    if (len > limits->value_max)
        return ddpi_error_set(err, DDP_E_LIMIT, "a value of %zu bytes; at most %u are allowed", len,
                              limits->value_max);
    return DDP_OK;
}

static ddp_status pack_key(const struct ddpi_target *target, const struct ddpi_welcome *limits,
                           const char *key, struct ddpi_buf *packed, struct ddp_error *err)
{
    char *full;
    struct ddpi_bytes bytes;
    ddp_status status = ddpi_target_key(target, limits, key, &full, &bytes, err);
    if (status != DDP_OK)
        return status;
    if (!ddpi_keys_put(packed, bytes))
        status = ddpi_error_nomem(err, bytes.len);
    ddpi_free(full);
    return status;
}

ddp_status ddpi_target_pack_keys(const struct ddpi_target *target,
                                 const struct ddpi_welcome *limits, const char *const *keys,
                                 size_t count, struct ddpi_buf *packed, struct ddp_error *err)
{
    ddpi_buf_init(packed, ddpi_request_max(DDPI_OP_WAIT));
    if (count == 0 || count > DDP_STORE_MANY_MAX || keys == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "a wait for %zu keys; 1 to %d are allowed", count,
                              DDP_STORE_MANY_MAX);
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        status = pack_key(target, limits, keys[i], packed, err);
    return status;
}

static bool has_value(const struct ddp_store_clause *clause)
{
    return clause->kind == DDP_STORE_IF_VALUE || clause->kind == DDP_STORE_THEN_SET;
}

static ddp_status pack_clause(const struct ddpi_target *target, const struct ddpi_welcome *limits,
                              const struct ddp_store_clause *given, struct ddpi_buf *packed,
                              struct ddp_error *err)
{
    if (given->kind < DDP_STORE_IF_VERSION || given->kind > DDP_STORE_THEN_DELETE)
        return ddpi_error_set(err, DDP_E_INVALID, "no clause of a transaction has the kind %d",
                              (int)given->kind);
    struct ddpi_clause clause = {.kind = (uint8_t)given->kind};
    if (given->kind == DDP_STORE_IF_VERSION)
        clause.version = given->version;
    if (has_value(given))
        clause.value = ddpi_bytes_of(given->value, given->value_len);
    ddp_status status = ddpi_target_check_value(limits, clause.value.data, clause.value.len, err);
    char *full = NULL;
    if (status == DDP_OK)
        status = ddpi_target_key(target, limits, given->key, &full, &clause.key, err);
    if (status == DDP_OK && !ddpi_clauses_put(packed, &clause))
        status = ddpi_error_nomem(err, clause.key.len + clause.value.len);
    ddpi_free(full);
    return status;
}

static ddp_status check_clauses(const struct ddp_store_clause *clauses, size_t count,
                                struct ddp_error *err)
{
    if (count == 0 || count > DDP_STORE_CLAUSES_MAX || clauses == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a transaction of %zu clauses; 1 to %d are allowed", count,
                              DDP_STORE_CLAUSES_MAX);
    size_t left = DDP_STORE_VALUE_MAX;
    for (size_t i = 0; i < count; i++) {
        if (!has_value(&clauses[i]))
            continue;
        if (clauses[i].value_len > left)
            return ddpi_error_set(err, DDP_E_LIMIT,
                                  "the values of a transaction are more than %d bytes together",
                                  DDP_STORE_VALUE_MAX);
        left -= clauses[i].value_len;
    }
    return DDP_OK;
}

ddp_status ddpi_target_pack_clauses(const struct ddpi_target *target,
                                    const struct ddpi_welcome *limits,
                                    const struct ddp_store_clause *clauses, size_t count,
                                    struct ddpi_buf *packed, struct ddp_error *err)
{
    ddpi_buf_init(packed, ddpi_request_max(DDPI_OP_TRANSACT));
    ddp_status status = check_clauses(clauses, count, err);
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        status = pack_clause(target, limits, &clauses[i], packed, err);
    return status;
}

/* ---- answers and events ---- */

/* The server quotes keys with the prefix, which the caller has not written. */
static void drop_prefix(const struct ddpi_target *target, char *text)
{
    char *at = target->prefix_len > 0 ? strstr(text, target->prefix) : NULL;
    for (; at != NULL; at = *at != '\0' ? strstr(at + 1, target->prefix) : NULL)
        if (at > text && at[-1] == '\'')
            memmove(at, at + target->prefix_len, strlen(at + target->prefix_len) + 1);
}

ddp_status ddpi_target_failure(const struct ddpi_target *target, enum ddpi_op op, ddp_status status,
                               const char *why, struct ddp_error *err)
{
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", why);
    drop_prefix(target, text);
    return ddpi_error_set(err, status, "%s at the store %s: %s", ddpi_op_name(op), target->endpoint,
                          text);
}

static ddp_status foreign_key(const struct ddpi_target *target, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_PROTOCOL, "the server sent a key without the prefix '%s'",
                          target->prefix);
}

ddp_status ddpi_target_unpack(const struct ddpi_target *target, struct ddpi_keys keys,
                              char ***ret_keys, size_t *ret_count, struct ddp_error *err)
{
    size_t count = keys.count; /* the codec has checked it; each takes 4 bytes or more */
    size_t size = (count + 1) * sizeof(char *) + keys.packed_len + count;
    char **list = ddpi_calloc(size, 1);
    if (list == NULL)
        return ddpi_error_nomem(err, size);
    char *at = (char *)(list + count + 1);
    struct ddpi_bytes key;
    for (size_t i = 0; ddpi_keys_next(&keys, &key); i++) {
        if (key.len < target->prefix_len) {
            ddpi_free(list);
            return foreign_key(target, err);
        }
        size_t len = key.len - target->prefix_len;
        list[i] = memcpy(at, (const char *)key.data + target->prefix_len, len);
        at += len + 1;
    }
    *ret_keys = list;
    *ret_count = count;
    return DDP_OK;
}

ddp_status ddpi_target_event(const struct ddpi_target *target, uint64_t watch,
                             const struct ddpi_message *message, struct ddpi_event **ret,
                             struct ddp_error *err)
{
    bool lost = message->number == DDPI_CHANGE_NONE;
    if (!lost && message->key.len < target->prefix_len)
        return foreign_key(target, err);
    size_t key_len = lost ? 0 : message->key.len - target->prefix_len;
    size_t size = sizeof(struct ddpi_event) + key_len + 1 + message->value.len + 1;
    struct ddpi_event *event = ddpi_calloc(size, 1);
    if (event == NULL)
        return ddpi_error_nomem(err, size);
    char *key = (char *)(event + 1), *value = key + key_len + 1;
    if (key_len > 0)
        memcpy(key, (const char *)message->key.data + target->prefix_len, key_len);
    if (message->value.len > 0)
        memcpy(value, message->value.data, message->value.len);
    event->event = (struct ddp_store_event){
        .kind = lost ? DDP_STORE_EVENT_LOST : (enum ddp_store_event_kind)message->number,
        .watch = watch,
        .version = message->version,
        .key = key,
        .key_len = key_len,
        .value = value,
        .value_len = message->value.len};
    event->size = size;
    ddpi_list_init(&event->of_store);
    *ret = event;
    return DDP_OK;
}
