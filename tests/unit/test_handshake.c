/*
 * test_handshake.c - both sides of the native handshake against each other, without a network:
 * client_greet.c and dialect_native.c. Whatever an attacker between them changes is seen by one of
 * them.
 */
#include "check_main.h"
#include "client_frame.h"
#include "client_greet.h"
#include "conn.h"
#include "error.h"
#include "permissions.h"

#include <ddprun/store.h>
#include <stdio.h>

enum { WIRE_MAX = 65536, THIS_STORE = 0x5707e };

static const struct ddpi_credential token = {.is_token = true,
                                             .secret = "a token of thirty-two bytes...."};
static const struct ddpi_credential other_token = {.is_token = true,
                                                   .secret = "another one of thirty-two bytes"};
static uint8_t last_random;

static void count_up(void *bytes, size_t len)
{
    memset(bytes, ++last_random, len);
}

/* One conversation. */
static struct {
    struct ddpi_gate gate;
    struct ddpi_dialect_state state;
    struct ddpi_greet greet;
    struct ddpi_buf to_server, to_client;
    ddp_status server_status, client_status;
    struct ddp_error err;
    enum ddpi_dialect_step_kind last_step;
    bool done; /* says the client */
} talk;

static void end_talk(void)
{
    ddpi_buf_finish(&talk.to_server);
    ddpi_buf_finish(&talk.to_client);
}

static void begin_talk(const struct ddpi_credential *of_server,
                       const struct ddpi_credential *of_client,
                       const struct ddpi_identity *identity)
{
    const struct ddpi_greet_terms terms = {
        .identity = identity, .credential = of_client, .random = count_up, .vouches_for = "other"};
    end_talk();
    memset(&talk, 0, sizeof talk);
    talk.gate = (struct ddpi_gate){.token = of_server, .random = count_up};
    talk.state.limits = &ddpi_kv_limits_default;
    talk.state.gate = &talk.gate;
    talk.state.must_authenticate = true;
    talk.state.incarnation = THIS_STORE;
    ddpi_buf_init(&talk.to_server, WIRE_MAX);
    ddpi_buf_init(&talk.to_client, WIRE_MAX);
    talk.client_status = ddpi_greet_begin(&talk.greet, &terms, &talk.to_server, &talk.err);
}

/* The server takes all that is whole. */
static void serve(void)
{
    while (ddpi_buf_len(&talk.to_server) > 0 && talk.server_status == DDP_OK) {
        struct ddpi_dialect_step step;
        talk.server_status = ddpi_dialect_native.next(&talk.state, ddpi_buf_head(&talk.to_server),
                                                      ddpi_buf_len(&talk.to_server),
                                                      &talk.to_client, &step, &talk.err);
        talk.last_step = step.kind;
        if (step.kind == DDPI_DIALECT_MORE)
            return;
        if (talk.server_status == DDP_OK)
            ddpi_buf_consume(&talk.to_server, step.used);
    }
}

static void greet(void)
{
    size_t need;
    if (talk.client_status == DDP_OK && !talk.done) {
        talk.client_status =
            ddpi_greet_take(&talk.greet, &talk.to_client, &talk.to_server, &need, &talk.err);
        talk.done = talk.client_status == DDP_OK && need == 0;
    }
}

static void finish_talk(void)
{
    for (int i = 0; i < 3; i++) {
        serve();
        greet();
    }
}

static const struct ddpi_identity worker = {DDPI_ROLE_WORKER, "job", 3, false, 0};
static const struct ddpi_identity agent = {DDPI_ROLE_AGENT, "", 0, false, 0};

static bool both_open(void)
{
    return talk.state.open && talk.done && talk.server_status == DDP_OK &&
           talk.client_status == DDP_OK;
}

START_TEST(the_same_token_opens)
{
    begin_talk(&token, &token, &worker);
    finish_talk();
    ck_assert_msg(both_open(), "%s", talk.err.msg);
    ck_assert(talk.state.identity.proven && talk.state.identity.epoch == 3);
    ck_assert_str_eq(talk.state.identity.job, "job");
    ck_assert_str_eq(talk.state.vouches_for, "other");
    ck_assert_uint_eq(talk.state.identity.store, THIS_STORE);
    ck_assert_uint_eq(talk.greet.welcome.key_max, ddpi_kv_limits_default.key_len);
    ck_assert(talk.state.seals.on && talk.greet.seals.on);
    ck_assert_mem_eq(&talk.state.seals.in, &talk.greet.seals.out, sizeof(struct ddpi_seal));
    ck_assert_mem_eq(&talk.state.seals.out, &talk.greet.seals.in, sizeof(struct ddpi_seal));
    ck_assert_mem_ne(&talk.state.seals.out.keys, &talk.state.seals.in.keys,
                     sizeof talk.state.seals.in.keys);
    /* The key is needed no more. */
    static const uint8_t zero[DDPI_KEY_SIZE];
    ck_assert_mem_eq(talk.state.handshake.key, zero, sizeof zero);
    ck_assert_mem_eq(talk.greet.handshake.key, zero, sizeof zero);
}
END_TEST

