/*
 * world.h - a store and a number of ranks as real processes, for tests of the collectives.
 *
 * The store's server runs in a process of its own; DDPRUN_TEST_WAY takes another way to meet. Each
 * rank is a fork of the test; it reports
 * through memory that all share, and fails by CHECK(), which ends the process with a line on
 * stderr. Every process dies with the test that started it.
 */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include "sample.h"
#include "world_kv.h"

#include <ddprun/comm.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

enum { WORLD_MAX = 8 };

/* What a rank tells the test. */
struct report {
    _Atomic uint32_t steps; /* of whatever the rank counts */
    atomic_bool joined;     /* ddp_comm_init() has returned to it */
    _Atomic uint64_t at_us; /* when it failed, CLOCK_MONOTONIC */
    ddp_status status;
    struct ddp_error error;
    uint64_t digest;
};

/* DDPRUN_TEST_WAY has the name of one in small letters. */
enum world_way {
    WORLD_STORE,  /* through ddprun's store */
    WORLD_KV,     /* through functions of the caller, on a table in shared memory */
    WORLD_TORCH,  /* as below torchrun, through a TCPStore of PyTorch: ddprun's store is one, too */
    WORLD_MASTER, /* the same without such a store: rank 0 listens at MASTER_PORT */
};

struct world {
    uint32_t nranks;
    bool tcp;
    uint32_t timeout_ms;      /* 0 = a minute */
    uint32_t init_timeout_ms; /* 0 = a minute */
    ddp_algorithm algorithm;
    const char *hosts; /* a letter for each rank: only those with the same one share memory; NULL:
                          all do */
    const char *name;
    uint32_t stage; /* whatever the body wants to know */

    char endpoint[64];      /* of the store; filled by world_open() */
    enum world_way way;     /* how the ranks meet; filled by world_open() */
    pid_t store;            /* 0 = not running */
    int port;               /* WORLD_MASTER: a socket that keeps the port of MASTER_PORT free */
    struct world_kv *table; /* WORLD_KV */
    struct ddp_kv kv;
    pid_t pids[WORLD_MAX]; /* 0 = not running */
    struct report *reports;
    _Atomic uint32_t *counter; /* shared by all ranks */
};

/* Runs in the process of @rank, which has joined. */
typedef void rank_body(struct world *world, uint32_t rank, ddp_comm *comm);

/* The process of the store: writes the endpoint to @out and serves until it is killed. */
_Noreturn void world_serve(int out);

/* Start the store, or what DDPRUN_TEST_WAY takes instead. */
void world_open(struct world *world);
void world_close(struct world *world);

/* Fork a process for @rank; true in that process. */
bool world_fork(struct world *world, uint32_t rank);

/* Start one rank; all of them; wait for them and expect exit status 0 (of those that run). */
void world_start_rank(struct world *world, uint32_t rank, rank_body *body);
void world_start(struct world *world, rank_body *body);
void world_join(struct world *world);
void world_join_rank(struct world *world, uint32_t rank);
void world_run(struct world *world, rank_body *body);

/* In the process of @rank: how its call ended, and when; or one more of whatever it counts. */
void world_report(struct world *world, uint32_t rank, ddp_status status,
                  const struct ddp_error *error);
void world_step(struct world *world, uint32_t rank);

/* In the process of a rank: a call has failed with @wanted, and its sentence has @words. */
void world_expect(ddp_status status, const struct ddp_error *error, ddp_status wanted,
                  const char *words);

/* Kill one and reap it. */
void world_kill_rank(struct world *world, uint32_t rank);

/* Wait until all ranks have joined: the death of one may end the init of others that still do. Of
 * ranks that are started by a function of this file. */
void world_await_joined(struct world *world);

/* Wait until @rank has reported @steps, or until all but @victim have reported when they failed;
 * the test fails if a rank ends before that. */
void world_await_steps(struct world *world, uint32_t rank, uint32_t steps);
void world_await_failures(struct world *world, uint32_t victim);

/* Whether rank 0 can be found by the others of the communicator "world"; and whether it has left
 * anything where they meet. */
bool world_has_host(const struct world *world);

struct ddp_comm_options world_options(const struct world *world, uint32_t rank);

uint64_t now_us(void);

/* In the process of a rank: numbers that count up from @first, to be freed; and those expected. */
int32_t *world_filled(size_t count, int32_t first);
void world_check_filled(const int32_t *values, size_t count, int32_t first);

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
            _Exit(1);                                                                     \
        }                                                                                 \
    } while (0)

/* For a call that must return DDP_OK; prints the sentence if not. */
#define CHECK_OK(call)                                                               \
    do {                                                                             \
        struct ddp_error err_ = {0};                                                 \
        struct ddp_error *err = &err_;                                               \
        if ((call) != DDP_OK) {                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, err_.msg); \
            _Exit(1);                                                                \
        }                                                                            \
        (void)err;                                                                   \
    } while (0)

#endif
