/*
 * safe_dir.h - directories by descriptor, reached in a way that no other user can bend.
 *
 * Who may write to a directory may put a link in the place of what was there a moment ago. So each
 * step of a path is taken from the descriptor of the one before, and a directory is passed only if
 * it belongs to this user or to root, and not everybody may write to it or it is sticky, as /tmp
 * is: there only its owner can replace what is another's. A link is followed if it belongs to this
 * user or to root.
 */
#ifndef DAEMON_SAFE_DIR_H
#define DAEMON_SAFE_DIR_H

#include <ddprun/status.h>
#include <stdbool.h>

/* Open @path; with @make, what is missing of it is made (mode 0777 but for the umask). *@ret_fd
 * serves the calls that end in "at", and is close-on-exec. DDP_E_DENIED: another user could bend
 * the path; the sentence names where, and says what to do. */
DDP_MUST_CHECK ddp_status safe_dir_open(const char *path, bool make, int *ret_fd,
                                        struct ddp_error *err);

/* Make a directory of mode 0700 in @fd, which nobody else has opened or made: @name ends in XXXXXX,
 * which is filled in. Returns its descriptor, or -1 with errno. */
int safe_dir_make_unique(int fd, char *name);

/* Open the directory @name in @fd, and make it (mode 0700) if it is missing; -1 with errno: it is
 * something else, or a link. */
int safe_dir_make(int fd, const char *name);

#endif
