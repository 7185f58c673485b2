/*
 * endpoint_mark.h - mark files by which ddprund claims an endpoint of this machine. A mark remains
 * when ddprund stops, so that a node started in the meantime does not take its place by accident.
 *
 * A mark is a small file, "store-HOST:PORT", in the runtime directory: RUNTIME_DIRECTORY, which a
 * service manager sets, or "ddprun" in XDG_RUNTIME_DIR, in /run for root, or in the user's state
 * directory. It is valid until the machine restarts, and in its network namespace only.
 */
#ifndef CMD_ENDPOINT_MARK_H
#define CMD_ENDPOINT_MARK_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ENDPOINT_MARK_PATH = 4096 };

/* Create a mark for @host, a numeric address. */
DDP_MUST_CHECK ddp_status endpoint_mark_leave(const char *host, uint16_t port,
                                              struct ddp_error *err);

/* Remove the mark. */
void endpoint_mark_remove(const char *host, uint16_t port);

/* Whether this user or the system has a valid mark for @host, or for all addresses of its family.
 * If @host stands for all addresses ("0.0.0.0", "::"), a mark for any counts. The path of the mark
 * goes to @ret_path. */
bool endpoint_mark_find(const char *host, uint16_t port, char ret_path[ENDPOINT_MARK_PATH]);

#endif
