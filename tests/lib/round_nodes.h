/*
 * round_nodes.h - a server and members of one job, each with a connection of its own, on one
 * loop. Members start and stop nothing: they say at once what an agent would.
 */
#ifndef TESTS_ROUND_NODES_H
#define TESTS_ROUND_NODES_H

#include "check_main.h"
#include "raw.h"
#include "server.h"

#include <ddprun/round.h>
#include <ddprun/store.h>

/* LEASE_MS is for tests in which nothing but its end tells that a member is lost. The others have
 * LONG_LEASE_MS: whatever keeps them from running for a while does not end it. */
enum { MEMBERS = 8, LEASE_MS = 5000, LONG_LEASE_MS = 600000, LONG_MS = 60000 };

struct node {
    ddp_round *round;
    struct ddp_round_member says;
    struct ddp_round_seat seat;
    struct ddp_round_seat stop; /* the last order to stop */
    unsigned seats, stops, losses, connects;
    uint64_t contact_ms;
    bool deaf; /* does not do what it is told */
    bool left, closed;
};

extern uv_loop_t loop;
extern struct ddpi_server *server;
extern char endpoint[64], state_file[64];
extern char log_text[16384]; /* of the server, without debugging */
extern struct node nodes[MEMBERS];
extern struct ddp_error why;
extern uint32_t lease_ms;                       /* of nodes that join from now on */
extern uint16_t port;                           /* of the server, now and when it starts again */
extern const struct ddp_round_terms two;        /* nodes, no more and no less */
extern const struct ddp_round_terms elastic;    /* 1 to 4 nodes, who do not wait for long */
extern const struct ddp_round_terms shrinking;  /* 2 nodes, who begin together; 1 may go on */
extern const struct ddp_round_hooks node_hooks; /* but for the data, which is the node */

#define OK(call) ck_assert_msg((call) == DDP_OK, "%s", why.msg)

#define UNTIL(condition)                \
    do {                                \
        while (!(condition))            \
            uv_run(&loop, UV_RUN_ONCE); \
    } while (0)

/* A checked fixture; the server is in memory. */
void setup(void);
void teardown(void);

void assert_logged(const char *words);
/* With @durable, in state_file. */
void start_server(bool durable);
void stop_server(void);

/* As people would, through a client of their own. The answer's value, or its first key, is in
 * answer_text; the last session that they opened is people_session. */
extern char answer_text[1024];
extern struct ddp_store_session people_session;
ddp_status ask(struct ddp_store_request request);
void set_key(const char *key, const char *value);
const char *get_key(const char *key); /* NULL: there is none */
bool listed(const char *prefix);
/* Everything that the server has sent so far has been read: a process that dies with unread bytes
 * sends a RST. */
bool reads_all(void);

struct node *join(size_t i, const char *name, struct ddp_round_terms terms);
void publish(struct node *node);
void say(struct node *node, enum ddp_round_phase phase, uint64_t generation);
void on_left(void *data);
void leave(struct node *node);
void close_node(struct node *node);
/* The first @count nodes are seated in @generation. */
bool runs(uint64_t generation, size_t count);

#endif
