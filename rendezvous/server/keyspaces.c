/*
 * keyspaces.c - see keyspaces.h. Owns nothing.
 */
#include "keyspaces.h"

#include "parse.h"
#include "proof.h"

#include <stdio.h>
#include <string.h>

struct search {
    size_t skip;   /* length of the prefix in front of the number */
    size_t looked; /* keys */
    bool found;
    char prefix[sizeof "job//g/" + DDPI_JOB_MAX + 24]; /* of the keyspace that was found last */
};

/* The first key in the keyspace of a generation. */
static bool find_keyspace(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct search *search = ctx;
    char digits[24];
    int64_t number;
    (void)value;
    search->looked++;
    const char *at = (const char *)key.data + search->skip;
    const char *slash = memchr(at, '/', key.len - search->skip);
    size_t len = slash != NULL ? (size_t)(slash - at) : 0;
    if (len == 0 || len >= sizeof digits || memchr(at, '\0', len) != NULL)
        return true;
    memcpy(digits, at, len);
    digits[len] = '\0';
    if (ddpi_parse_int(digits, 0, INT64_MAX, &number, NULL) != DDP_OK)
        return true;
    memcpy(search->prefix + search->skip, digits, len);
    memcpy(search->prefix + search->skip + len, "/", 2);
    search->found = true;
    return false;
}

size_t ddpi_keyspaces_drop(struct ddpi_kv *kv, const char *job)
{
    struct search search = {.looked = 0};
    search.skip = (size_t)snprintf(search.prefix, sizeof search.prefix, "job/%s/g", job);
    do {
        struct ddpi_bytes from = ddpi_bytes_of(search.prefix, strlen(search.prefix));
        search.found = false;
        ddpi_kv_each_from(kv, from, ddpi_bytes_of(search.prefix, search.skip), find_keyspace,
                          &search);
        if (search.found)
            ddpi_kv_detach(kv, ddpi_bytes_of(search.prefix, strlen(search.prefix)));
    } while (search.found);
    return search.looked;
}
