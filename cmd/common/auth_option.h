/*
 * auth_option.h - --auth and --no-auth, which ddprun and ddprund have in common: who has to prove
 * to a store that he has its token.
 */
#ifndef CMD_AUTH_OPTION_H
#define CMD_AUTH_OPTION_H

#include "options.h"

/* Into an enum ddpi_server_auth (server.h). */
ddp_status auth_option(const struct option *, const char *, void *, struct ddp_error *);
/* A switch that stands for --auth=never. */
ddp_status auth_option_off(const struct option *, const char *, void *, struct ddp_error *);

#define AUTH_OPTION_HELP                                                                         \
    "which clients must prove that they have the token: default, those from other machines "     \
    "and of other users of this one; always, all; never, none, so that anyone who can reach an " \
    "address can read and change all keys"

#define TRUST_LOCAL_USERS_HELP                                                                 \
    "let other users of this machine in on loopback as if they were the server's own user; "   \
    "otherwise they need a token, and their TCPStore clients, who cannot prove anything, are " \
    "refused"

#endif
