/*
 * keeper_room.h - makes room in an etcd that is full: it deletes old revisions, shrinks the file,
 * and ends the alarm. A full etcd refuses all changes, so no store can lead. Each full member needs
 * this, and only its keeper can reach it.
 */
#ifndef CMD_KEEPER_ROOM_H
#define CMD_KEEPER_ROOM_H

#include "etcd_client.h"

#include <stdbool.h>

/* Zeroed, then init. */
struct keeper_room {
    struct ddpi_etcd_client *client;
    struct ddpi_etcd_call call;
    bool made;
    unsigned silenced; /* alarms */
    /* @why: a reason why it has failed; NULL: there is room again. Not called where no member was
     * full. */
    void (*done)(void *ctx, const char *why);
    void *ctx;
};

void keeper_room_init(struct keeper_room *room);
/* Without effect while it is under way. */
void keeper_room_begin(struct keeper_room *room);
/* End it without done(). */
void keeper_room_finish(struct keeper_room *room);

#endif
