/*
 * auth_option.h - options of both ddprun and ddprund that select which clients must authenticate
 * to their store.
 */
#ifndef CMD_AUTH_OPTION_H
#define CMD_AUTH_OPTION_H

#include "options.h"

/* clang-format off */
/* Rows of an option table. @variable is the prefix of their variables; @auth_at is the offset of an
 * enum ddpi_server_auth (server.h) in the order of these words, @trust_at of a bool. */
#define AUTH_OPTIONS(variable, group, auth_at, trust_at)                                          \
    {"auth", 0, "default|always|never", variable "_AUTH", "default", group,                       \
     "which clients must authenticate with the token: default, those from other machines and of " \
     "other users of this machine; always, all; never, none",                                     \
     option_choice, auth_at, 0, 0},                                                               \
    {"no-auth", 0, NULL, variable "_NO_AUTH", NULL, group,                                        \
     "disable authentication: anyone who can reach the store can read and change it",             \
     option_no_auth, auth_at, 0, 0},                                                              \
    {"trust-local-users", 0, NULL, variable "_TRUST_LOCAL_USERS", NULL, group,                    \
     "treat other users of this machine as the store's own user on loopback; without this they "  \
     "need the token, and their TCPStore clients, which have none, are refused",                  \
     option_switch, trust_at, 0, 0}
/* clang-format on */

/* A switch, equivalent to --auth=never. */
ddp_status option_no_auth(const struct option *, const char *, void *, struct ddp_error *);

#endif
