/*
 * near_name.h - the name that a misspelled one may have meant.
 */
#ifndef CMD_NEAR_NAME_H
#define CMD_NEAR_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* What was written, and how far a name may be from it to be meant. */
struct near_name {
    const char *written;
    size_t len, least;
};

/* Whether @full begins with the first @len bytes of @name, in which '_' stands for '-'. */
bool name_begins(const char *full, const char *name, size_t len);

/* @written: @len bytes, which are not copied. A name is near if it begins with them, or is at most
 * two edits away, of which a short one has not got enough. */
struct near_name near_name_begin(const char *written, size_t len);

/* Whether @full is near, and nearer than all that were tried before. */
bool near_name_try(struct near_name *near, const char *full);

#endif
