/*
 * etcd_record.c - see etcd_record.h. Owns nothing.
 */
#include "etcd_record.h"

#include "error.h"

#include <inttypes.h>
#include <stdio.h>

enum { FORM = 1, DIGITS = 16, PAST_SET = 1, PAST_DELETE = 2 };

/* ---- keys ---- */

bool ddpi_etcd_put_key(struct ddpi_buf *buf, const char *root, enum ddpi_etcd_section section,
                       struct ddpi_bytes rest)
{
    return ddpi_buf_append(buf, root, strlen(root)) && ddpi_buf_put_u8(buf, (uint8_t)section) &&
           ddpi_buf_put_u8(buf, '/') && ddpi_buf_append(buf, rest.data, rest.len);
}

bool ddpi_etcd_put_numbered(struct ddpi_buf *buf, const char *root, enum ddpi_etcd_section section,
                            uint64_t number)
{
    char text[DIGITS + 1];
    snprintf(text, sizeof text, "%016" PRIx64, number);
    return ddpi_etcd_put_key(buf, root, section, ddpi_bytes_of(text, DIGITS));
}

static bool parse_number(struct ddpi_bytes text, uint64_t *ret)
{
    const char *at = text.data;
    uint64_t number = 0;
    if (text.len != DIGITS)
        return false;
    for (size_t i = 0; i < DIGITS; i++) {
        bool digit = at[i] >= '0' && at[i] <= '9';
        if (!digit && !(at[i] >= 'a' && at[i] <= 'f'))
            return false;
        number = number << 4 | (uint64_t)(digit ? at[i] - '0' : at[i] - 'a' + 10);
    }
    *ret = number;
    return true;
}

/* ---- meta ---- */

bool ddpi_etcd_put_meta(struct ddpi_buf *buf, const struct ddpi_etcd_meta *meta)
{
    return ddpi_buf_put_u8(buf, FORM) && ddpi_buf_put_u64(buf, meta->mark.incarnation) &&
           ddpi_buf_put_u64(buf, meta->mark.version) &&
           ddpi_buf_put_u8(buf, meta->mark.remembers) && ddpi_buf_put_u64(buf, meta->mark.floor) &&
           ddpi_buf_put_u64(buf, meta->queued) && ddpi_buf_put_u64(buf, meta->transaction) &&
           ddpi_buf_put_u64(buf, meta->journal);
}

ddp_status ddpi_etcd_get_meta(struct ddpi_bytes value, struct ddpi_etcd_meta *ret,
                              struct ddp_error *err)
{
    struct ddpi_rd rd = ddpi_rd_of(value.data, value.len);
    struct ddpi_etcd_meta meta = {0};
    uint8_t form = ddpi_rd_u8(&rd);
    meta.mark.incarnation = ddpi_rd_u64(&rd);
    meta.mark.version = ddpi_rd_u64(&rd);
    uint8_t remembers = ddpi_rd_u8(&rd);
    meta.mark.floor = ddpi_rd_u64(&rd);
    meta.queued = ddpi_rd_u64(&rd);
    meta.transaction = ddpi_rd_u64(&rd);
    meta.journal = ddpi_rd_u64(&rd);
    meta.mark.remembers = remembers == 1;
    if (value.len > 0 && form != FORM)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the record 'meta' has the form %u, and this program knows %d; use "
                              "the version of ddprund that wrote it",
                              form, FORM);
    if (!ddpi_rd_done(&rd) || remembers > 1)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the record 'meta' is damaged");
    *ret = meta;
    return DDP_OK;
}

/* ---- records ---- */

static bool put_named(struct ddpi_buf *buf, struct ddpi_bytes name, struct ddpi_bytes value)
{
    return ddpi_buf_put_u32(buf, (uint32_t)name.len) && ddpi_buf_append(buf, name.data, name.len) &&
           ddpi_buf_append(buf, value.data, value.len);
}

