/*
 * etcd_record.h - what the store keeps under which key of etcd, and in which form. Pure.
 *
 * Below PREFIX/v1/, the rest of a key, and its value, whose integers are little-endian and which
 * begins with a byte for its form:
 *
 *   leader       JSON: which ddprund leads (etcd_election.c)
 *   meta         the store's number, and the state of the contents as a whole
 *   k/KEY        version, session (0: none), the value
 *   s/NUMBER     lease, the session's token
 *   q/NUMBER     the queue's name and a value of it, in the order of NUMBER
 *   d/NUMBER     a deletion in progress: version, last value of queues that it covers, prefix
 *   h/VERSION    a change that watches may go back to: kind, key, value
 *   j/NUMBER     a part of the journal of a long turn (etcd_journal.h)
 *
 * KEY is the store's own key, any bytes. NUMBER and VERSION are 16 hexadecimal digits, so that
 * etcd's order is theirs.
 */
#ifndef DDPI_ETCD_RECORD_H
#define DDPI_ETCD_RECORD_H

#include "buf.h"
#include "sink.h"

enum ddpi_etcd_section {
    DDPI_ETCD_SECTION_KEY = 'k',
    DDPI_ETCD_SECTION_SESSION = 's',
    DDPI_ETCD_SECTION_QUEUED = 'q',
    DDPI_ETCD_SECTION_DETACHED = 'd',
    DDPI_ETCD_SECTION_PAST = 'h',
    DDPI_ETCD_SECTION_JOURNAL = 'j',
};

/* The state of the contents as a whole, which each transaction writes. */
struct ddpi_etcd_meta {
    struct ddpi_mark mark;
    uint64_t transaction; /* the number of the transaction that wrote it */
    uint64_t queued;      /* the number of the latest value of a queue */
    uint64_t journal; /* the parts of a complete journal that is being applied; 0: there is none */
};

/* ---- keys; @root is PREFIX/v1/ ---- */

enum { DDPI_ETCD_ROOT_MAX = 256 };

/* All return false only if memory is short. */
bool ddpi_etcd_put_key(struct ddpi_buf *buf, const char *root, enum ddpi_etcd_section section,
                       struct ddpi_bytes rest);
bool ddpi_etcd_put_numbered(struct ddpi_buf *buf, const char *root, enum ddpi_etcd_section section,
                            uint64_t number);

/* ---- values ---- */

enum { DDPI_ETCD_META_SIZE = 50 };
bool ddpi_etcd_put_meta(struct ddpi_buf *buf, const struct ddpi_etcd_meta *meta);
ddp_status ddpi_etcd_get_meta(struct ddpi_bytes value, struct ddpi_etcd_meta *ret,
                              struct ddp_error *err);

/* A record: what the core is given back. */
struct ddpi_etcd_record {
    enum ddpi_etcd_section section;
    struct ddpi_mutation mutation; /* SET (with its session), SESSION_OPEN, PUSH, DETACH, PAST_* */
    /* Its number if it is a queue's value or a part of the journal; of a deletion: the last one. */
    uint64_t queued;
};

bool ddpi_etcd_put_record(struct ddpi_buf *buf, const struct ddpi_etcd_record *record);

/* Read the record under @rest, the key without the root. What it points to is in both texts. */
ddp_status ddpi_etcd_get_record(struct ddpi_bytes rest, struct ddpi_bytes value,
                                struct ddpi_etcd_record *ret, struct ddp_error *err);

#endif
