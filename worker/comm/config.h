/*
 * config.h - what a communicator is made from: the caller's options, and the environment where
 * they leave something open.
 */
#ifndef DDPI_CONFIG_H
#define DDPI_CONFIG_H

#include "parse.h"

#include <ddprun/comm.h>

enum { DDPI_WORLD_MAX = 65536, DDPI_DEFAULT_TIMEOUT_MS = 600000 };

/* The strings belong to the caller's options or to the environment. */
struct ddpi_config {
    const char *store_endpoint; /* NULL in a world of one */
    const char *store_prefix;
    int token_fd;    /* what it is proven with to the store; 0: nothing */
    int rank_key_fd; /* what ranks prove themselves with to each other (rank_key.h); 0: nothing */
    bool tls;        /* nothing is said in clear to a store elsewhere */
    bool tls_ranks;  /* nor to ranks elsewhere */
    const char *name;
    uint32_t rank;
    uint32_t world_size;
    uint32_t init_timeout_ms;
    uint32_t timeout_ms;
    bool force_tcp;
    ddp_algorithm algorithm;
    int life_fd; /* of life_slot.h; -1: none */
    uint32_t life_slot;
};

/* Looks a variable up: getenv(), or a test's own. NULL = not set. */
typedef const char *ddpi_getenv(const char *name);
ddpi_getenv ddpi_config_getenv;

/* @options may be NULL. DDP_E_INVALID names the option or the variable. */
ddp_status ddpi_config_load(const struct ddp_comm_options *options, ddpi_getenv *env,
                            struct ddpi_config *ret_config, struct ddp_error *err);

#endif
