/*
 * library.h - loads a shared library that a program is not linked to, since few of its users need
 * it, and fills a table with the addresses of its functions.
 *
 * The name is a soname: the dynamic linker searches the same places as for a program that is linked
 * to the library. A library is never unloaded, as its threads, and data that it keeps of all
 * threads, need its code.
 */
#ifndef DDPI_LIBRARY_H
#define DDPI_LIBRARY_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>

struct ddpi_symbol {
    const char *name;
    size_t offset; /* of the pointer to it in the caller's table */
    bool optional; /* the pointer is NULL where the library lacks it */
};

/* What the sentences of ddpi_library_load() say of a library. */
struct ddpi_library {
    const char *soname;
    const char *user;    /* what needs it: "HTTP" */
    const char *product; /* goes after the soname: " of OpenSSL 3"; or "" */
    const char *newer;   /* what is needed if it lacks a function: "OpenSSL 3, but" */
    const char *package; /* of Debian */
};

/* Load @library and look up all of the @count @symbols. A failure leaves @table filled in part.
 * DDP_E_UNSUPPORTED: the library is missing, or lacks a function. */
DDP_MUST_CHECK ddp_status ddpi_library_load(const struct ddpi_library *library,
                                            const struct ddpi_symbol *symbols, size_t count,
                                            void *table, struct ddp_error *err);

/* The two steps of it, for those with sentences of their own. NULL: it cannot be loaded; dlerror()
 * says why. */
void *ddpi_library_open(const char *soname);

/* Returns the name of the first function that @library lacks and that is not optional; NULL: all
 * are there. */
const char *ddpi_library_find(void *library, const struct ddpi_symbol *symbols, size_t count,
                              void *table);

#endif
