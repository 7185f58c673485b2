/*
 * perf_program.h - where the programs are that a benchmark starts.
 */
#ifndef CMD_PERF_PROGRAM_H
#define CMD_PERF_PROGRAM_H

#include <stddef.h>

/* The path of the program @name: @given unless NULL; else next to this program; else in PATH. */
void perf_find_program(const char *name, const char *given, char *path, size_t size);

#endif
