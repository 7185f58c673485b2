/*
 * resnet50.h - the parameters of ResNet-50 (He et al., "Deep Residual Learning for Image
 * Recognition", 2015): the usual example of a model of many small and some large gradients. Pure.
 */
#ifndef TESTS_BENCH_RESNET50_H
#define TESTS_BENCH_RESNET50_H

#include <stddef.h>

enum { RESNET50_PARAMETERS = 161 };

/* Elements of each, in the order of registration: 25,557,032 together. */
void resnet50_counts(size_t counts[RESNET50_PARAMETERS]);

#endif
