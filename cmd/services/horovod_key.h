/*
 * horovod_key.h - the key of the store for a path that a Horovod worker names. Pure.
 */
#ifndef CMD_HOROVOD_KEY_H
#define CMD_HOROVOD_KEY_H

#include <stdbool.h>
#include <stdint.h>

enum { HOROVOD_NAME_MAX = 255, HOROVOD_KEY_SIZE = 640 };

/*
 * Write the key for "/SCOPE/NAME" in @generation. Both parts are printable ASCII without blanks and
 * slashes, at most HOROVOD_NAME_MAX bytes each; false: @path is something else.
 *
 * A scope "local_HOST" belongs to node @node alone: two nodes of a job may have the same host name.
 */
bool horovod_key_make(const char *path, uint64_t generation, uint32_t node,
                      char ret[HOROVOD_KEY_SIZE]);

#endif
