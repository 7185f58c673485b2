/*
 * monitored_run.h - the algorithm of ddp_monitored_barrier() over the edges of pairs.
 */
#ifndef DDPI_MONITORED_RUN_H
#define DDPI_MONITORED_RUN_H

#include "run.h"

extern const struct ddpi_algorithm ddpi_monitored_algorithm;

#endif
