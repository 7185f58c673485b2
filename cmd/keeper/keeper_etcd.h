/*
 * keeper_etcd.h - the etcd of a keeper as a program: where it is, which version, what it is told.
 *
 * Clients reach it by a socket in the keeper's folder only, and its peers by TLS with a certificate
 * that is made from the token and the list. It gets an empty environment, as it would take options
 * from there.
 */
#ifndef CMD_KEEPER_ETCD_H
#define CMD_KEEPER_ETCD_H

#include "cluster_list.h"
#include "keeper_child.h"
#include "keeper_folder.h"
#include "keeper_self.h"
#include "proof.h"

/* Its socket in the folder: an etcd wants HOST:PORT, and makes a file of this name of it. */
#define KEEPER_SOCKET "etcd:1"

struct keeper_etcd {
    const struct ddpi_cluster_list *list;
    const struct keeper_self *self;
    const struct keeper_folder *folder;
    char program[256];
    char version[32];
    uint64_t lease_ms; /* a leader that is silent is replaced within this */
};

/* Find etcd, and see whether it is one that serves: 3.4.16 or 3.5.3, or later ones of the two.
 * Older ones lose what they have acknowledged when they are killed without having waited for the
 * disk, or under load. Blocks while it says its version, at most 10 s. DDP_E_UNSUPPORTED: it is
 * missing, or another version. */
DDP_MUST_CHECK ddp_status keeper_etcd_find(struct keeper_etcd *etcd, struct ddp_error *err);

/* Write its certificate and key into the folder. */
DDP_MUST_CHECK ddp_status keeper_etcd_certify(const struct keeper_etcd *etcd,
                                              const struct ddpi_credential *token,
                                              struct ddp_error *err);

/* The folder of the data of @life, in the keeper's. No other life uses it. */
enum { KEEPER_DATA_NAME = 24 };
void keeper_etcd_data(uint64_t life, char name[KEEPER_DATA_NAME]);

/* Start it for @life: @number is its cluster's, which it joins if @existing, or founds. */
DDP_MUST_CHECK ddp_status keeper_etcd_start(const struct keeper_etcd *etcd, uint64_t life,
                                            uint64_t number, bool existing,
                                            struct keeper_child *child, uv_loop_t *loop,
                                            struct ddp_error *err);

/* The last line of its log that says why it ended, for a sentence; "" if there is none. */
enum { KEEPER_ETCD_LINE = 400 };
void keeper_etcd_last_line(const struct keeper_etcd *etcd, char line[KEEPER_ETCD_LINE]);

#endif
