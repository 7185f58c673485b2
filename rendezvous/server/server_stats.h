/*
 * server_stats.h - the counters of a server.
 */
#ifndef DDPI_SERVER_STATS_H
#define DDPI_SERVER_STATS_H

#include "buf.h"

#include <stdint.h>

struct ddpi_server;

/* X(name): what is counted. From connections on it is what there is now, the others only grow. */
#define DDPI_SERVER_STATS(X)                                                              \
    X(accepted)   /* connections */                                                       \
    X(refused)    /* connections: too many, or no file descriptor or memory for them */   \
    X(displaced)  /* half-open connections that gave way to newer ones */                 \
    X(throttled)  /* connections from addresses whose connections fail too often */       \
    X(dismissed)  /* connections closed because the peer broke a rule or a deadline */    \
    X(denied)     /* connections of peers who may not, or could not prove who they are */ \
    X(overloaded) /* connections closed for what all of them have in buffers */           \
    X(requests)                                                                           \
    X(limited)    /* requests that would have exceeded a limit of the core, */            \
    X(over_share) /* ... of these, the share of their job */                              \
    X(reclaimed)  /* keys that jobs had left behind, removed when room was short */       \
    X(connections)                                                                        \
    X(half_open) /* of these: their peers have not been admitted */                       \
    X(input)     /* bytes in buffers, of requests that are not complete */                \
    X(output)    /* the same, of replies that have not left */                            \
    X(keys)                                                                               \
    X(bytes)                                                                              \
    X(reserved) /* of these, those of keys and sessions of rounds */                      \
    X(waits)    /* requests that wait */                                                  \
    X(working)  /* requests that cost much, and are not done yet */                       \
    X(watches)                                                                            \
    X(sessions)                                                                           \
    X(jobs)    /* that have rounds, */                                                    \
    X(members) /* and these */

struct ddpi_server_stats {
#define DDPI_SERVER_STAT(name) uint64_t name;
    DDPI_SERVER_STATS(DDPI_SERVER_STAT)
#undef DDPI_SERVER_STAT
};

struct ddpi_server_stats ddpi_server_stats(const struct ddpi_server *server);

/* Append a line for each of DDPI_SERVER_STATS, then lines of what jobs use: a name, a blank, a
 * number. With @job, of that job only; else of at most 100. What finds no room is left out. */
void ddpi_server_stats_format(const struct ddpi_server *server, const char *job,
                              struct ddpi_buf *text);

#endif
