/*
 * client_watch.h - the watches of one client, and how they continue on a new connection. Pure.
 *
 * A watch has the id of the request that started it, on every connection, so that its owner knows
 * it by one number. On a new connection it resumes after the last change that it reported. If the
 * server no longer has those changes, or is another server, the watch starts afresh and then
 * reports that changes were missed; everything after that report is covered. A watch that the
 * server refuses for good ends and reports why; the connection and the other watches go on.
 */
#ifndef DDPI_CLIENT_WATCH_H
#define DDPI_CLIENT_WATCH_H

#include "request_queue.h"

struct ddpi_client_watch {
    struct ddpi_list of_client;
    uint64_t id;
    uint64_t reported; /* all changes up to this version */
    uint32_t flags;
    bool started;    /* its request has been answered */
    bool resuming;   /* requested again on this connection, and not answered yet */
    bool has_missed; /* changes that were not reported: the answer ends this */
    bool missed;     /* for the owner of the client */
    size_t name_len;
    char name[];
};

/* Reports a change, valid during the call. The number DDPI_CHANGE_NONE means that changes up to the
 * version were missed; with a value, the watch has ended and the value says why. Any result but
 * DDP_OK ends the connection; on the next one the change is reported again. */
typedef ddp_status ddpi_client_event_fn(void *ctx, struct ddpi_client_watch *watch,
                                        const struct ddpi_message *event, struct ddp_error *err);

struct ddpi_client_watches {
    struct ddpi_list all; /* ddpi_client_watch::of_client */
    struct ddpi_request_queue *requests;
    ddpi_client_event_fn *event;
    void *ctx;
};

void ddpi_client_watches_init(struct ddpi_client_watches *watches,
                              struct ddpi_request_queue *requests, ddpi_client_event_fn *event,
                              void *ctx);
void ddpi_client_watches_finish(struct ddpi_client_watches *watches);

/* Make the watch that @request starts. */
ddp_status ddpi_client_watch_add(struct ddpi_client_watches *watches,
                                 const struct ddpi_client_request *request, struct ddp_error *err);
struct ddpi_client_watch *ddpi_client_watch_find(const struct ddpi_client_watches *watches,
                                                 uint64_t id);
void ddpi_client_watch_drop(struct ddpi_client_watch *watch); /* NULL is allowed */

/* @reply is the answer to the request that starts a watch. */
void ddpi_client_watch_started(struct ddpi_client_watches *watches,
                               const struct ddpi_client_request *request,
                               const struct ddpi_message *reply);
/* @reply is anything else about a watch. */
ddp_status ddpi_client_watch_take(struct ddpi_client_watches *watches,
                                  const struct ddpi_message *reply, struct ddp_error *err);

/* Request all watches again on a new connection; if @afresh, without past changes. False: the
 * output has no room. */
bool ddpi_client_watches_resume(struct ddpi_client_watches *watches, bool afresh);
/* No watch waits to be resumed. */
bool ddpi_client_watches_resumed(const struct ddpi_client_watches *watches);

#endif