START_TEST(another_token_is_denied)
{
    begin_talk(&token, &other_token, &worker);
    finish_talk();
    ck_assert(!talk.state.open && !talk.done && !talk.state.identity.proven);
    ck_assert_int_eq(talk.server_status, DDP_E_DENIED);
    ck_assert_int_eq(talk.last_step, DDPI_DIALECT_DENIED);
    ck_assert_ptr_nonnull(strstr(talk.err.msg, "worker of job 'job' in epoch 3"));
}
END_TEST

START_TEST(a_key_opens_as_its_identity_only)
{
    struct ddpi_credential key = {.identity = worker};
    struct ddpi_identity others[] = {worker, worker, worker};
    others[0].role = DDPI_ROLE_OBSERVER;
    others[1].job[0] = 'k';
    others[2].epoch++;
    key.identity.store = THIS_STORE;
    ck_assert_int_eq(ddpi_credential_key(&token, &key.identity, key.secret, NULL), DDP_OK);
    begin_talk(&token, &key, &worker);
    finish_talk();
    ck_assert(both_open());
    for (size_t i = 0; i < 3; i++) {
        begin_talk(&token, &key, &others[i]);
        ck_assert_int_eq(talk.client_status, DDP_E_DENIED);
        key.identity = others[i]; /* a false identity is detected by the proof */
        key.identity.store = THIS_STORE;
        begin_talk(&token, &key, &others[i]);
        finish_talk();
        ck_assert_int_eq(talk.last_step, DDPI_DIALECT_DENIED);
        ck_assert(!talk.state.open);
        key.identity = worker;
    }
}
END_TEST

/* A store that has begun anew is another one. */
START_TEST(a_key_fits_one_store_only)
{
    struct ddpi_credential key = {.identity = worker};
    key.identity.store = THIS_STORE - 1;
    ck_assert_int_eq(ddpi_credential_key(&token, &key.identity, key.secret, NULL), DDP_OK);
    begin_talk(&token, &key, &worker);
    finish_talk();
    ck_assert(!talk.done && !talk.state.open);
    ck_assert_int_eq(talk.client_status, DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(talk.err.msg, "begun anew"));
    ck_assert_ptr_nonnull(strstr(talk.err.msg, "000000000005707d"));
    key.identity.store = THIS_STORE; /* a false identity is detected by the proof */
    begin_talk(&token, &key, &worker);
    finish_talk();
    ck_assert_int_eq(talk.last_step, DDPI_DIALECT_DENIED);
    ck_assert(!talk.state.open);
}
END_TEST

/* ---- refusals ---- */

static ddp_status refuse(struct ddpi_dialect_state *state, struct ddp_error *err)
{
    (void)state;
    return ddpi_error_set(err, DDP_E_DENIED, "its epoch is over");
}

/* The server tells the reason for a refusal, as a connection does. */
static void say_farewell(void)
{
    ddpi_dialect_native.put_farewell(&talk.state, &talk.to_client, talk.server_status,
                                     talk.err.msg);
}

START_TEST(a_refusal_to_who_has_proven_himself_is_proven)
{
    size_t bits = 1;
    for (size_t bit = 0; bit <= bits; bit++) { /* the last one stands for none */
        last_random = 0;
        begin_talk(&token, &token, &worker);
        talk.state.admit = refuse;
        serve();
        greet();
        serve();
        ck_assert_int_eq(talk.last_step, DDPI_DIALECT_CLOSE);
        say_farewell();
        bits = 8 * ddpi_buf_len(&talk.to_client);
        if (bit < bits)
            talk.to_client.data[talk.to_client.head + bit / 8] ^= (uint8_t)(1 << bit % 8);
        greet();
        ck_assert(!talk.done);
        ck_assert_int_eq(talk.greet.refusal_proven, bit == bits);
    }
    ck_assert_int_eq(talk.client_status, DDP_E_DENIED);
    ck_assert_str_eq(talk.err.msg, "its epoch is over");
    ck_assert_uint_gt(bits, 300);
}
END_TEST

