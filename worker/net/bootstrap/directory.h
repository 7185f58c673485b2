/*
 * directory.h - where rank 0 leaves its card and the others find it, until all have joined: a table
 * of functions for each kind of place.
 *
 * A directory has one entry, the card of rank 0. It may be that of a dead rank 0 that another one
 * is about to replace.
 */
#ifndef DDPI_DIRECTORY_H
#define DDPI_DIRECTORY_H

#include "config.h"
#include "peer_card.h"
#include "rank_key.h"

struct ddpi_directory;

/* A card as bytes (ddpi_card_encode()). */
struct ddpi_entry {
    uint8_t card[DDPI_CARD_WIRE_MAX];
    size_t len;
};

/* false: no memory. */
bool ddpi_entry_fill(struct ddpi_entry *entry, const struct ddpi_card *card);

/* Functions that take no time limit take at most some seconds. */
struct ddpi_directory_ops {
    /* withdraw() may remove an entry that another rank has made since: rank 0 has to look whether
     * its entry is still there. */
    bool loses_entries;
    /* The entry is an address that all ranks know beforehand: rank 0 has to listen there. */
    bool fixed;
    /* Rank 0 may come later, or another one may listen there: ask again. */
    bool patient;

    /* Replace the entry. */
    ddp_status (*publish)(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                          uint32_t timeout_ms, struct ddp_error *err);
    /* Wait until there is an entry; 0: look once. DDP_E_NOT_FOUND: there was none. */
    ddp_status (*find)(struct ddpi_directory *directory, uint32_t timeout_ms,
                       struct ddpi_entry *ret_entry, struct ddp_error *err);
    /* Remove the entry if it is @entry, because all have joined, or because the rank 0 that made it
     * is gone. */
    ddp_status (*withdraw)(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                           struct ddp_error *err);
    void (*close)(struct ddpi_directory *directory);
};

/* Kinds put their own state behind it. */
struct ddpi_directory {
    const struct ddpi_directory_ops *ops;
    struct ddpi_endpoint place; /* what all ranks reach; host "": unknown */
    bool has_key;               /* false: the ranks have what the launcher has given them */
    struct ddpi_rank_key key;
    int join_listener; /* of rank 0, where others join, until it is taken; -1: none */
};

enum { DDPI_HOST_KEY = 160 /* a name has at most 128 characters */ };
void ddpi_directory_key(const struct ddpi_config *config, char key[DDPI_HOST_KEY]);

/* The kinds. @config outlives the directory; connecting takes at most @timeout_ms. */
typedef ddp_status ddpi_directory_open(const struct ddpi_config *config, uint32_t timeout_ms,
                                       struct ddpi_directory **ret, struct ddp_error *err);
ddpi_directory_open ddpi_directory_open_store; /* config->store_endpoint, by libddpstore */
ddpi_directory_open ddpi_directory_open_kv;    /* config->kv, the functions of the caller */
ddpi_directory_open ddpi_directory_open_id;    /* config->unique_id */
ddpi_directory_open ddpi_directory_open_torch; /* config->master, a TCPStore of PyTorch */
ddpi_directory_open ddpi_directory_open_master;

/* A key in the store that @kv reaches; close() is called with its ctx, unless NULL, and also if
 * this fails. */
ddp_status ddpi_directory_open_over(const struct ddpi_config *config, const struct ddp_kv *kv,
                                    void (*close)(void *ctx), struct ddpi_directory **ret,
                                    struct ddp_error *err);

/* What a server is for the choice of an address: itself, unless there is no way to it, or its host
 * is a name that means loopback on this machine alone, as the name of a machine may in its own
 * hosts file. */
void ddpi_server_place(const struct ddpi_endpoint *server, struct ddpi_endpoint *ret);

/* NULL is allowed. */
void ddpi_directory_close(struct ddpi_directory *directory);

#endif
