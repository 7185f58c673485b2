/*
 * dump_text.h - a dump as text for a person.
 */
#ifndef CMD_DUMP_TEXT_H
#define CMD_DUMP_TEXT_H

#include "dump_set.h"

#include <stdio.h>

/* Print @set, which has been compared, to @out: for each communicator what is the matter with it,
 * and where each rank is. @job NULL: it has one node, and no name. */
void dump_text_print(const struct dump_set *set, const char *job, FILE *out);

#endif
