/*
 * etcd.c - fuzzes what comes from etcd: answers of the gateway (etcd_codec.h) with the keys in
 * them, and records (etcd_record.h). What is taken of a record, written again, is the same.
 */
#include "etcd_codec.h"
#include "etcd_record.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static void try_record(struct ddpi_bytes rest, struct ddpi_bytes value)
{
    struct ddpi_etcd_record record;
    struct ddp_error err;
    struct ddpi_buf again;
    ddp_status status = ddpi_etcd_get_record(rest, value, &record, &err);
    if (status != DDP_OK) {
        HOLDS(status == DDP_E_PROTOCOL);
        return;
    }
    ddpi_buf_init(&again, 1 << 20);
    HOLDS(ddpi_etcd_put_record(&again, &record));
    HOLDS(ddpi_bytes_equal(value, ddpi_bytes_of(ddpi_buf_head(&again), ddpi_buf_len(&again))));
    ddpi_buf_finish(&again);
}

static void try_meta(struct ddpi_bytes value)
{
    struct ddpi_etcd_meta meta;
    struct ddp_error err;
    struct ddpi_buf again;
    ddp_status status = ddpi_etcd_get_meta(value, &meta, &err);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        return;
    }
    ddpi_buf_init(&again, 1024);
    HOLDS(ddpi_etcd_put_meta(&again, &meta));
    HOLDS(ddpi_bytes_equal(value, ddpi_bytes_of(ddpi_buf_head(&again), ddpi_buf_len(&again))));
    ddpi_buf_finish(&again);
}

static ddp_status take_kv(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    (void)ctx;
    (void)err;
    try_record(kv->key, kv->value);
    try_meta(kv->value);
    return DDP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddpi_etcd_reply reply;
    struct ddp_error err;
    uint64_t number;
    uint8_t *text = fuzz_copy(data, size);
    ddp_status status = ddpi_etcd_reply_parse(ddpi_bytes_of(text, size), &reply, &err);
    if (status == DDP_OK) {
        (void)ddpi_etcd_get_number(reply.root, "TTL", &number, &err);
        (void)ddpi_etcd_succeeded(&reply);
        for (size_t i = 0; i < 3; i++)
            (void)ddpi_etcd_each_kv(ddpi_etcd_range_at(&reply, i), take_kv, NULL, &err);
        (void)ddpi_etcd_each_kv(reply.root, take_kv, NULL, &err);
    } else {
        fuzz_check_error(&err, status);
    }
    ddpi_etcd_reply_finish(&reply);
    size_t half = size > 0 ? text[0] % (size + 1) : 0;
    try_record(ddpi_bytes_of(text, half), ddpi_bytes_of(text + half, size - half));
    try_meta(ddpi_bytes_of(text, size));
    free(text);
    return 0;
}
