/*
 * idx.h - images with labels: Fashion-MNIST from its four IDX files, or generated.
 */
#ifndef EXAMPLES_IDX_H
#define EXAMPLES_IDX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { IMAGE_PIXELS = 28 * 28, IMAGE_CLASSES = 10 };

struct images {
    size_t count;
    uint8_t *pixels; /* count * IMAGE_PIXELS, 0 = black */
    uint8_t *labels; /* count, each below IMAGE_CLASSES */
};

/* Read DIR/PREFIX-images-idx3-ubyte.gz and DIR/PREFIX-labels-idx1-ubyte.gz, at most @limit images
 * (0 = all). Returns false with the reason in @why. */
bool images_read(const char *dir, const char *prefix, size_t limit, struct images *ret, char *why,
                 size_t why_size);

/* Generate images: each class is a random picture, each image its class's picture with noise. */
bool images_make_up(uint64_t seed, size_t count, struct images *ret);

void images_free(struct images *images);

/* A small random number generator (splitmix64), with the same numbers on every machine. */
uint64_t random_next(uint64_t *state);

#ifdef __cplusplus
}
#endif

#endif
