/*
 * test_kv_session.c - sessions: leases to the millisecond, tokens, and which keys vanish with them.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <ddprun/store.h>
#include <string.h>

struct token {
    char bytes[DDPI_SESSION_SIZE];
};

static struct token open_session(uint32_t lease_ms)
{
    struct token token;
    struct got *got = call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = lease_ms});
    ck_assert_int_eq(got->status, DDP_OK);
    memcpy(token.bytes, got->value, sizeof token.bytes);
    return token;
}

static ddp_status use(int client, enum ddpi_op op, const struct token *token)
{
    size_t before = nreplies;
    ask(client, (struct ddpi_message){.op = op, .session = {token->bytes, sizeof token->bytes}});
    ck_assert_uint_gt(nreplies, before);
    return last()->status;
}

static ddp_status keep(const struct token *token)
{
    return use(1, DDPI_OP_SESSION_KEEP, token);
}

static ddp_status set_ephemeral(const struct token *token, const char *key, const char *value)
{
    size_t before = nreplies;
    ask(0, (struct ddpi_message){.op = DDPI_OP_SET_EPHEMERAL,
                                 .key = bytes(key),
                                 .value = bytes(value),
                                 .session = {token->bytes, sizeof token->bytes}});
    ck_assert_uint_gt(nreplies, before);
    return last()->status;
}

static void pass(uint64_t ms)
{
    now += ms;
    if (ddpi_kv_next_deadline(kv) <= now)
        ddpi_kv_expire(kv, now);
}

START_TEST(a_lease_lasts_to_the_millisecond)
{
    struct token token = open_session(10), longer = open_session(100);
    ck_assert_int_eq(set_ephemeral(&token, "e", "1"), DDP_OK);
    ck_assert_int_eq(set_ephemeral(&longer, "l", "1"), DDP_OK);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 10);
    pass(9);
    ck_assert_int_eq(keep(&token), DDP_OK); /* by another client: it belongs to none */
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 10);
    ddpi_kv_client_gone(kv, &clients[0]);
    pass(9);
    ck_assert_str_eq(try_get("e")->value, "1");
    pass(1);
    ck_assert_int_eq(try_get("e")->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(keep(&token), DDP_E_NOT_FOUND);
    ck_assert_int_eq(set_ephemeral(&token, "e", "1"), DDP_E_NOT_FOUND);
    ck_assert_int_eq(try_get("e")->status, DDP_E_NOT_FOUND);
    ck_assert_str_eq(try_get("l")->value, "1");
    ck_assert_uint_eq(ddpi_kv_stats(kv).sessions, 1);
    now += 81; /* ddpi_kv_expire() has not run yet, so a request still comes in time */
    ck_assert_int_eq(keep(&longer), DDP_OK);
    pass(99);
    ck_assert_str_eq(try_get("l")->value, "1");
    pass(1);
    ck_assert_int_eq(try_get("l")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), UINT64_MAX);
}
END_TEST

START_TEST(only_the_token_opens)
{
    struct token token = open_session(10), other = open_session(10);
    ck_assert_int_ne(memcmp(token.bytes + 8, other.bytes + 8, 16), 0);
    for (size_t i = 0; i < sizeof token.bytes; i++) {
        struct token wrong = token;
        wrong.bytes[i] ^= 64;
        ck_assert_int_eq(keep(&wrong), DDP_E_NOT_FOUND);
        ck_assert_int_eq(use(1, DDPI_OP_SESSION_CLOSE, &wrong), DDP_E_NOT_FOUND);
    }
    for (size_t len = 0; len < sizeof token.bytes; len++)
        ck_assert_int_eq(call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_KEEP,
                                                       .session = {token.bytes, len}})
                             ->status,
                         DDP_E_NOT_FOUND);
    ck_assert_int_eq(keep(&token), DDP_OK);
}
END_TEST

