/*
 * horovod.c - fuzzes the paths that Horovod's workers name. A key lies below the prefix of its
 * generation, whatever the path is, and two scopes never share one; no key has a character that
 * cannot be printed.
 */
#include "horovod_key.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char prefix[] = "g3/horovod/", of_node[] = "5/";
    char *path = fuzz_text(data, size);
    char key[HOROVOD_KEY_SIZE];
    if (path != NULL && horovod_key_make(path, 3, 5, key)) {
        bool local = strncmp(path, "/local_", 7) == 0;
        HOLDS(strncmp(key, prefix, sizeof prefix - 1) == 0);
        const char *rest = key + sizeof prefix - 1;
        if (local) {
            HOLDS(strncmp(rest, of_node, sizeof of_node - 1) == 0);
            rest += sizeof of_node - 1;
        }
        HOLDS(strcmp(rest, path + 1) == 0);
        const char *slash = strchr(rest, '/');
        HOLDS(slash != NULL && slash > rest && slash[1] != '\0' && strchr(slash + 1, '/') == NULL);
        for (const char *at = key; *at != '\0'; at++)
            HOLDS(*at > ' ' && *at <= '~');
    }
    free(path);
    return 0;
}
