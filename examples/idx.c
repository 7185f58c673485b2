/*
 * idx.c - reads IDX files through zlib, or generates images.
 *
 * An IDX file is a big-endian header (magic number, one size per dimension) and then the bytes.
 */
#include "idx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAGIC_LABELS = 0x801, MAGIC_IMAGES = 0x803, MOST_IMAGES = 10 * 1000 * 1000 };

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool read_all(gzFile file, uint8_t *bytes, size_t len)
{
    while (len > 0) {
        unsigned piece = len < (1U << 30) ? (unsigned)len : 1U << 30;
        int got = gzread(file, bytes, piece);
        if (got <= 0)
            return false;
        bytes += got;
        len -= (size_t)got;
    }
    return true;
}

/* Read the items of @file, of @item_size bytes each. *@count limits their number (0: no limit), and
 * is set to the number read. Returns NULL if the file is not valid. */
static uint8_t *read_items(gzFile file, uint32_t magic, size_t item_size, size_t *count)
{
    uint8_t header[16];
    size_t header_len = magic == MAGIC_IMAGES ? 16 : 8;
    if (!read_all(file, header, header_len) || big_endian(header) != magic)
        return NULL;
    if (magic == MAGIC_IMAGES &&
        (size_t)big_endian(header + 8) * big_endian(header + 12) != item_size)
        return NULL;
    size_t there = big_endian(header + 4);
    if (there == 0 || there > MOST_IMAGES)
        return NULL;
    if (*count == 0 || *count > there)
        *count = there;
    uint8_t *items = malloc(*count * item_size);
    if (items != NULL && read_all(file, items, *count * item_size))
        return items;
    free(items);
    return NULL;
}

static uint8_t *read_file(const char *dir, const char *name, uint32_t magic, size_t item_size,
                          size_t *count, char *why, size_t why_size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    errno = 0;
    gzFile file = gzopen(path, "rb");
    if (file == NULL) {
        snprintf(why, why_size, "cannot open %s: %s", path,
                 errno != 0 ? strerror(errno) : "out of memory");
        return NULL;
    }
    uint8_t *items = read_items(file, magic, item_size, count);
    gzclose(file);
    if (items == NULL)
        snprintf(why, why_size, "%s is damaged, or not an IDX file of the expected kind", path);
    return items;
}

bool images_read(const char *dir, const char *prefix, size_t limit, struct images *ret, char *why,
                 size_t why_size)
{
    char name[256];
    struct images images = {.count = limit};
    size_t labels = limit;
    snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", prefix);
    images.pixels = read_file(dir, name, MAGIC_IMAGES, IMAGE_PIXELS, &images.count, why, why_size);
    if (images.pixels == NULL)
        return false;
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte.gz", prefix);
    images.labels = read_file(dir, name, MAGIC_LABELS, 1, &labels, why, why_size);
    bool good = images.labels != NULL;
    if (good && labels != images.count) {
        snprintf(why, why_size, "%s: %zu images but %zu labels", dir, images.count, labels);
        good = false;
    }
    for (size_t i = 0; good && i < labels; i++)
        if (images.labels[i] >= IMAGE_CLASSES) {
            snprintf(why, why_size, "%s/%s: label %u", dir, name, images.labels[i]);
            good = false;
        }
    if (good)
        *ret = images;
    else
        images_free(&images);
    return good;
}

uint64_t random_next(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebU;
    return mixed ^ mixed >> 31;
}

bool images_make_up(uint64_t seed, size_t count, struct images *ret)
{
    struct images images = {
        .count = count, .pixels = malloc(count * IMAGE_PIXELS), .labels = malloc(count)};
    if (images.pixels == NULL || images.labels == NULL) {
        images_free(&images);
        return false;
    }
    uint64_t class_state = 1; /* the classes do not depend on the seed, so tests fit training */
    uint8_t classes[IMAGE_CLASSES][IMAGE_PIXELS];
    for (size_t i = 0; i < IMAGE_CLASSES; i++)
        for (size_t j = 0; j < IMAGE_PIXELS; j++)
            classes[i][j] = random_next(&class_state) % 4 == 0 ? 160 : 40;
    for (size_t i = 0; i < count; i++) {
        images.labels[i] = (uint8_t)(random_next(&seed) % IMAGE_CLASSES);
        for (size_t j = 0; j < IMAGE_PIXELS; j++) {
            uint64_t noise = random_next(&seed);
            uint8_t pixel = classes[images.labels[i]][j];
            images.pixels[i * IMAGE_PIXELS + j] = noise % 3 == 0 ? (uint8_t)(noise >> 32) : pixel;
        }
    }
    *ret = images;
    return true;
}

void images_free(struct images *images)
{
    free(images->pixels);
    free(images->labels);
    *images = (struct images){0};
}
