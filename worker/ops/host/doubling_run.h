/*
 * doubling_run.h - all_reduce by recursive doubling (doubling.h) over the edges of pairs: log2 N
 * hops where the ring has 2(N - 1), and all bytes in each. For small messages between ranks that do
 * not share memory.
 */
#ifndef DDPI_DOUBLING_RUN_H
#define DDPI_DOUBLING_RUN_H

#include "run.h"

extern const struct ddpi_algorithm ddpi_doubling_algorithm;

#endif
