/*
 * test_kv_queue.c - queues: order, which client is woken for a value, and which is woken next when
 * that client does not take it.
 */
#include "check_main.h"
#include "kv_fixture.h"

static void push(const char *name, const char *value)
{
    ask(0, (struct ddpi_message){.op = DDPI_OP_PUSH, .key = bytes(name), .value = bytes(value)});
    ck_assert_int_eq(last()->status, DDP_OK);
    ck_assert_int_eq(last()->client, 0);
}

static struct got *pop(int client, const char *name)
{
    return call(client, (struct ddpi_message){.op = DDPI_OP_POP, .key = bytes(name)});
}

static int64_t length(const char *name)
{
    return call(0, (struct ddpi_message){.op = DDPI_OP_QUEUE_LEN, .key = bytes(name)})->number;
}

/* One letter per name. */
static void wait_each(int client, const char *names)
{
    struct ddpi_buf packed;
    ddpi_buf_init(&packed, 1000);
    uint32_t count = 0;
    for (; names[count] != '\0'; count++)
        ck_assert(ddpi_keys_put(&packed, ddpi_bytes_of(&names[count], 1)));
    ask(client, (struct ddpi_message){
                    .op = DDPI_OP_WAIT_EACH,
                    .keys = {ddpi_buf_head(&packed), ddpi_buf_len(&packed), count, false}});
    ddpi_buf_finish(&packed);
}

/* How many replies @client has got from number @since on. */
static unsigned replies_to(int client, size_t since)
{
    unsigned count = 0;
    for (size_t i = since; i < nreplies; i++)
        count += replies[i].client == client;
    return count;
}

START_TEST(first_in_first_out)
{
    ck_assert_int_eq(length("q"), 0);
    ck_assert_int_eq(pop(0, "q")->number, 0);
    push("q", "1");
    push("q", "");
    push("q", "3");
    ck_assert_int_eq(length("q"), 3);
    ck_assert_int_eq(pop(0, "q")->number, 3);
    ck_assert_str_eq(last()->value, "1");
    ck_assert_int_eq(pop(1, "q")->number, 2);
    ck_assert_str_eq(last()->value, "");
    ck_assert_int_eq(pop(0, "q")->number, 1);
    ck_assert_str_eq(last()->value, "3");
    ck_assert_int_eq(pop(0, "q")->number, 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0); /* nothing of it is left */
}
END_TEST

START_TEST(queues_and_keys_have_names_of_their_own)
{
    push("q", "item");
    ck_assert_int_eq(try_get("q")->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(drop_key("q")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 0);
    set("q", "value");
    ck_assert_int_eq(drop_key("q")->status, DDP_OK);
    ck_assert_int_eq(length("q"), 1);
    set("q", "value");
    ck_assert_str_eq(pop(0, "q")->value, "item");
    ck_assert_str_eq(try_get("q")->value, "value");
    get(1, 5, "n", 100); /* a native wait is for values */
    push("n", "item");
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("")), 1);
    ck_assert_int_eq(length("n"), 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
}
END_TEST

START_TEST(a_queue_that_is_not_empty_is_there)
{
    push("q", "1");
    size_t before = nreplies;
    wait_each(1, "q");
    ck_assert_uint_eq(replies_to(1, before), 1);
    wait_each(2, "qk"); /* a queue that is there, and a key that comes later */
    ck_assert_uint_eq(replies_to(2, before), 0);
    set("k", "1");
    ck_assert_uint_eq(replies_to(2, before), 1);
}
END_TEST

START_TEST(each_value_wakes_one)
{
    size_t before = nreplies;
    wait_each(1, "q");
    wait_each(2, "q");
    push("q", "a");
    ck_assert_uint_eq(replies_to(1, before), 1);
    ck_assert_uint_eq(replies_to(2, before), 0);
    push("q", "b");
    ck_assert_uint_eq(replies_to(2, before), 1);
    ck_assert_str_eq(pop(2, "q")->value, "a");
    ck_assert_str_eq(pop(1, "q")->value, "b");
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0);
    wait_each(1, "q");
    set("q", "value"); /* a value of that name wakes them too */
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
}
END_TEST

