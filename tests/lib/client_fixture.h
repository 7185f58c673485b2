/*
 * client_fixture.h - the client core with a scripted server, for its test programs.
 */
#ifndef TESTS_CLIENT_FIXTURE_H
#define TESTS_CLIENT_FIXTURE_H

#include "client_core.h"

enum { REQUESTS_MAX = 16, TOLD_MAX = 64, NOW = 1000, SOON_MS = 500 };

struct told {
    uint64_t watch;
    uint64_t version;
    int64_t number;
    char value[16];
};

/* A client that proves nothing. */
extern const struct ddpi_greet_terms nobody_in_particular;

extern struct ddpi_client client;
extern struct ddpi_client_request requests[REQUESTS_MAX];
extern ddp_status results[REQUESTS_MAX]; /* DDP_E_INTERNAL: none */
extern char texts[REQUESTS_MAX][256];
extern unsigned answers;
extern struct told told[TOLD_MAX];
extern size_t ntold;
extern uint32_t jitter;
extern struct ddpi_buf wire; /* from the server */

#define REPLY(...)  put_reply(&(const struct ddpi_message){__VA_ARGS__})
#define ASK(i, ...) ask(i, &(const struct ddpi_message){__VA_ARGS__}, SOON_MS)
#define KEY(text)   .key = {text, sizeof text - 1}

void client_setup(void);
void client_teardown(void);
void put_welcome(uint64_t incarnation);
void put_reply(const struct ddpi_message *reply);
/* The first @len bytes of what the server has to say. */
void deliver_some(size_t len, uint64_t now_ms);
void deliver(void);
void lose(uint64_t now_ms);
/* Everything in the output leaves; what was asked must be @op. */
void expect_asked(enum ddpi_op op, struct ddpi_message *ret);
void expect_nothing_asked(void);
void greet(uint64_t incarnation);
struct ddpi_client_request *ask(size_t i, const struct ddpi_message *message, uint32_t timeout_ms);
/* A watch of everything that has begun at version 5. */
uint64_t begin_watch(void);
void change(uint64_t watch, uint64_t version);

#endif
