/*
 * discovery.h - asks a program for the hosts of a job again and again: --host-discovery-script. It
 * prints one host on each line, as in a host file.
 *
 * A run that takes too long is killed; one that fails, prints too much, or what is no list of
 * hosts, changes nothing.
 */
#ifndef CMD_DISCOVERY_H
#define CMD_DISCOVERY_H

#include "buf.h"
#include "host_list.h"
#include "spawner.h"

#include <uv.h>

struct discovery_hooks {
    /* A run has ended well; @list is freed afterwards. */
    void (*hosts)(void *ctx, const struct host_list *list);
    /* It has not: a sentence. Not repeated while the runs fail for the same reason. */
    void (*failed)(void *ctx, const char *why);
    void (*closed)(void *ctx); /* after discovery_close() */
    void *ctx;
};

struct discovery {
    const char *path;
    char *const *envp;
    const struct rlimit *nofile;
    char *argv[2];
    struct discovery_hooks hooks;
    uv_loop_t *loop;
    struct spawner spawner;
    struct spawner_task task;
    uv_timer_t timer; /* to the next run, or to the limit of this one */
    uv_pipe_t output;
    uv_poll_t exit_watch;
    struct ddpi_buf text;
    char chunk[4096];
    char last_failure[256];
    struct ddp_error error; /* why the run could not be started; msg "": it was */
    pid_t pid;
    int pidfd, wait_status;
    unsigned parts; /* of a run that are under way: its start, its process, its output */
    unsigned handles;
    bool open, closing, late, flooded;
};

/* Start the first run. @nofile: its limit on open files. On failure, too, discovery_close()
 * follows. */
DDP_MUST_CHECK ddp_status discovery_open(struct discovery *discovery, const char *path,
                                         char *const *envp, const struct rlimit *nofile,
                                         uv_loop_t *loop, const struct discovery_hooks *hooks,
                                         struct ddp_error *err);

/* Kill a run that is under way; hooks.closed() follows, from the loop or at once. */
void discovery_close(struct discovery *discovery);

#endif
