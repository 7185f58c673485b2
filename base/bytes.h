/*
 * bytes.h - a pointer and a length: bytes with another owner. They may contain zeros.
 */
#ifndef DDPI_BYTES_H
#define DDPI_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ddpi_bytes {
    const void *data;
    size_t len;
};

static inline struct ddpi_bytes ddpi_bytes_of(const void *data, size_t len)
{
    return (struct ddpi_bytes){.data = data, .len = len};
}

static inline bool ddpi_bytes_equal(struct ddpi_bytes a, struct ddpi_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool ddpi_bytes_has_prefix(struct ddpi_bytes bytes, struct ddpi_bytes prefix)
{
    return bytes.len >= prefix.len &&
           (prefix.len == 0 || memcmp(bytes.data, prefix.data, prefix.len) == 0);
}

/* Returns less than, equal to or greater than 0, as memcmp(); a prefix sorts first. */
static inline int ddpi_bytes_compare(struct ddpi_bytes a, struct ddpi_bytes b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common > 0 ? memcmp(a.data, b.data, common) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* Digests (FNV-1a), for tables and comparisons. They do not withstand who seeks collisions. These
 * are those of no bytes. */
#define DDPI_DIGEST32_NONE UINT32_C(0x811c9dc5)
#define DDPI_DIGEST64_NONE UINT64_C(0xcbf29ce484222325)

/* The digest of those bytes that @digest is of, and @len more. */
static inline uint32_t ddpi_digest32(uint32_t digest, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        digest = (digest ^ ((const uint8_t *)bytes)[i]) * UINT32_C(0x01000193);
    return digest;
}

static inline uint64_t ddpi_digest64(uint64_t digest, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        digest = (digest ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    return digest;
}

#endif
