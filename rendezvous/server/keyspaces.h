/*
 * keyspaces.h - the keys of the generations of a job: "job/NAME/gN/..." for generation N.
 */
#ifndef DDPI_KEYSPACES_H
#define DDPI_KEYSPACES_H

#include "kv.h"

/* Delete the keyspaces of all generations of @job: of earlier ones, and what clients may have
 * written to those of later ones. Returns how many keys were looked at, which clients decide: the
 * first of each keyspace, and other keys "job/NAME/g..." once. */
size_t ddpi_keyspaces_drop(struct ddpi_kv *kv, const char *job);

#endif
