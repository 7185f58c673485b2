/*
 * horovod_key.c - see horovod_key.h. Keeps nothing.
 */
#include "horovod_key.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The length of the name at @text; 0: there is none, or it is too long. */
static size_t name_len(const char *text)
{
    size_t len = 0;
    while (text[len] > ' ' && text[len] <= '~' && text[len] != '/')
        len++;
    return len <= HOROVOD_NAME_MAX ? len : 0;
}

bool horovod_key_make(const char *path, uint64_t generation, uint32_t node,
                      char ret[HOROVOD_KEY_SIZE])
{
    static const char local[] = "local_";
    char of_node[16] = "";
    if (path[0] != '/')
        return false;
    const char *scope = path + 1;
    size_t scope_len = name_len(scope);
    if (scope_len == 0 || scope[scope_len] != '/')
        return false;
    const char *name = scope + scope_len + 1;
    size_t len = name_len(name);
    if (len == 0 || name[len] != '\0')
        return false;
    if (strncmp(scope, local, sizeof local - 1) == 0)
        snprintf(of_node, sizeof of_node, "%" PRIu32 "/", node);
    snprintf(ret, HOROVOD_KEY_SIZE, "g%" PRIu64 "/horovod/%s%.*s/%.*s", generation, of_node,
             (int)scope_len, scope, (int)len, name);
    return true;
}
