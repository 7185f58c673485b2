/*
 * loops_plain.c - the loops in plain C, for any processor. The others are compared with these.
 * Pure.
 */
#define DDPI_LOOPS      ddpi_loops_plain
#define DDPI_LOOPS_NAME "plain"
#include "loops_impl.h"
