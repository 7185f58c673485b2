/*
 * etcd_codec.c - see etcd_codec.h. Owns nothing.
 */
#include "etcd_codec.h"

#include "error.h"
#include "text.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { KV_MAX = 64 * 1024 * 1024 }; /* bytes of a key or a value; etcd allows 1.5 MiB */

/* ---- base64 ---- */

static bool put_base64(struct ddpi_buf *buf, struct ddpi_bytes bytes)
{
    size_t room = sodium_base64_ENCODED_LEN(bytes.len, sodium_base64_VARIANT_ORIGINAL);
    char *to = (char *)ddpi_buf_reserve(buf, room);
    if (to == NULL)
        return false;
    sodium_bin2base64(to, room, bytes.data, bytes.len, sodium_base64_VARIANT_ORIGINAL);
    ddpi_buf_added(buf, room - 1); /* without the NUL */
    return true;
}

bool ddpi_base64_get(const char *text, size_t len, struct ddpi_buf *ret)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] > 0x7f) /* libsodium 1.0.18 takes it for a '/' */
            return false;
    size_t room = len / 4 * 3 + 1, count;
    uint8_t *to = ddpi_buf_reserve(ret, room);
    if (to == NULL || sodium_base642bin(to, room, text, len, NULL, &count, NULL,
                                        sodium_base64_VARIANT_ORIGINAL) != 0)
        return false;
    ddpi_buf_added(ret, count);
    return true;
}

/* ---- requests ---- */

bool ddpi_etcd_put_text(struct ddpi_buf *buf, const char *text)
{
    return ddpi_buf_append(buf, text, strlen(text));
}

static bool put_name(struct ddpi_buf *buf, const char *name)
{
    return ddpi_etcd_put_text(buf, "\"") && ddpi_etcd_put_text(buf, name) &&
           ddpi_etcd_put_text(buf, "\":");
}

bool ddpi_etcd_put_bytes(struct ddpi_buf *buf, const char *name, struct ddpi_bytes bytes)
{
    return put_name(buf, name) && ddpi_etcd_put_text(buf, "\"") && put_base64(buf, bytes) &&
           ddpi_etcd_put_text(buf, "\"");
}

bool ddpi_etcd_put_number(struct ddpi_buf *buf, const char *name, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "\"%" PRIu64 "\"", number);
    return put_name(buf, name) && ddpi_etcd_put_text(buf, text);
}

static bool put_further(struct ddpi_buf *buf, const char *name, uint64_t number)
{
    return number == 0 || (ddpi_etcd_put_text(buf, ",") && ddpi_etcd_put_number(buf, name, number));
}

bool ddpi_etcd_put_range(struct ddpi_buf *buf, const struct ddpi_etcd_range *range)
{
    return ddpi_etcd_put_text(buf, "{") && ddpi_etcd_put_bytes(buf, "key", range->key) &&
           (range->end.len == 0 ||
            (ddpi_etcd_put_text(buf, ",") && ddpi_etcd_put_bytes(buf, "range_end", range->end))) &&
           put_further(buf, "revision", range->revision) &&
           put_further(buf, "limit", range->limit) &&
           (!range->keys_only || ddpi_etcd_put_text(buf, ",\"keys_only\":true")) &&
           ddpi_etcd_put_text(buf, "}");
}

bool ddpi_etcd_put_op(struct ddpi_buf *buf, const struct ddpi_etcd_op *op)
{
    static const char *const openings[] = {
        [DDPI_ETCD_PUT] = "{\"request_put\":{",
        [DDPI_ETCD_DELETE] = "{\"request_delete_range\":{",
        [DDPI_ETCD_DELETE_RANGE] = "{\"request_delete_range\":{",
    };
    static const char *const names[] = {[DDPI_ETCD_PUT] = "value",
                                        [DDPI_ETCD_DELETE] = NULL,
                                        [DDPI_ETCD_DELETE_RANGE] = "range_end"};
    const char *name = names[op->kind];
    return ddpi_etcd_put_text(buf, openings[op->kind]) &&
           ddpi_etcd_put_bytes(buf, "key", op->key) &&
           (name == NULL ||
            (ddpi_etcd_put_text(buf, ",") && ddpi_etcd_put_bytes(buf, name, op->value))) &&
           put_further(buf, "lease", op->lease) && ddpi_etcd_put_text(buf, "}}");
}