/* What any server on that port can send. */
START_TEST(other_refusals_are_not)
{
    static const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    static const uint8_t types[] = {DDPI_FRAME_BYE, DDPI_FRAME_REFUSAL};
    for (size_t i = 0; i < 4; i++) { /* instead of CHALLENGE, and of WELCOME */
        begin_talk(&token, &token, &worker);
        if (i < 2) {
            ck_assert(ddpi_preamble_put(&talk.to_client, &preamble));
        } else {
            serve();
            greet();
        }
        ck_assert(ddpi_refusal_put(&talk.to_client, types[i % 2], 0, DDP_E_DENIED, 0,
                                   ddpi_bytes_of("denied, and some more", 21)));
        ck_assert(ddpi_buf_append(&talk.to_client, (uint8_t[DDPI_SEAL_SIZE]){0}, DDPI_SEAL_SIZE));
        greet();
        ck_assert_int_eq(talk.client_status, DDP_E_DENIED);
        ck_assert(!talk.greet.refusal_proven);
    }
}
END_TEST

START_TEST(who_has_to_prove_is_told_how)
{
    begin_talk(&token, NULL, &agent);
    finish_talk();
    ck_assert(talk.server_status == DDP_E_DENIED && talk.last_step == DDPI_DIALECT_CLOSE);
    ck_assert_ptr_nonnull(strstr(talk.err.msg, "--token-file"));
    ck_assert_ptr_nonnull(strstr(talk.err.msg, "DDPRUN_TOKEN_FILE"));
    begin_talk(&token, NULL, &worker);
    talk.state.must_authenticate = false;
    finish_talk();
    ck_assert(both_open() && !talk.state.identity.proven && !talk.greet.seals.on);
    ck_assert_int_eq(talk.state.identity.role, DDPI_ROLE_WORKER);
}
END_TEST

/* Downgrades: neither a server without a token, nor one that says welcome at once, is taken. */
START_TEST(who_wants_proof_gets_it)
{
    begin_talk(NULL, &token, &agent);
    talk.state.must_authenticate = false;
    finish_talk();
    ck_assert(!talk.done && talk.server_status == DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(talk.err.msg, "no token"));

    begin_talk(&token, NULL, &agent); /* what a server sends to a client that claims nothing */
    talk.state.must_authenticate = false;
    finish_talk();
    ck_assert(both_open());
    struct ddpi_buf easy;
    ddpi_buf_init(&easy, WIRE_MAX);
    static const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    ck_assert(ddpi_preamble_put(&easy, &preamble) &&
              ddpi_welcome_put(&easy, 0, &talk.greet.welcome));
    begin_talk(&token, &token, &agent);
    ck_assert(ddpi_buf_append(&talk.to_client, ddpi_buf_head(&easy), ddpi_buf_len(&easy)));
    greet();
    ck_assert_int_eq(talk.client_status, DDP_E_PROTOCOL);
    /* Nor is one that makes up a challenge, and a welcome without a proof. */
    begin_talk(&token, &token, &agent);
    ck_assert(ddpi_preamble_put(&talk.to_client, &preamble) &&
              ddpi_challenge_put(&talk.to_client, 0, &(struct ddpi_challenge){0}));
    greet();
    ck_assert_int_eq(talk.client_status, DDP_OK);
    ck_assert(ddpi_buf_append(&talk.to_client, ddpi_buf_head(&easy) + DDPI_PREAMBLE_SIZE,
                              ddpi_buf_len(&easy) - DDPI_PREAMBLE_SIZE));
    greet();
    ck_assert_int_eq(talk.client_status, DDP_E_DENIED);
    ck_assert(!talk.greet.seals.on);
    ddpi_buf_finish(&easy);
}
END_TEST

/* Flip bit @bit of what has been said in the turn @turn: 0 is the client's preamble and HELLO, 1
 * the answer to it, 2 PROOF, 3 WELCOME. false: it has no so many. */
