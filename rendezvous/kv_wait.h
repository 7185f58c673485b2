/*
 * kv_wait.h - what kv.c (keys and values) and kv_wait.c (requests that wait) share. Nobody else
 * includes it.
 */
#ifndef DDPI_KV_WAIT_H
#define DDPI_KV_WAIT_H

#include "heap.h"
#include "kv.h"
#include "table.h"

struct ddpi_kv {
    struct ddpi_kv_limits limits;
    struct ddpi_table keys;     /* kv_entry::node */
    struct ddpi_table barriers; /* kv_barrier::node */
    struct ddpi_heap deadlines; /* kv_wait::deadline */
    size_t nkeys;               /* entries that have a value */
    size_t bytes;
    uint64_t version;
    ddpi_kv_reply_fn *reply;
    void *reply_ctx;
};

/* A key that has a value, or that somebody waits for, or both. */
struct kv_entry {
    struct ddpi_table_node node;
    struct ddpi_list links; /* kv_link::of_entry, in order of arrival */
    uint64_t version;       /* 0: no value */
    char *value;            /* a NUL behind it */
    size_t value_len;
    char key[];
};

/* One request while it is served. A handler fills @reply, or sets @parked: the reply comes later.
 */
struct kv_call {
    struct ddpi_kv_client *client;
    const struct ddpi_message *request;
    uint64_t now_ms;
    struct ddpi_message reply;
    struct ddp_error err;
    bool parked;
};

/* As much of a key as a sentence has room for: use with "%.*s". */
#define KV_QUOTE(bytes) (int)((bytes).len < 160 ? (bytes).len : 160), (const char *)(bytes).data

/* kv.c */
struct kv_entry *ddpi_kv_find(const struct ddpi_kv *kv, struct ddpi_bytes key);
struct kv_entry *ddpi_kv_entry_make(struct ddpi_kv *kv, struct ddpi_bytes key);
void ddpi_kv_entry_release(struct ddpi_kv *kv, struct kv_entry *entry);
bool ddpi_kv_has_room(const struct ddpi_kv *kv, size_t bytes);
ddp_status ddpi_kv_no_room(const struct ddpi_kv *kv, struct ddp_error *err);
void ddpi_kv_answer(struct ddpi_kv *kv, struct ddpi_kv_client *client, struct ddpi_message *reply,
                    enum ddpi_op op, uint64_t id);
void ddpi_kv_answer_value(struct ddpi_message *reply, const struct kv_entry *entry);

/* kv_wait.c: the operations that may wait */
ddp_status ddpi_kv_get(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_wait(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_barrier(struct ddpi_kv *kv, struct kv_call *call);

/* @entry has just got a value, or has just lost it. */
void ddpi_kv_appeared(struct ddpi_kv *kv, struct kv_entry *entry);
void ddpi_kv_vanished(struct kv_entry *entry);

#endif
