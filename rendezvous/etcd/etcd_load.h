/*
 * etcd_load.h - contents of the store as they come from etcd, page by page, and how they go back
 * into a core: sorted as it needs them. Pure.
 */
#ifndef DDPI_ETCD_LOAD_H
#define DDPI_ETCD_LOAD_H

#include "etcd_journal.h"

/* The most that the answer with a page may have. It is parsed at once, and the loop waits. */
enum { DDPI_ETCD_PAGE_MAX = 32 * 1024 * 1024 };

struct etcd_loaded;

struct ddpi_etcd_load {
    char root[DDPI_ETCD_ROOT_MAX];
    struct etcd_loaded **records;
    size_t count;
    size_t size;
    struct ddpi_etcd_meta meta;
    bool has_meta;
    struct ddpi_buf cursor; /* the key at which the next page begins */
    uint64_t revision;      /* of the first page; all others are of it, too */
    uint32_t limit;         /* keys in the next page */
};

void ddpi_etcd_load_init(struct ddpi_etcd_load *load, const char *root);
void ddpi_etcd_load_finish(struct ddpi_etcd_load *load);

/* The request for the next page. */
bool ddpi_etcd_load_put_request(struct ddpi_etcd_load *load, struct ddpi_buf *buf);
/* Take a page; *@ret_more: another one follows. */
ddp_status ddpi_etcd_load_take_page(struct ddpi_etcd_load *load,
                                    const struct ddpi_etcd_reply *reply, bool *ret_more,
                                    struct ddp_error *err);

/* The answer with the page was too long: ask for fewer keys. False: it was for one only. */
bool ddpi_etcd_load_shorten(struct ddpi_etcd_load *load);
/* How many keys to ask for after @limit, which brought @keys, at least one, of @bytes. */
uint32_t ddpi_etcd_load_next_limit(uint32_t limit, size_t keys, size_t bytes);

/* If a complete journal is found: the chunks of it that are not applied, in @ret. Apply them, and
 * load anew. */
ddp_status ddpi_etcd_load_journal(const struct ddpi_etcd_load *load, struct ddpi_list *ret,
                                  struct ddp_error *err);

/* Pass all to @take, in the order that ddpi_kv_restore() needs, and set up @batch for what comes
 * then, including the deletion of values of queues that the core does not get. */
ddp_status ddpi_etcd_load_give(struct ddpi_etcd_load *load, struct ddpi_etcd_batch *batch,
                               const uint8_t seed[DDPI_SEED_SIZE],
                               ddp_status (*take)(void *ctx, const struct ddpi_mutation *mutation,
                                                  struct ddp_error *err),
                               void *ctx, struct ddp_error *err);

#endif
