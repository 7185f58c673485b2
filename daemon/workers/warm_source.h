/*
 * warm_source.h - the text of warm_python.py, which the build puts into the program.
 */
#ifndef DAEMON_WARM_SOURCE_H
#define DAEMON_WARM_SOURCE_H

#include <stddef.h>

extern const char warm_source[]; /* ASCII; '\0' follows */
extern const size_t warm_source_len;

#endif
