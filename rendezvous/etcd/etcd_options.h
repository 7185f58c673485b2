/*
 * etcd_options.h - what a store in etcd is told by its owner, and what it calls back.
 */
#ifndef DDPI_ETCD_OPTIONS_H
#define DDPI_ETCD_OPTIONS_H

#include "etcd_address.h"
#include "log.h"
#include "sink.h"

/* Texts are copied, unless said otherwise. */
struct ddpi_etcd_store_options {
    const struct ddpi_etcd_address *address; /* lives as long as the store, as the next three do */
    const char *ca_file;                     /* of TLS; NULL: the system's */
    const char *cert_file;
    const char *key_file;
    const char *user; /* of etcd; NULL: none */
    const char *password;
    const char *endpoint; /* at which clients reach this process */
    uint32_t lease_ms;    /* rounded up to seconds; etcd may make it longer */
    const struct ddpi_log *log;

    void *ctx;
    /* Another process leads; @leader: its endpoint, "": none at the moment. @number: of the store;
     * 0: not known. */
    void (*stands_by)(void *ctx, const char *leader, uint64_t number);
    /* This process has won: take all contents, in the order of ddpi_kv_restore(), ... */
    ddp_status (*restore)(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err);
    /* ... then the mark, and serve. The sink is valid until the store is closed. */
    void (*leads)(void *ctx, const struct ddpi_mark *mark, const struct ddpi_sink *sink);
    /* It is over, once: DDP_E_CLOSED: another process leads or may lead now, so serve nobody from
     * now on, and start anew; else the contents cannot be used, and a person must act. A failed
     * commit is reported by the sink instead. */
    void (*over)(void *ctx, const struct ddp_error *why);
};

#endif
