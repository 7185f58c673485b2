/*
 * keeper_look.h - what the keeper's own etcd says: whether it has a quorum, and which store leads.
 */
#ifndef CMD_KEEPER_LOOK_H
#define CMD_KEEPER_LOOK_H

#include "etcd_client.h"

struct keeper_look {
    /* Set before init, and kept. */
    struct ddpi_etcd_client *client;
    const char *prefix;   /* of the store in etcd */
    const char *endpoint; /* of this machine's store */

    struct ddpi_etcd_call call;
    uint64_t asked_ms;
    uint64_t
        quorum_ms;     /* when a question was asked that a quorum answered; 0: never in this life */
    bool leads;        /* as of then: this machine's store, ... */
    bool knows_leader; /* ... or any */
};

void keeper_look_init(struct keeper_look *look);
/* Ask, if it is time. Call it many times a second while etcd runs. */
void keeper_look_ask(struct keeper_look *look, uint64_t now_ms);
/* Forget the answers: another life begins. */
void keeper_look_forget(struct keeper_look *look);

/* Whether the answers count, or are too old. */
bool keeper_look_is_fresh(const struct keeper_look *look, uint64_t now_ms);

#endif