static bool play_with_flip(int turn, size_t bit)
{
    last_random = 0;
    begin_talk(&token, &token, &worker);
    for (int now = 0; now < 4; now++) {
        struct ddpi_buf *buf = now % 2 == 0 ? &talk.to_server : &talk.to_client;
        if (now == turn) {
            if (bit / 8 >= ddpi_buf_len(buf))
                return false;
            buf->data[buf->head + bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        if (now % 2 == 0)
            serve();
        else
            greet();
    }
    return true;
}

START_TEST(every_flipped_bit_keeps_it_shut)
{
    size_t bits = 0;
    for (size_t bit = 0; play_with_flip(_i, bit); bit++, bits++)
        ck_assert_msg(!both_open(), "turn %d, bit %zu", _i, bit);
    ck_assert_uint_gt(bits, 300);
}
END_TEST

/* What a client said once opens nothing later: the server's nonce is another one. */
START_TEST(a_recording_opens_nothing)
{
    struct ddpi_buf recorded;
    ddpi_buf_init(&recorded, WIRE_MAX);
    begin_talk(&token, &token, &worker);
    for (int turn = 0; turn < 2; turn++) {
        ck_assert(ddpi_buf_append(&recorded, ddpi_buf_head(&talk.to_server),
                                  ddpi_buf_len(&talk.to_server)));
        serve();
        greet();
    }
    ck_assert(both_open());
    begin_talk(&token, &token, &worker);
    ddpi_buf_truncate(&talk.to_server, 0);
    ck_assert(ddpi_buf_append(&talk.to_server, ddpi_buf_head(&recorded), ddpi_buf_len(&recorded)));
    serve();
    ck_assert(!talk.state.open && talk.last_step == DDPI_DIALECT_DENIED);
    ddpi_buf_finish(&recorded);
}
END_TEST

START_TEST(a_proof_has_its_place)
{
    begin_talk(&token, &token, &worker);
    ddpi_buf_truncate(&talk.to_server, DDPI_PREAMBLE_SIZE);
    ck_assert(ddpi_proof_put(&talk.to_server, 0, (uint8_t[32]){0}));
    serve();
    ck_assert_int_eq(talk.server_status, DDP_E_PROTOCOL);
    /* Nor may anything be asked before it. */
    begin_talk(&token, &token, &worker);
    serve();
    struct ddpi_message get = {.op = DDPI_OP_TRY_GET, .key = {"k", 1}};
    ck_assert(ddpi_request_put(&talk.to_server, &get));
    serve();
    ck_assert_int_eq(talk.server_status, DDP_E_PROTOCOL);
    /* HELLO comes once. */
    begin_talk(&token, &token, &worker);
    struct ddpi_hello again = {.auth = DDPI_AUTH_NONE};
    ck_assert(ddpi_hello_put(&talk.to_server, 0, &again));
    serve();
    ck_assert_int_eq(talk.server_status, DDP_E_PROTOCOL);
}
END_TEST

/* ---- after it ---- */

static size_t put_request(const char *key)
{
    struct ddpi_message get = {.op = DDPI_OP_TRY_GET, .key = ddpi_bytes_of(key, strlen(key))};
    size_t before = ddpi_buf_len(&talk.to_server);
    ck_assert(ddpi_seals_put(&talk.greet.seals, &talk.to_server, before,
                             ddpi_request_put(&talk.to_server, &get)));
    return before;
}

START_TEST(requests_are_sealed)
{
    begin_talk(&token, &token, &worker);
    finish_talk();
    put_request("one");
    put_request("two");
    serve();
    ck_assert_int_eq(talk.server_status, DDP_OK);
    ck_assert_int_eq(talk.last_step, DDPI_DIALECT_REQUEST);
    put_request("three");
    talk.to_server.data[talk.to_server.tail - 1] ^= 1;
    serve();
    ck_assert_int_eq(talk.server_status, DDP_E_DENIED);
    ck_assert_int_eq(talk.last_step, DDPI_DIALECT_DENIED);
}
END_TEST

START_TEST(dropped_requests_are_missed)
{
    begin_talk(&token, &token, &worker);
    finish_talk();
    put_request("one");
    size_t two = put_request("two");
    ddpi_buf_consume(&talk.to_server, two);
    serve();
    ck_assert_int_eq(talk.last_step, DDPI_DIALECT_DENIED);
}
END_TEST

START_TEST(replies_are_sealed)
{
    begin_talk(&token, &token, &worker);
    finish_talk();
    struct ddpi_client_frame frame;
    struct ddpi_message reply = {.op = DDPI_OP_TRY_GET, .id = 1, .value = {"value", 5}};
    size_t need;
    ck_assert_int_eq(ddpi_dialect_native.put_reply(&talk.state, &talk.to_client, &reply), DDP_OK);
    ddpi_dialect_native.put_farewell(&talk.state, &talk.to_client, DDP_E_CLOSED, "bye");
    ck_assert_int_eq(
        ddpi_client_frame_next(&talk.to_client, &talk.greet.seals, &frame, &need, &talk.err),
        DDP_OK);
    ck_assert_uint_eq(need, 0);
    ddpi_buf_consume(&talk.to_client, frame.size);
    talk.to_client.data[talk.to_client.head + DDPI_FRAME_HEADER_SIZE] ^= 1;
    ck_assert_int_eq(
        ddpi_client_frame_next(&talk.to_client, &talk.greet.seals, &frame, &need, &talk.err),
        DDP_E_DENIED);
}
END_TEST

/* ---- roles ---- */

static ddp_status may(const struct ddpi_identity *who, enum ddpi_op op, const char *key)
{
    struct ddpi_message request = {.op = op, .key = ddpi_bytes_of(key, strlen(key))};
    return ddpi_role_permits(who, &request, &talk.err);
}

/* A worker sees the keys of its generation only. */
START_TEST(a_worker_keeps_to_its_generation)
{
    static const enum ddpi_op changes[] = {DDPI_OP_SET, DDPI_OP_ADD, DDPI_OP_CAS, DDPI_OP_DELETE,
                                           DDPI_OP_SET_EPHEMERAL};
    static const char *const elsewhere[] = {"g4/k", "g2/k", "g33/k", "g3",
                                            "k",    "",     "tcp/k", "xg3/"};
    struct ddpi_identity of_all = worker, of_none = worker;
    of_all.job[0] = '\0';
    of_none.epoch = 0;
    for (size_t op = 0; op < sizeof changes / sizeof *changes; op++) {
        ck_assert_int_eq(may(&worker, changes[op], "g3/k"), DDP_OK);
        ck_assert_int_eq(may(&of_all, changes[op], "g3/k"), DDP_OK);
        for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
            ck_assert_int_eq(may(&worker, changes[op], elsewhere[i]), DDP_E_DENIED);
            ck_assert_ptr_nonnull(strstr(talk.err.msg, "'g3/'"));
            ck_assert_int_eq(may(&of_all, changes[op], elsewhere[i]), DDP_E_DENIED);
            ck_assert_int_eq(may(&of_none, changes[op], elsewhere[i]), DDP_OK);
        }
    }
    ck_assert_int_eq(may(&worker, DDPI_OP_TRY_GET, "g4/k"), DDP_OK);
}
END_TEST

START_TEST(its_transactions_too)
{
    static const char *const keys[] = {"g3/k", "g4/k"};
    for (uint8_t kind = DDPI_IF_VERSION; kind <= DDPI_THEN_DELETE; kind++)
        for (size_t i = 0; i < 2; i++) {
            struct ddpi_buf packed;
            ddpi_buf_init(&packed, WIRE_MAX);
            const struct ddpi_clause first = {.kind = DDPI_THEN_SET, .key = {"g3/a", 4}};
            const struct ddpi_clause clause = {.kind = kind, .key = {keys[i], 4}};
            ck_assert(ddpi_clauses_put(&packed, &first) && ddpi_clauses_put(&packed, &clause));
            const struct ddpi_message request = {.op = DDPI_OP_TRANSACT,
                                                 .clauses = {.packed = ddpi_buf_head(&packed),
                                                             .packed_len = ddpi_buf_len(&packed),
                                                             .count = 2}};
            bool good = i == 0 || kind < DDPI_THEN_SET;
            ck_assert_int_eq(ddpi_role_permits(&worker, &request, &talk.err),
                             good ? DDP_OK : DDP_E_DENIED);
            ddpi_buf_finish(&packed);
        }
}
END_TEST

START_TEST(what_roles_may_do)
{
    static const struct ddpi_identity observer = {.role = DDPI_ROLE_OBSERVER},
                                      any_worker = {.role = DDPI_ROLE_WORKER};
    static const enum ddpi_op reads[] = {DDPI_OP_GET,     DDPI_OP_TRY_GET,       DDPI_OP_WAIT,
                                         DDPI_OP_LIST,    DDPI_OP_STATS,         DDPI_OP_WATCH,
                                         DDPI_OP_UNWATCH, DDPI_OP_CANCEL_REQUEST};
    static const struct ddpi_identity keeper = {.role = DDPI_ROLE_KEEPER, .proven = true},
                                      claims = {.role = DDPI_ROLE_KEEPER};
    for (int op = 0; op < DDPI_OP_NATIVE_COUNT; op++) {
        bool of_keepers = op == DDPI_OP_KEEPER_STATUS;
        ck_assert_int_eq(may(&keeper, (enum ddpi_op)op, "k"), of_keepers ? DDP_OK : DDP_E_DENIED);
        ck_assert_int_eq(may(&claims, (enum ddpi_op)op, "k"), DDP_E_DENIED);
        if (of_keepers)
            ck_assert_int_eq(may(&agent, (enum ddpi_op)op, "k"), DDP_E_DENIED);
        if (of_keepers)
            continue;
        bool read = false;
        for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
            read = read || (int)reads[i] == op;
        ck_assert_int_eq(may(&observer, (enum ddpi_op)op, "k"), read ? DDP_OK : DDP_E_DENIED);
        ck_assert_int_eq(may(&agent, (enum ddpi_op)op, "k"), DDP_OK);
        bool all_jobs = op == DDPI_OP_OPEN_PORT || op == DDPI_OP_FENCE;
        ck_assert_int_eq(may(&any_worker, (enum ddpi_op)op, "k"), all_jobs ? DDP_E_DENIED : DDP_OK);
    }
    ck_assert_int_eq(may(&observer, DDPI_OP_SET, "k"), DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(talk.err.msg, "'observer' may not ask for 'set'"));
}
END_TEST

/* What rounds are made of: a worker that sees all keys may read it. */
START_TEST(rounds_are_for_agents_to_change)
{
    static const struct ddpi_identity any = {.role = DDPI_ROLE_WORKER},
                                      of_job = {.role = DDPI_ROLE_WORKER, .job = "j"};
    static const enum ddpi_op changes[] = {DDPI_OP_SET, DDPI_OP_ADD, DDPI_OP_CAS, DDPI_OP_DELETE,
                                           DDPI_OP_SET_EPHEMERAL};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        ck_assert_int_eq(may(&any, changes[i], "round/j/want/stop"), DDP_E_DENIED);
        ck_assert_int_eq(may(&any, changes[i], "round"), DDP_OK);
        ck_assert_int_eq(may(&of_job, changes[i], "round/j/want/stop"), DDP_OK); /* its own key */
        ck_assert_int_eq(may(&agent, changes[i], "round/j/want/stop"), DDP_OK);
    }
    ck_assert_int_eq(may(&any, DDPI_OP_GET, "round/j/state"), DDP_OK);
    ck_assert_int_eq(may(&any, DDPI_OP_WATCH, "round/"), DDP_OK);
    for (int kind = DDPI_IF_VERSION; kind <= DDPI_THEN_DELETE; kind++) {
        struct ddpi_buf packed;
        ddpi_buf_init(&packed, 1024);
        const struct ddpi_clause clause = {.kind = (uint8_t)kind, .key = {"round/j/state", 13}};
        ck_assert(ddpi_clauses_put(&packed, &clause));
        const struct ddpi_message request = {
            .op = DDPI_OP_TRANSACT, .clauses = {ddpi_buf_head(&packed), ddpi_buf_len(&packed), 1}};
        ck_assert_int_eq(ddpi_role_permits(&any, &request, &talk.err),
                         kind >= DDPI_THEN_SET ? DDP_E_DENIED : DDP_OK);
        ddpi_buf_finish(&packed);
    }
}
END_TEST

START_TEST(the_table_of_connections_is_sound)
{
    ck_assert(ddpi_sm_table_valid(&ddpi_conn_sm));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("handshake");
    TCase *handshake = tcase_create("handshake");
    tcase_add_checked_fixture(handshake, NULL, end_talk);
    ADD_TESTS(handshake, the_same_token_opens, another_token_is_denied,
              a_key_opens_as_its_identity_only, a_key_fits_one_store_only,
              a_refusal_to_who_has_proven_himself_is_proven, other_refusals_are_not,
              who_has_to_prove_is_told_how, who_wants_proof_gets_it);
    tcase_add_loop_test(handshake, every_flipped_bit_keeps_it_shut, 0, 4);
    ADD_TESTS(handshake, a_recording_opens_nothing, a_proof_has_its_place, requests_are_sealed,
              dropped_requests_are_missed, replies_are_sealed, the_table_of_connections_is_sound);
    suite_add_tcase(suite, handshake);
    TCase *roles = tcase_create("roles");
    ADD_TESTS(roles, what_roles_may_do, a_worker_keeps_to_its_generation, its_transactions_too,
              rounds_are_for_agents_to_change);
    suite_add_tcase(suite, roles);
    return suite;
}
