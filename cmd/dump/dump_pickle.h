/*
 * dump_pickle.h - JSON as Python's pickle, protocol 2: PyTorch's analyser reads pickles alone.
 * Pure.
 */
#ifndef CMD_DUMP_PICKLE_H
#define CMD_DUMP_PICKLE_H

#include "buf.h"

#include <jansson.h>

/* Append @json to @out: objects as dicts, arrays as lists. False: memory is short. */
bool dump_pickle(const json_t *json, struct ddpi_buf *out);

#endif
