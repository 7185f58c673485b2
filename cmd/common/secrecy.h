/*
 * secrecy.h - how programs that hold a token protect themselves.
 */
#ifndef CMD_SECRECY_H
#define CMD_SECRECY_H

#include <stdbool.h>

/* Disable core dumps of this process, and access to its memory by other processes of this user.
 * Does not apply to programs that it executes. */
void secrecy_hide_memory(void);

/* Whether the process runs as root outside of a container. */
bool secrecy_is_root(void);

#endif
