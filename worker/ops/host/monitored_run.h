/*
 * monitored_run.h - the algorithms of ddp_monitored_barrier(): over the edges of pairs, and where
 * ranks share memory.
 */
#ifndef DDPI_MONITORED_RUN_H
#define DDPI_MONITORED_RUN_H

#include "run.h"

extern const struct ddpi_algorithm ddpi_monitored_algorithm, ddpi_monitored_meeting;

#endif
