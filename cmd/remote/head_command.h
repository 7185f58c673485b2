/*
 * head_command.h - the command that starts the agent of a host. Pure.
 *
 *     another host: LAUNCHER [USER@]HOST "cd FOLDER && exec DDPRUN --leash OPTIONS -- PROGRAM ..."
 *     this one:     DDPRUN --leash OPTIONS -- PROGRAM ...
 *
 * OPTIONS are those that the user gave, then those that the head decides: the last one counts.
 */
#ifndef CMD_HEAD_COMMAND_H
#define CMD_HEAD_COMMAND_H

#include "host_list.h"

#include <stdbool.h>

struct head_command {
    char **launcher;       /* NULL-terminated; the first is a path */
    const char *this_host; /* a host of this name needs no launcher; "localhost" never does */
    const char *folder;    /* the current directory */
    const char *program;   /* the path of ddprun, the same on all hosts */
    char *const *options;  /* as given, NULL-terminated */
    char *const *operands; /* the program of the workers and its arguments, NULL-terminated */
    const char *job;
    const char *template; /* prefix of the workers' lines; NULL: the user gave one */
    bool has_token;
    uint32_t min_nodes, max_nodes;
};

enum { HEAD_TOKEN_FD = 20 }; /* in which the agent keeps the token that its leash brings */

/* What to say if head_command_make() has none. */
#define HEAD_COMMAND_TOO_LONG                                                                      \
    "its command has more than 128 KiB, which Linux does not start, or memory is short; put long " \
    "arguments into a file"

bool head_command_is_local(const struct head_command *command, const struct host_entry *host);

/* The words for @host, which is node @rank, with the store at @store ("host:port"): one allocation,
 * for ddpi_free(). NULL: memory is short, or the command is longer than a command can be. */
char **head_command_make(const struct head_command *command, const struct host_entry *host,
                         uint32_t rank, const char *store);

#endif
