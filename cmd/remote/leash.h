/*
 * leash.h - an agent that a launcher on another host has started: its standard input is a leash
 * (leash_text.h). It brings the token and the environment, then signals; at its end the launcher is
 * gone, and the job ends.
 */
#ifndef CMD_LEASH_H
#define CMD_LEASH_H

#include "buf.h"

#include <ddprun/status.h>
#include <stdbool.h>
#include <uv.h>

struct leash {
    int fd;       /* -1: this agent is on no leash */
    int token_fd; /* HEAD_TOKEN_FD; -1: no token has come */
    int told;     /* the last signal that has come by it; 0: none, or it has been handled */
    struct ddpi_buf input;
    uv_poll_t watch;
    void (*gone)(void *ctx); /* the launcher is */
    void *ctx;
};

/* Whether the command line is one of a launcher. */
bool leash_is_given(int argc, char *const *argv);

/*
 * Take standard input for the leash, with /dev/null in its place, and read from it up to "go": set
 * the environment, and keep the token at HEAD_TOKEN_FD. Call it before anything reads the
 * environment. Waits at most a minute.
 */
DDP_MUST_CHECK ddp_status leash_take(struct leash *leash, struct ddp_error *err);

/* In the guard of the agent, which needs neither: close the leash and the token, and wipe the
 * input. */
void leash_forget(struct leash *leash);

/* Tell the launcher that this agent runs. */
void leash_say_hello(void);

/* From now on send this process the signals that come, and call @gone once at the end. */
DDP_MUST_CHECK ddp_status leash_watch(struct leash *leash, uv_loop_t *loop, void (*gone)(void *ctx),
                                      void *ctx, struct ddp_error *err);

/* Does nothing to one that is not watched. The handle closes while the loop turns. */
void leash_close(struct leash *leash);

/* Free what is left of the input; does nothing to one that was not taken. */
void leash_finish(struct leash *leash);

#endif