bool ddpi_etcd_put_compare_mod(struct ddpi_buf *buf, struct ddpi_bytes key, uint64_t mod_revision)
{
    return ddpi_etcd_put_text(buf, "{") && ddpi_etcd_put_bytes(buf, "key", key) &&
           ddpi_etcd_put_text(buf, ",\"target\":\"MOD\",\"result\":\"EQUAL\",") &&
           ddpi_etcd_put_number(buf, "mod_revision", mod_revision) && ddpi_etcd_put_text(buf, "}");
}

bool ddpi_etcd_put_compare_value(struct ddpi_buf *buf, struct ddpi_bytes key,
                                 struct ddpi_bytes value)
{
    return ddpi_etcd_put_text(buf, "{") && ddpi_etcd_put_bytes(buf, "key", key) &&
           ddpi_etcd_put_text(buf, ",\"target\":\"VALUE\",\"result\":\"EQUAL\",") &&
           ddpi_etcd_put_bytes(buf, "value", value) && ddpi_etcd_put_text(buf, "}");
}

bool ddpi_etcd_prefix_end(struct ddpi_bytes prefix, struct ddpi_buf *ret)
{
    const uint8_t *bytes = prefix.data;
    return ddpi_buf_append(ret, bytes, prefix.len - 1) &&
           ddpi_buf_put_u8(ret, (uint8_t)(bytes[prefix.len - 1] + 1));
}

/* ---- numbers ---- */

static bool parse_digits(const char *text, size_t len, uint64_t *ret)
{
    uint64_t number = 0;
    for (size_t i = 0; i < len; i++)
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number))
            return false;
    *ret = number;
    return len > 0;
}

ddp_status ddpi_etcd_get_number(const json_t *object, const char *name, uint64_t *ret,
                                struct ddp_error *err)
{
    const json_t *field = json_object_get(object, name);
    *ret = 0;
    if (field == NULL)
        return DDP_OK;
    if (json_is_integer(field) && json_integer_value(field) >= 0) {
        *ret = (uint64_t)json_integer_value(field);
        return DDP_OK;
    }
    if (json_is_string(field) &&
        parse_digits(json_string_value(field), json_string_length(field), ret))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_PROTOCOL, "the field '%s' of etcd's answer is no number",
                          name);
}

/* ---- answers ---- */

static const json_t *first_of(const json_t *object, const char *const names[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (json_object_get(object, names[i]) != NULL)
            return json_object_get(object, names[i]);
    return NULL;
}

/* Takes {"error":"...","message":"...","code":5}, {"code":5,"message":"..."}, and of a stream
 * {"error":{"grpc_code":14,"message":"..."}}. */
static ddp_status take_error(struct ddpi_etcd_reply *reply, struct ddp_error *err)
{
    static const char *const codes[] = {"code", "grpc_code"};
    static const char *const messages[] = {"message", "error"};
    const json_t *nested = json_object_get(reply->root, "error");
    const json_t *holder = json_is_object(nested) ? nested : reply->root;
    const json_t *code = first_of(holder, codes, 2), *message = first_of(holder, messages, 2);
    if (nested == NULL && code == NULL)
        return DDP_OK;
    if (code != NULL && !json_is_integer(code))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the code of etcd's error is no number");
    json_int_t number = code != NULL ? json_integer_value(code) : DDPI_ETCD_UNKNOWN;
    reply->code = number > 0 && number < 17 ? (enum ddpi_etcd_code)number : DDPI_ETCD_UNKNOWN;
    snprintf(reply->message, sizeof reply->message, "%s",
             json_is_string(message) ? json_string_value(message) : "an error without a message");
    ddpi_text_mask(reply->message);
    return DDP_OK;
}

static ddp_status take_header(struct ddpi_etcd_reply *reply, struct ddp_error *err)
{
    const json_t *header = json_object_get(reply->root, "header");
    if (header != NULL && !json_is_object(header))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the header of etcd's answer is no object");
    return ddpi_etcd_get_number(header, "revision", &reply->revision, err);
}

/* What a stream says is in "result". */
static void unwrap(struct ddpi_etcd_reply *reply)
{
    json_t *result = json_object_get(reply->root, "result");
    if (!json_is_object(result))
        return;
    json_incref(result);
    json_decref(reply->root);
    reply->root = result;
}

ddp_status ddpi_etcd_reply_parse(struct ddpi_bytes text, struct ddpi_etcd_reply *ret,
                                 struct ddp_error *err)
{
    json_error_t where;
    *ret = (struct ddpi_etcd_reply){.root = json_loadb(text.len > 0 ? text.data : "", text.len,
                                                       JSON_REJECT_DUPLICATES, &where)};
    if (!json_is_object(ret->root)) {
        char reason[sizeof where.text];
        snprintf(reason, sizeof reason, "%s", ret->root == NULL ? where.text : "no object");
        ddpi_text_mask(reason);
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "its answer of %zu bytes is not JSON as etcd writes it (%s)",
                              text.len, reason);
    }
    unwrap(ret);
    ddp_status status = take_error(ret, err);
    return status == DDP_OK && ret->code == DDPI_ETCD_OK ? take_header(ret, err) : status;
}

