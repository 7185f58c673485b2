/*
 * endpoint_mark.h - whose an endpoint of this machine is: a mark that ddprund leaves where it
 * listens, and that outlives it, so that a node that is started while ddprund is down does not take
 * its place by accident.
 *
 * A mark is a small file, "store-HOST:PORT", in the runtime directory: RUNTIME_DIRECTORY, which a
 * service manager sets, or "ddprun" in XDG_RUNTIME_DIR, in /run for root, or in the user's state
 * directory. It counts until the machine is started again, and in its network namespace only.
 */
#ifndef CMD_ENDPOINT_MARK_H
#define CMD_ENDPOINT_MARK_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ENDPOINT_MARK_PATH = 4096 };

/* Leave one for @host, a numeric address. */
DDP_MUST_CHECK ddp_status endpoint_mark_leave(const char *host, uint16_t port,
                                              struct ddp_error *err);

/* Take it back. */
void endpoint_mark_remove(const char *host, uint16_t port);

/* Whether one of this user's or of the system's has been left for @host, or for all addresses of
 * its family; then *@ret_path is it. */
bool endpoint_mark_find(const char *host, uint16_t port, char ret_path[ENDPOINT_MARK_PATH]);

#endif
