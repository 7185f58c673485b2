/*
 * template_text.h - the files in templates/, which the build puts into the program.
 */
#ifndef CMD_TEMPLATE_TEXT_H
#define CMD_TEMPLATE_TEXT_H

#include <stddef.h>

/* The last row has no name. */
extern const struct template_text {
    const char *name;
    const char *text;
} template_texts[];

#endif