bool ddpi_etcd_put_record(struct ddpi_buf *buf, const struct ddpi_etcd_record *record)
{
    const struct ddpi_mutation *mutation = &record->mutation;
    bool set = mutation->kind == DDPI_MUTATION_SET || mutation->kind == DDPI_MUTATION_PAST_SET;
    if (!ddpi_buf_put_u8(buf, FORM))
        return false;
    switch (record->section) {
    case DDPI_ETCD_SECTION_KEY:
        return ddpi_buf_put_u64(buf, mutation->version) &&
               ddpi_buf_put_u64(buf, mutation->session) &&
               ddpi_buf_append(buf, mutation->value.data, mutation->value.len);
    case DDPI_ETCD_SECTION_SESSION:
        return ddpi_buf_put_u32(buf, mutation->lease_ms) &&
               ddpi_buf_append(buf, mutation->value.data, mutation->value.len);
    case DDPI_ETCD_SECTION_QUEUED:
        return put_named(buf, mutation->key, mutation->value);
    case DDPI_ETCD_SECTION_DETACHED:
        return ddpi_buf_put_u64(buf, mutation->version) && ddpi_buf_put_u64(buf, record->queued) &&
               ddpi_buf_append(buf, mutation->key.data, mutation->key.len);
    case DDPI_ETCD_SECTION_PAST:
        return ddpi_buf_put_u8(buf, set ? PAST_SET : PAST_DELETE) &&
               put_named(buf, mutation->key, mutation->value);
    case DDPI_ETCD_SECTION_JOURNAL:
        return ddpi_buf_append(buf, mutation->value.data, mutation->value.len);
    }
    return false;
}

static struct ddpi_bytes take_rest(struct ddpi_rd *rd)
{
    size_t len = rd->left;
    const uint8_t *at = ddpi_rd_bytes(rd, len);
    return ddpi_bytes_of(at, at != NULL ? len : 0);
}

static void take_named(struct ddpi_rd *rd, struct ddpi_mutation *ret)
{
    uint32_t len = ddpi_rd_u32(rd);
    const uint8_t *at = ddpi_rd_bytes(rd, len);
    ret->key = ddpi_bytes_of(at, at != NULL ? len : 0);
    ret->value = take_rest(rd);
}

static void take_past(struct ddpi_rd *rd, struct ddpi_mutation *ret)
{
    uint8_t kind = ddpi_rd_u8(rd);
    rd->failed = rd->failed || (kind != PAST_SET && kind != PAST_DELETE);
    ret->kind = kind == PAST_SET ? DDPI_MUTATION_PAST_SET : DDPI_MUTATION_PAST_DELETE;
    take_named(rd, ret);
}

/* The value of a record; the form is read already. */
static void take_value(struct ddpi_rd *rd, uint64_t number, struct ddpi_etcd_record *ret)
{
    struct ddpi_mutation *mutation = &ret->mutation;
    switch (ret->section) {
    case DDPI_ETCD_SECTION_KEY:
        mutation->kind = DDPI_MUTATION_SET;
        mutation->version = ddpi_rd_u64(rd);
        mutation->session = ddpi_rd_u64(rd);
        mutation->value = take_rest(rd);
        break;
    case DDPI_ETCD_SECTION_SESSION:
        mutation->kind = DDPI_MUTATION_SESSION_OPEN;
        mutation->session = number;
        mutation->lease_ms = ddpi_rd_u32(rd);
        mutation->value = take_rest(rd);
        break;
    case DDPI_ETCD_SECTION_QUEUED:
        mutation->kind = DDPI_MUTATION_PUSH;
        ret->queued = number;
        take_named(rd, mutation);
        break;
    case DDPI_ETCD_SECTION_DETACHED:
        mutation->kind = DDPI_MUTATION_DETACH;
        mutation->number = number;
        mutation->version = ddpi_rd_u64(rd);
        ret->queued = ddpi_rd_u64(rd);
        mutation->key = take_rest(rd);
        break;
    case DDPI_ETCD_SECTION_PAST:
        mutation->version = number;
        take_past(rd, mutation);
        break;
    case DDPI_ETCD_SECTION_JOURNAL:
        ret->queued = number;
        mutation->value = take_rest(rd);
        break;
    default:
        rd->failed = true;
    }
}

ddp_status ddpi_etcd_get_record(struct ddpi_bytes rest, struct ddpi_bytes value,
                                struct ddpi_etcd_record *ret, struct ddp_error *err)
{
    const char *at = rest.data;
    struct ddpi_rd rd = ddpi_rd_of(value.data, value.len);
    struct ddpi_etcd_record record = {0};
    uint64_t number = 0;
    bool named = rest.len >= 2 && at[1] == '/';
    if (named)
        record.section = (enum ddpi_etcd_section)at[0];
    struct ddpi_bytes name = named ? ddpi_bytes_of(at + 2, rest.len - 2) : rest;
    if (record.section == DDPI_ETCD_SECTION_KEY)
        record.mutation.key = name;
    else
        named = named && parse_number(name, &number);
    rd.failed = !named || ddpi_rd_u8(&rd) != FORM;
    take_value(&rd, number, &record);
    if (!ddpi_rd_done(&rd))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the record '%.*s' is damaged, or no ddprund's",
                              (int)(rest.len < 120 ? rest.len : 120), at);
    *ret = record;
    return DDP_OK;
}
