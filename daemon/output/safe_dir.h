/*
 * safe_dir.h - opens directories by paths that no other user can redirect.
 *
 * A user with write access to a directory can replace an entry by a link at any moment. So each
 * step of a path starts from the descriptor of the one before. A directory is passed only if it
 * belongs to this user or to root, and either is not writable by all or is sticky, as /tmp is. A
 * link is followed only if it belongs to this user or to root.
 */
#ifndef DAEMON_SAFE_DIR_H
#define DAEMON_SAFE_DIR_H

#include <ddprun/status.h>
#include <stdbool.h>

enum { SAFE_DIR_LETTERS = 6 };

/* Open @path; @make: make missing directories (mode 0777 less the umask). *@ret_fd is for calls
 * such as openat(), and is close-on-exec. DDP_E_DENIED: another user could redirect the path; @err
 * says where, and what to do. */
DDP_MUST_CHECK ddp_status safe_dir_open(const char *path, bool make, int *ret_fd,
                                        struct ddp_error *err);

/* Fill @text with random letters and a final zero byte. They are not secret. */
void safe_dir_letters(char text[static SAFE_DIR_LETTERS + 1]);

/* Make a new directory of mode 0700 in @fd. @name ends in XXXXXX, which is filled in. Returns its
 * descriptor, or -1 with errno. */
int safe_dir_make_unique(int fd, char *name);

/* Open the directory @name in @fd, and make it (mode 0700) if it is missing. Returns -1 with errno
 * if it is no directory or a link. */
int safe_dir_make(int fd, const char *name);

#endif
