/*
 * cutter.h - a TCP proxy in a thread that cuts each connection after a number of bytes that a seed
 * decides.
 */
#ifndef TESTS_CUTTER_H
#define TESTS_CUTTER_H

#include <stdint.h>

struct cutter;

/* In front of 127.0.0.1:@port. */
struct cutter *cutter_start(uint16_t port, uint64_t seed);
uint16_t cutter_port(const struct cutter *cutter);
/* Connections it has cut so far. */
unsigned cutter_cuts(struct cutter *cutter);
/* From now on it cuts nothing. */
void cutter_rest(struct cutter *cutter);
void cutter_stop(struct cutter *cutter);

#endif
