/*
 * secrecy.h - what programs that hold a token do about themselves.
 */
#ifndef CMD_SECRECY_H
#define CMD_SECRECY_H

#include <stdbool.h>

/* No core dump of this process is written, and others of this user may not look into its memory.
 * What it executes is free of that. */
void secrecy_hide_memory(void);

/* It runs as root, and not in a container, which it would be root of only. */
bool secrecy_is_root(void);

#endif
