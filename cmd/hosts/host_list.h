/*
 * host_list.h - the hosts of a job, as command lines and files of other launchers list them. Pure.
 *
 *   HOST[:SLOTS],...                horovodrun's and mpirun's -H; n[01-04]:8 is four hosts
 *   HOST slots=N   HOST:N   HOST    lines of their host files and DeepSpeed's; '#' begins a remark
 *   HOST[:SLOT,...][@HOST...]       DeepSpeed's --include and --exclude
 *
 * HOST may be USER@HOST, and [ADDRESS] if it has colons. Slots are workers.
 */
#ifndef CMD_HOST_LIST_H
#define CMD_HOST_LIST_H

#include "parse.h"

enum {
    HOST_LIST_MAX = 65536,
    HOST_SLOTS_MAX = 4096,
    HOST_USER_MAX = 64,
    HOST_DEVICES_MAX = 256, /* size of a list of devices as text */
};

struct host_entry {
    char user[HOST_USER_MAX]; /* "": the one that the remote shell chooses */
    char name[DDPI_HOST_MAX];
    uint32_t slots;                 /* 0: not given */
    uint32_t line;                  /* of the file, from 1; 0: of the command line */
    char devices[HOST_DEVICES_MAX]; /* the slots that were chosen, "0,2"; "": all */
};

/* A zeroed struct is an empty list; host_list_finish() frees it. */
struct host_list {
    struct host_entry *entries;
    size_t count, room;
};

void host_list_finish(struct host_list *list);

/* Add the hosts of a command line, or of a file's text, whose name @file is for messages.
 * DDP_E_INVALID: what is no host, a host that is listed twice, no slots, or too many hosts; @err
 * quotes it. */
DDP_MUST_CHECK ddp_status host_list_add(struct host_list *list, const char *text,
                                        struct ddp_error *err);
DDP_MUST_CHECK ddp_status host_list_add_file(struct host_list *list, const char *text,
                                             const char *file, struct ddp_error *err);

/* Keep what --include names, or drop what --exclude names; of those two at most one is not NULL or
 * "". DDP_E_INVALID: a host or slot that is not in the list, or nothing is left. */
DDP_MUST_CHECK ddp_status host_list_choose(struct host_list *list, const char *include,
                                           const char *exclude, struct ddp_error *err);

/* Keep the first hosts that @workers fill, and only as many slots of the last one. DDP_E_INVALID:
 * all of them have fewer, or a host's slots are not known. */
DDP_MUST_CHECK ddp_status host_list_limit(struct host_list *list, uint32_t workers,
                                          struct ddp_error *err);

#endif
