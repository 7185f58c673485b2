/*
 * parts_run.h - the algorithm of gather, scatter and all_to_all between ranks that do not share
 * memory: each pair of ranks passes its part over the edge between them.
 */
#ifndef DDPI_PARTS_RUN_H
#define DDPI_PARTS_RUN_H

#include "run.h"

extern const struct ddpi_algorithm ddpi_parts_algorithm;

#endif