void ddpi_etcd_reply_finish(struct ddpi_etcd_reply *reply)
{
    json_decref(reply->root);
    reply->root = NULL;
}

bool ddpi_etcd_succeeded(const struct ddpi_etcd_reply *reply)
{
    return json_is_true(json_object_get(reply->root, "succeeded"));
}

const json_t *ddpi_etcd_range_at(const struct ddpi_etcd_reply *reply, size_t index)
{
    const json_t *responses = json_object_get(reply->root, "responses");
    const json_t *range = json_object_get(json_array_get(responses, index), "response_range");
    return json_is_object(range) ? range : NULL;
}

static ddp_status take_kv(const json_t *item, struct ddpi_buf *bytes, struct ddpi_etcd_kv *ret,
                          struct ddp_error *err)
{
    const json_t *key = json_object_get(item, "key"), *value = json_object_get(item, "value");
    ddp_status status = ddpi_etcd_get_number(item, "mod_revision", &ret->mod_revision, err);
    if (status != DDP_OK)
        return status;
    if (!json_is_string(key) || (value != NULL && !json_is_string(value)))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a key or value in etcd's answer is no text");
    if (!ddpi_base64_get(json_string_value(key), json_string_length(key), bytes))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a key in etcd's answer is not base64");
    size_t key_len = ddpi_buf_len(bytes);
    if (value != NULL &&
        !ddpi_base64_get(json_string_value(value), json_string_length(value), bytes))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a value in etcd's answer is not base64");
    ret->key = ddpi_bytes_of(ddpi_buf_head(bytes), key_len);
    ret->value = ddpi_bytes_of(ddpi_buf_head(bytes) + key_len, ddpi_buf_len(bytes) - key_len);
    return DDP_OK;
}

ddp_status ddpi_etcd_each_kv(const json_t *range,
                             ddp_status (*take)(void *ctx, const struct ddpi_etcd_kv *kv,
                                                struct ddp_error *err),
                             void *ctx, struct ddp_error *err)
{
    const json_t *kvs = json_object_get(range, "kvs");
    struct ddpi_buf bytes;
    ddp_status status = DDP_OK;
    if (kvs != NULL && !json_is_array(kvs))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the keys in etcd's answer are no list");
    ddpi_buf_init(&bytes, KV_MAX);
    for (size_t i = 0; status == DDP_OK && i < json_array_size(kvs); i++) {
        struct ddpi_etcd_kv kv;
        ddpi_buf_consume(&bytes, ddpi_buf_len(&bytes));
        status = take_kv(json_array_get(kvs, i), &bytes, &kv, err);
        if (status == DDP_OK)
            status = take(ctx, &kv, err);
    }
    ddpi_buf_finish(&bytes);
    return status;
}
