/*
 * etcd_contents.h - the contents of the store in etcd: read when this process has won, and each
 * turn's changes written while it leads.
 */
#ifndef DDPI_ETCD_CONTENTS_H
#define DDPI_ETCD_CONTENTS_H

#include "etcd_common.h"
#include "etcd_load.h"

struct ddpi_etcd_contents {
    struct ddpi_etcd_common *common;
    struct ddpi_etcd_call call;
    struct ddpi_etcd_load load;
    uint64_t leader_revision; /* of the leader's key, while it is this process's */
    bool loaded;
    unsigned failures; /* to ask for a page at all, in succession */
    struct ddpi_etcd_batch batch;
    bool has_batch;
    struct ddp_error failure;   /* of a change since the last commit */
    struct ddpi_list sending;   /* chunks; the first is under way */
    size_t sending_size;        /* of these, as ddpi_etcd_chunk_size() */
    struct ddpi_buf meta;       /* what etcd's meta is */
    struct ddpi_buf next_meta;  /* what the chunk under way makes of it */
    uint64_t transaction;       /* the number of that chunk */
    struct ddpi_committed done; /* call NULL: no commit is under way */
    struct ddpi_etcd_meta last; /* after the latest commit */
};

void ddpi_etcd_contents_init(struct ddpi_etcd_contents *contents, struct ddpi_etcd_common *common);
void ddpi_etcd_contents_finish(struct ddpi_etcd_contents *contents);

/* Load them, then ETCD_LOADED. From now on, write only while the leader's key has
 * @leader_revision. */
void ddpi_etcd_contents_load(struct ddpi_etcd_contents *contents, uint64_t leader_revision);

/* As in struct ddpi_sink. */
void ddpi_etcd_contents_change(struct ddpi_etcd_contents *contents,
                               const struct ddpi_mutation *mutation);
void ddpi_etcd_contents_commit(struct ddpi_etcd_contents *contents, const struct ddpi_mark *mark,
                               struct ddpi_committed done);
size_t ddpi_etcd_contents_backlog(const struct ddpi_etcd_contents *contents);

#endif
