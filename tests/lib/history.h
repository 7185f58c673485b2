/*
 * history.h - judges what clients of a store have seen: is there one order of all that happened
 * that explains every answer, and agrees with the clock of those who asked?
 *
 * The store's versions are that order, so there is nothing to search for: what a watch of all keys
 * has told, the log, must be whole, each write must be in it where its answer says, and each read
 * must fit between two of its lines. Only deletions have no version: no two clients may delete the
 * same key, so that those of a key come one after the other. Pure.
 */
#ifndef TESTS_HISTORY_H
#define TESTS_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One line of the log; lines[i] has the version i + 1. */
struct history_line {
    uint64_t version;
    unsigned key;
    bool deleted;
    uint64_t value; /* of a set: no two have the same for one key */
};

enum history_kind { HISTORY_SET, HISTORY_ADD, HISTORY_DELETE, HISTORY_READ };

enum history_outcome {
    HISTORY_DONE,
    HISTORY_NOTHING, /* it has certainly changed nothing, and seen nothing */
    HISTORY_UNKNOWN  /* it may have happened, or may still happen */
};

/* A compare-and-swap is a set if it has succeeded, and else a read. */
struct history_call {
    enum history_kind kind;
    enum history_outcome outcome;
    unsigned key;
    uint64_t begin_ns, end_ns;
    uint64_t value;    /* set: what was written; add: the sum that was answered */
    uint64_t version;  /* set: its version; read: of what it saw, 0 if there was nothing */
    uint64_t expected; /* set: the version that it had to replace, UINT64_MAX: any */
};

enum { HISTORY_KEYS = 16, HISTORY_WHY = 256 };

/* Sorts @calls. true, or false and what is wrong in @why. */
bool history_check(struct history_call *calls, size_t ncalls, const struct history_line *lines,
                   size_t nlines, char why[HISTORY_WHY]);

#endif
