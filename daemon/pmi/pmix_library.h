/*
 * pmix_library.h - finds the libpmix that MPI programs among the workers have loaded. Their server
 * runs with the same: what a client of one version asks, a server of another does not always serve.
 */
#ifndef DAEMON_PMIX_LIBRARY_H
#define DAEMON_PMIX_LIBRARY_H

#include <limits.h>
#include <stdbool.h>

/* The path of a libpmix that a process below this one has mapped. False: there is none, as when
 * Open MPI was built with a PMIx of its own. Reads /proc; takes some ms. */
bool pmix_library_of_ranks(char ret_path[PATH_MAX]);

#endif