START_TEST(who_does_not_take_it_leaves_it_to_the_next)
{
    for (int how = 0; how < 5; how++) {
        size_t before = nreplies;
        wait_each(1, "q");
        wait_each(2, "q");
        push("q", "a");
        ck_assert_uint_eq(replies_to(2, before), 0);
        if (how == 0)
            ddpi_kv_client_gone(kv, &clients[1]);
        else if (how == 1)
            ask(1, (struct ddpi_message){.op = DDPI_OP_CANCEL});
        else if (how == 2)
            ask(1, (struct ddpi_message){.op = DDPI_OP_POP, .key = bytes("other")});
        else if (how == 3)
            wait_each(1, "x");
        else
            ask(1, (struct ddpi_message){.op = DDPI_OP_TRY_GET, .key = bytes("q")});
        ck_assert_uint_eq(replies_to(2, before), 1);
        ck_assert_str_eq(pop(2, "q")->value, "a");
        ddpi_kv_client_gone(kv, &clients[1]);
        ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0);
    }
}
END_TEST

START_TEST(nobody_is_woken_for_what_is_taken)
{
    size_t before = nreplies;
    wait_each(1, "q");
    wait_each(2, "q");
    push("q", "a");
    ck_assert_str_eq(pop(3, "q")->value, "a"); /* it did not wait, and was faster */
    ck_assert_int_eq(pop(1, "q")->number, 0);
    ck_assert_uint_eq(replies_to(2, before), 0);
    wait_each(1, "q");
    push("q", "b"); /* for the client that has waited longest */
    ck_assert_uint_eq(replies_to(2, before), 1);
    ddpi_kv_client_gone(kv, &clients[1]);
    ck_assert_str_eq(pop(2, "q")->value, "b");
}
END_TEST

START_TEST(a_queue_outlives_whom_it_woke)
{
    wait_each(1, "q");
    push("q", "a");
    ddpi_kv_delete_prefix(kv, bytes(""));
    ck_assert_int_eq(length("q"), 0);
    ck_assert_int_eq(pop(1, "q")->number, 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0);
    wait_each(1, "q");
    push("q", "a");
    pop(3, "q");
    ddpi_kv_client_gone(kv, &clients[1]);
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0);
}
END_TEST

START_TEST(a_wait_for_more_than_the_queue)
{
    size_t before = nreplies;
    wait_each(1, "qk");
    wait_each(2, "q");
    push("q", "a"); /* brings the first nearer to its end, and ends the second */
    ck_assert_uint_eq(replies_to(1, before), 0);
    ck_assert_uint_eq(replies_to(2, before), 1);
    ck_assert_str_eq(pop(2, "q")->value, "a");
    set("k", "1");
    ck_assert_uint_eq(replies_to(1, before), 1);
}
END_TEST

START_TEST(queues_are_paid_for)
{
    kv_teardown();
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.room[KV_ROOM_BYTES] = 3000;
    kv_make(&limits);
    int pushed = 0;
    struct ddpi_message request = {.op = DDPI_OP_PUSH, .key = {"q", 1}, .value = {"", 0}};
    while (call(0, request)->status == DDP_OK)
        ck_assert_int_lt(++pushed, 1000); /* also those without bytes */
    ck_assert_int_eq(last()->status, DDP_E_LIMIT);
    ck_assert_uint_le(ddpi_kv_stats(kv).bytes, limits.room[KV_ROOM_BYTES]);
    pop(0, "q");
    push("q", "");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_queue");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, kv_setup, kv_teardown);
    ADD_TESTS(tcase, first_in_first_out, queues_and_keys_have_names_of_their_own,
              a_queue_that_is_not_empty_is_there, each_value_wakes_one,
              who_does_not_take_it_leaves_it_to_the_next, nobody_is_woken_for_what_is_taken,
              a_queue_outlives_whom_it_woke, a_wait_for_more_than_the_queue, queues_are_paid_for);
    suite_add_tcase(suite, tcase);
    return suite;
}
