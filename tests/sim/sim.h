/*
 * sim.h - a job on fake time: members (daemon/agent/member.h) whose workers are numbers, the round
 * machine (rendezvous/rounds/rounds.h) behind sessions with leases, and between them a network that
 * delays and is cut. One seed is one schedule; the same seed is the same schedule again.
 *
 * What is modelled of the store: a session lives for its lease from the last that came of it, or
 * until its agent's connection closes; of two connections of one member the newer counts, and what
 * is still under way on the older one is void; what a server stores outlives it.
 */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include "member.h"
#include "rounds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIM_NODES = 6,
    SIM_SESSIONS = 4096, /* in one schedule */
    SIM_LEASE_MS = 1000,
    SIM_KILL_MS = 25,      /* at most: from the signal to the last worker's end */
    SIM_SERVER = SIM_NODES /* as the owner of an event */
};

enum sim_kind {
    SIM_ARRIVAL, /* of a message */
    SIM_TICK,    /* the member, or the server, may have something to do */
    SIM_BEAT,
    SIM_RESET, /* the connection was lost, and the agent has noticed */
    SIM_STARTED,
    SIM_ENDED_WELL,
    SIM_FAILED,
    SIM_BROKEN_OFF, /* a worker fails because another node's have vanished */
    SIM_CLEARED,
    SIM_CHECKED, /* the node's check has ended */
    SIM_BOOT,    /* the node's agent, the server */
    SIM_FAULT
};

enum sim_word { SIM_SAY, SIM_HEARTBEAT, SIM_CLOSE, SIM_ACK, SIM_SEAT, SIM_UNKNOWN };

struct sim_message {
    enum sim_word word;
    uint64_t session; /* 0: a new one, please */
    uint64_t epoch;   /* of the connection */
    uint64_t sent_ms; /* by the member's clock; an ACK has that of what it answers */
    unsigned life;    /* of the server that gives the seat */
    struct ddp_round_member says;
    struct ddp_round_seat seat;
};

struct sim_event {
    uint64_t at_ms, seq;
    enum sim_kind kind;
    unsigned whose;
    uint64_t stamp; /* it is void if its owner's has changed */
    struct sim_message *message;
};

/* A direction between a node and the server. Order is kept. */
struct sim_link {
    uint64_t cut_until_ms;
    uint64_t last_arrival_ms;
};

struct sim;

struct sim_node {
    struct sim *sim;
    unsigned index;
    int drift; /* of its clock, in thousandths */
    struct sim_link up, down;
    uint64_t paused_until_ms;
    uint64_t exempt_until_ms; /* frozen, workers too, and just thawed: fencing is impossible in that
                                 time */
    /* The agent. */
    bool alive;
    uint64_t boots;
    struct member member;
    uint64_t session, epoch, unacked_ms;
    bool joined;                  /* has something to say, to whatever session */
    struct ddp_round_member says; /* as it would be sent now */
    /* Its workers. */
    uint64_t runs;     /* the generation; 0: none */
    unsigned life;     /* of the server that gave the last seat */
    unsigned run_life; /* the same of the seat that runs */
    uint32_t first_rank, nproc;
    uint64_t run_stamp;
    uint64_t cleared_at_ms; /* 0: not requested */
    bool failed_once;
    bool unfit;   /* its workers fail, and so does its check */
    bool unclear; /* its workers have failed for that, and the server does not know why yet */
};

struct sim_session {
    bool open;
    unsigned node;
    uint64_t epoch, until_ms;
    struct ddp_round_member says;
    struct ddp_round_seat seat;
    bool told;
    bool behind; /* its member is to be told again: the connection is another one */
};

struct sim_server {
    struct sim *sim;
    int drift;
    bool up;
    struct ddpi_rounds *rounds;
    struct ddpi_rounds_summary stored;
    bool has_stored;
    struct ddpi_rounds_wish wish;
    struct sim_session sessions[SIM_SESSIONS];
    uint64_t session_count;
    uint64_t generation;
    bool drained[SIM_NODES];
    struct ddpi_rounds_blame blamed[SIM_NODES]; /* 0 failures: nothing is held against it */
    unsigned life;                              /* how often it has lost what it had stored */
    bool forgetful;                             /* it has, and has begun nothing since, */
    bool reminded;                              /* but a member that knew of it has come */
};

struct sim {
    /* Until then members may run that the server cannot know after its restart: no member that has
     * come has named their generation. */
    uint64_t forgotten_until_ms;
    uint64_t seed, random, now_ms, seq;
    bool trace;
    struct sim_event *events; /* a heap */
    size_t event_count, event_size;
    unsigned node_count;
    struct ddp_round_terms terms;
    struct sim_node nodes[SIM_NODES];
    struct sim_server server;
    uint64_t faults_end_ms;
    bool left, drained, finishing; /* what may have ended the job */
    bool again;                    /* nodes come back to a job that is over */
    bool renewed;                  /* and one of those has begun, maybe without some */
    bool checks;                   /* nodes are checked, and may become unfit */
    bool quick;                    /* workers fail soon after their start, again and again, */
    bool broken_program;           /* and say that their program cannot run */
    unsigned quarantines;
    unsigned failures; /* of workers, to be judged as such */
    unsigned generations;
    char broken[256]; /* the promise that was broken; "": none */
};

/* sim.c: time, chance, events, the network */
uint64_t sim_random(struct sim *sim, uint64_t below);
void sim_trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_break(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_post(struct sim *sim, uint64_t after_ms, enum sim_kind kind, unsigned whose,
              uint64_t stamp);
void sim_send(struct sim *sim, unsigned node, bool up, const struct sim_message *message);
/* What a clock shows that goes @drift thousandths too fast, and how long it is until it will. */
uint64_t sim_clock(const struct sim *sim, int drift);
uint64_t sim_until(const struct sim *sim, int drift, uint64_t local_ms);
void sim_run(struct sim *sim, uint64_t until_ms);
void sim_finish(struct sim *sim);

/* sim_node.c */
/* The server will not learn from @node's check why its workers have failed. */
void sim_node_stays_unclear(struct sim_node *node);
void sim_node_event(struct sim_node *node, const struct sim_event *event);
void sim_node_boot(struct sim_node *node);
void sim_node_die(struct sim_node *node, bool with_guard);

/* sim_server.c */
void sim_server_event(struct sim_server *server, const struct sim_event *event);
void sim_server_die(struct sim_server *server, uint64_t down_ms, bool forgets);
void sim_server_want(struct sim_server *server);
void sim_server_drain(struct sim_server *server, unsigned node, bool drain);
void sim_server_admit(struct sim_server *server, unsigned node);

/* sim_faults.c */
void sim_fault(struct sim *sim);

#endif
