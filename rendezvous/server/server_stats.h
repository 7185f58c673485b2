/*
 * server_stats.h - the counters of a server.
 */
#ifndef DDPI_SERVER_STATS_H
#define DDPI_SERVER_STATS_H

#include "buf.h"

#include <stdint.h>

struct ddpi_server;

/* X(name). Those before `connections` only grow; the others are current values. */
#define DDPI_SERVER_STATS(X)                                                                  \
    X(accepted)   /* connections */                                                           \
    X(refused)    /* connections, for lack of room, file descriptors or memory */             \
    X(displaced)  /* half-open connections closed to make room for newer ones */              \
    X(throttled)  /* connections from addresses whose connections fail too often */           \
    X(dismissed)  /* connections closed because the peer broke a rule or missed a deadline */ \
    X(denied)     /* connections that failed to authenticate or are not allowed */            \
    X(overloaded) /* connections closed because the buffers of all reached a limit */         \
    X(requests)                                                                               \
    X(limited)    /* requests refused because of a limit of the core, */                      \
    X(over_share) /* ... of these, the share of their job */                                  \
    X(reclaimed)  /* keys of ended jobs, deleted when room was short */                       \
    X(connections)                                                                            \
    X(half_open) /* of these, not admitted yet */                                             \
    X(input)     /* bytes in buffers, of incomplete requests */                               \
    X(output)    /* the same, of replies that have not been sent */                           \
    X(keys)                                                                                   \
    X(bytes)                                                                                  \
    X(reserved) /* of these, of keys and sessions of rounds */                                \
    X(waits)    /* waiting requests */                                                        \
    X(working)  /* long requests in progress */                                               \
    X(watches)                                                                                \
    X(sessions)                                                                               \
    X(jobs)    /* with rounds, */                                                             \
    X(members) /* and their members */

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
