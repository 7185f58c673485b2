/*
 * config.h - the configuration of a communicator: the caller's options, and the environment for
 * members that are not set.
 */
#ifndef DDPI_CONFIG_H
#define DDPI_CONFIG_H

#include "parse.h"
#include "selection.h"

#include <ddprun/comm.h>

enum { DDPI_WORLD_MAX = 65536, DDPI_DEFAULT_TIMEOUT_MS = 600000 };

/* How the ranks meet. */
enum ddpi_way {
    DDPI_WAY_NONE, /* a world of one */
    DDPI_WAY_STORE,
    DDPI_WAY_KV,
    DDPI_WAY_ID,
    DDPI_WAY_TORCH_STORE, /* a TCPStore of PyTorch at MASTER_ADDR, such as torchrun's */
    DDPI_WAY_MASTER,      /* rank 0 listens at MASTER_ADDR */
};

/* What the pointers point to belongs to the caller's options or to the environment. */
struct ddpi_config {
    enum ddpi_way way;
    const struct ddp_kv *kv;        /* of the caller; NULL: another way */
    struct ddp_unique_id unique_id; /* of DDPI_WAY_ID */
    const char *interfaces;         /* which a rank listens on, a list (own_address.h); NULL: any */
    const char *local_address;      /* at which other ranks reach this one; NULL: not set */
    struct ddpi_endpoint master;    /* MASTER_ADDR and MASTER_PORT */
    struct ddpi_endpoint server;    /* of DDPI_WAY_KV: of its store; host "": not known */
    const char *store_endpoint;     /* NULL: another way */
    const char *store_prefix;
    int token_fd;    /* holds the token for the store; 0: none */
    int rank_key_fd; /* holds the key of the ranks (rank_key.h); 0: none */
    bool tls;        /* encrypt connections to a store on another machine */
    bool tls_ranks;  /* and to ranks on other machines */
    const char *name;
    uint32_t rank;
    uint32_t world_size;
    uint32_t init_timeout_ms;
    uint32_t timeout_ms;
    bool force_tcp;
    uint8_t sockets;     /* for data, of an edge over TCP */
    const char *host_id; /* ranks with different ones share no memory; NULL: not set */
    ddp_algorithm algorithm;
    struct ddpi_selection_table table; /* of DDP_ALGORITHM_TABLE */
    int life_fd;                       /* of life_slot.h; -1: none */
    uint32_t life_slot;
    int flight_fd; /* of flight_file.h; -1: none */
};

/* Look up a variable: getenv(), or a function of a test. NULL: not set. */
typedef const char *ddpi_getenv(const char *name);
ddpi_getenv ddpi_config_getenv;

/* Set the environment of this process, forked to be @rank, so that ddp_comm_init() joins by @id. */
ddp_status ddpi_config_enter_rank(uint32_t rank, uint32_t world_size,
                                  const struct ddp_unique_id *id, struct ddp_error *err);

/* The interfaces that a rank listens on; NULL: not set. */
const char *ddpi_config_interfaces(ddpi_getenv *env);

/* The file for the timeline of rank 0; NULL: none. */
const char *ddpi_config_timeline(ddpi_getenv *env);

/* @options may be NULL. DDP_E_INVALID names the option or the variable. */
ddp_status ddpi_config_load(const struct ddp_comm_options *options, ddpi_getenv *env,
                            struct ddpi_config *ret_config, struct ddp_error *err);

#endif