START_TEST(the_last_change_decides)
{
    struct token token = open_session(10), other = open_session(1000);
    static const char *const keys[] = {"set", "add", "cas", "txn", "append", "other", "deleted"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_int_eq(set_ephemeral(&token, keys[i], "1"), DDP_OK);
    set("set", "2");
    ask(0, (struct ddpi_message){.op = DDPI_OP_ADD, .key = bytes("add"), .number = 1});
    ask(0, (struct ddpi_message){.op = DDPI_OP_CAS,
                                 .key = bytes("cas"),
                                 .value = bytes("2"),
                                 .version = try_get("cas")->version});
    transact(&(struct ddpi_clause){.kind = DDPI_THEN_SET, .key = bytes("txn")}, 1);
    ask(0, (struct ddpi_message){.op = DDPI_OP_APPEND, .key = bytes("append")});
    ck_assert_int_eq(set_ephemeral(&other, "other", "2"), DDP_OK);
    drop_key("deleted");
    set("deleted", "again");
    set("taken", "1");
    ck_assert_int_eq(set_ephemeral(&token, "taken", "2"), DDP_OK);
    ck_assert_int_eq(set_ephemeral(&token, "taken", "3"), DDP_OK);
    pass(10);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_int_eq(try_get(keys[i])->status, DDP_OK);
    ck_assert_int_eq(try_get("taken")->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(use(1, DDPI_OP_SESSION_CLOSE, &other), DDP_OK);
    ck_assert_int_eq(try_get("other")->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(use(1, DDPI_OP_SESSION_CLOSE, &other), DDP_E_NOT_FOUND);
}
END_TEST

START_TEST(those_who_watch_see_keys_vanish)
{
    struct token token = open_session(10);
    set_ephemeral(&token, "a", "1");
    set_ephemeral(&token, "b", "1");
    set("c", "1");
    ask(2, (struct ddpi_message){.op = DDPI_OP_WATCH, .id = 5, .count = DDPI_WATCH_PREFIX});
    wait_keys(3, 6, "abd", 1000);
    size_t before = nreplies;
    pass(10);
    ck_assert_uint_eq(nreplies, before + 2);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(replies[before + i].id, 5);
        ck_assert_int_eq(replies[before + i].number, DDPI_CHANGE_DELETE);
        ck_assert_str_eq(replies[before + i].text, i == 0 ? "a" : "b");
    }
    set("d", "1");
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1); /* two are missing again */
}
END_TEST

START_TEST(limits_hold)
{
    kv_teardown();
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.room[KV_ROOM_SESSIONS] = 2;
    limits.value_len = 10;
    kv_make(&limits);
    struct ddpi_message request = {.op = DDPI_OP_SESSION_OPEN};
    ck_assert_int_eq(call(0, request)->status, DDP_E_INVALID);
    request.count = DDP_STORE_LEASE_MAX_MS + 1;
    ck_assert_int_eq(call(0, request)->status, DDP_E_INVALID);
    struct token token = open_session(DDP_STORE_LEASE_MAX_MS);
    ck_assert_int_eq(set_ephemeral(&token, "k", "eleven byte"), DDP_E_LIMIT);
    ck_assert_int_eq(set_ephemeral(&token, "k", "ten bytes."), DDP_OK);
    open_session(1);
    request.count = 1;
    ck_assert_int_eq(call(0, request)->status, DDP_E_LIMIT);
    pass(1);
    ck_assert_int_eq(call(0, request)->status, DDP_OK);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("")), 1); /* the session stays */
    ck_assert_int_eq(keep(&token), DDP_OK);
}
END_TEST

static ddp_status hold(int client, const struct token *token)
{
    return use(client, DDPI_OP_SESSION_HOLD, token);
}

START_TEST(what_is_held_ends_with_its_holder)
{
    struct token token = open_session(10), other = open_session(10), wrong = token;
    wrong.bytes[20] ^= 1;
    ck_assert_int_eq(hold(1, &wrong), DDP_E_NOT_FOUND);
    set_ephemeral(&token, "e", "1");
    set_ephemeral(&other, "o", "1");
    ck_assert_int_eq(hold(1, &token), DDP_OK);
    ck_assert_int_eq(hold(1, &token), DDP_OK); /* twice is as good as once */
    ddpi_kv_client_dead(kv, &clients[2]);      /* holds nothing */
    ck_assert_str_eq(try_get("e")->value, "1");
    ddpi_kv_client_dead(kv, &clients[1]);
    ck_assert_int_eq(try_get("e")->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(keep(&token), DDP_E_NOT_FOUND);
    ck_assert_str_eq(try_get("o")->value, "1");
    ck_assert_uint_eq(ddpi_kv_stats(kv).sessions, 1);
}
END_TEST

START_TEST(the_last_holder_counts)
{
    struct token token = open_session(10), closed = open_session(10);
    set_ephemeral(&token, "e", "1");
    pass(9);
    ck_assert_int_eq(hold(1, &token), DDP_OK); /* which keeps it, too */
    ck_assert_int_eq(hold(2, &token), DDP_OK);
    pass(9);
    ddpi_kv_client_dead(kv, &clients[1]);
    ck_assert_str_eq(try_get("e")->value, "1");
    ddpi_kv_client_gone(kv, &clients[2]); /* lost, but maybe alive */
    ddpi_kv_client_dead(kv, &clients[2]);
    ck_assert_str_eq(try_get("e")->value, "1");
    ck_assert_int_eq(hold(1, &token), DDP_OK);
    pass(10); /* the lease is over all the same */
    ck_assert_int_eq(try_get("e")->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(hold(1, &closed), DDP_E_NOT_FOUND);
    ddpi_kv_client_dead(kv, &clients[1]);
    ck_assert_uint_eq(ddpi_kv_stats(kv).sessions, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_session");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, kv_setup, kv_teardown);
    ADD_TESTS(tcase, a_lease_lasts_to_the_millisecond, only_the_token_opens,
              the_last_change_decides, those_who_watch_see_keys_vanish, limits_hold,
              what_is_held_ends_with_its_holder, the_last_holder_counts);
    suite_add_tcase(suite, tcase);
    return suite;
}
