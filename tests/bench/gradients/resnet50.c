/*
 * resnet50.c - see resnet50.h.
 */
#include "resnet50.h"

enum { STAGES = 4, CLASSES = 1000, KERNEL = 9, FIRST_KERNEL = 49, COLOURS = 3, EXPANSION = 4 };

/* A convolution and the two parameters of the normalisation behind it. */
static size_t *add_convolution(size_t *at, size_t in, size_t out, size_t kernel)
{
    *at++ = in * out * kernel;
    *at++ = out;
    *at++ = out;
    return at;
}

void resnet50_counts(size_t counts[RESNET50_PARAMETERS])
{
    static const size_t widths[STAGES] = {64, 128, 256, 512}, blocks[STAGES] = {3, 4, 6, 3};
    size_t *at = add_convolution(counts, COLOURS, widths[0], FIRST_KERNEL), in = widths[0];
    for (size_t stage = 0; stage < STAGES; stage++)
        for (size_t block = 0; block < blocks[stage]; block++) {
            size_t width = widths[stage], out = width * EXPANSION;
            at = add_convolution(at, in, width, 1);
            at = add_convolution(at, width, width, KERNEL);
            at = add_convolution(at, width, out, 1);
            if (block == 0)
                at = add_convolution(at, in, out, 1);
            in = out;
        }
    *at++ = in * CLASSES;
    *at = CLASSES;
}
