/*
 * kv_fixture.h - the key-value core with fake time and recorded replies, for its test programs.
 */
#ifndef TESTS_KV_FIXTURE_H
#define TESTS_KV_FIXTURE_H

#include "kv.h"

enum { CLIENTS = 4, REPLIES_MAX = 4096, TEXT_MAX = 600 };

struct got {
    int client;
    uint64_t id, version;
    ddp_status status;
    int64_t number;
    char value[64], text[TEXT_MAX]; /* of a watch, the key is the text; of a
                                       session, the token is the value */
    uint32_t count;                 /* of keys */
};

extern struct ddpi_kv *kv;
extern struct ddpi_kv_client clients[CLIENTS];
extern struct got replies[REPLIES_MAX];
extern size_t nreplies;
extern uint64_t now;

/* kv_setup() and kv_teardown() are a checked fixture; kv_make() sets up with other limits. */
void kv_make(const struct ddpi_kv_limits *limits);
void kv_setup(void);
void kv_teardown(void);
struct ddpi_bytes bytes(const char *text);
void ask(int client, struct ddpi_message request);
struct got *last(void);
struct got *call(int client, struct ddpi_message request);
struct got *set(const char *key, const char *value);
struct got *try_get(const char *key);
struct got *drop_key(const char *key);
/* One transaction of @count clauses, asked by client 0; its own answer comes last. */
struct got *transact(const struct ddpi_clause *clauses, uint32_t count);
void get(int client, uint64_t id, const char *key, uint32_t timeout_ms);
void barrier(int client, uint64_t id, const char *name, uint32_t count, uint32_t timeout_ms);
void wait_keys(int client, uint64_t id, const char *names, uint32_t timeout_ms);

/* Client 0 asks for @op on the key "k@key"; replies that came before are forgotten. */
void ask_key(enum ddpi_op op, int key, const char *value, int64_t number);
/* The same with a session, of which @token has DDPI_SESSION_SIZE bytes. */
void ask_session(enum ddpi_op op, const char *token, int key, const char *value);

#endif
