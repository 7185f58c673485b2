/*
 * test_dump.c - what ddpctl dump makes of answers: the set of them, whatever their order and
 * generation; text; and pickles, byte for byte. And the key with which it asks.
 */
#include "check_main.h"
#include "dump_pickle.h"
#include "dump_set.h"
#include "flight_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct dump_set set;

static void teardown(void)
{
    dump_set_finish(&set);
}

/* The answer of a rank that has called one barrier. */
static ddp_status answer_as(enum ddpi_flight_process process, uint32_t rank, uint32_t world,
                            uint64_t generation)
{
    enum { RECORDS = 16 };
    struct ddpi_flight_header *memory = calloc(1, ddpi_flight_size(RECORDS));
    struct ddpi_flight_header *copy = calloc(1, ddpi_flight_size(RECORDS));
    struct ddpi_flight_group group = {.rank = rank, .size = world, .name = "world"};
    const struct ddpi_flight_place place = {.generation = generation,
                                            .rank = rank,
                                            .world_size = world,
                                            .read_ns = 5000000000,
                                            .read_real_ns = 1005000000000,
                                            .pid = 4711,
                                            .process = process,
                                            .host = "a"};
    struct ddpi_flight_op op = {.state = DDPI_FLIGHT_STARTED,
                                .created_ns = 3000000000,
                                .started_ns = 3000000000,
                                .seq = 7,
                                .operation = 1};
    ddpi_flight_format(memory, RECORDS);
    snprintf(memory->names.operations[1], DDPI_FLIGHT_NAME_SIZE, "barrier");
    ddpi_flight_add_group(memory, &group);
    op.group = (uint32_t)group.serial;
    ddpi_flight_begin(memory, RECORDS, &op);
    size_t len = ddpi_flight_copy(memory, RECORDS, RECORDS, &place, copy);
    ddp_status status = dump_set_take(&set, copy, len, NULL);
    free(memory);
    free(copy);
    return status;
}

static ddp_status answer(uint32_t rank, uint32_t world, uint64_t generation)
{
    return answer_as(DDPI_FLIGHT_RUNS, rank, world, generation);
}

START_TEST(answers_in_any_order)
{
    static const uint32_t order[] = {2, 0, 3, 2, 1};
    for (int i = 0; i < 5; i++) {
        ck_assert(!dump_set_complete(&set));
        ck_assert_int_eq(answer(order[i], 4, 1), DDP_OK);
    }
    ck_assert(dump_set_complete(&set));
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(set.logs[i]->place.rank, i);
}
END_TEST

START_TEST(the_latest_generation_counts)
{
    ck_assert_int_eq(answer(0, 2, 5), DDP_OK);
    ck_assert_int_eq(answer(1, 2, 4), DDP_OK);
    ck_assert_uint_eq(set.count, 1);
    ck_assert_int_eq(answer(2, 3, 6), DDP_OK);
    ck_assert(set.count == 1 && set.world_size == 3 && set.generation == 6);
    ck_assert_int_eq(answer(0, 2, 6), DDP_OK); /* of another world: not of this job */
    ck_assert_uint_eq(set.count, 1);
    ck_assert_int_eq(dump_set_take(&set, "junk", 4, NULL), DDP_E_PROTOCOL);
    ck_assert_uint_eq(set.count, 1);
}
END_TEST

START_TEST(text_for_a_person)
{
    static const char *const ends[] = {[DDPI_FLIGHT_RUNS] = "",
                                       [DDPI_FLIGHT_ENDED] = "; exited with code 0",
                                       [DDPI_FLIGHT_STOPPED] = "; stopped"};
    char *text, expected[512];
    size_t len;
    FILE *out = open_memstream(&text, &len);
    ck_assert_int_eq(answer_as((enum ddpi_flight_process)_i, 0, 2, 1), DDP_OK);
    ck_assert_int_eq(dump_set_compare(&set, NULL), DDP_OK);
    dump_text_print(&set, "train", out);
    fclose(out);
    snprintf(expected, sizeof expected,
             "job train, generation 1: records of 1 of 2 ranks\n"
             "\n"
             "communicator world, 2 ranks: rank 0 is in barrier #7; of 1 more there are "
             "no records\n"
             "   rank  host                  pid  completed  now\n"
             "->    0  a                    4711          -  barrier #7 2.0 s%s\n",
             ends[_i]);
    ck_assert_str_eq(text, expected);
    free(text);
}
END_TEST

START_TEST(json_has_the_names_of_pytorch)
{
    ck_assert_int_eq(answer(0, 2, 1), DDP_OK);
    ck_assert_int_eq(dump_set_compare(&set, NULL), DDP_OK);
    json_t *json = dump_json(&set, NULL);
    ck_assert_ptr_nonnull(json);
    ck_assert_str_eq(json_string_value(json_object_get(json, "job")), "");
    json_t *rank = json_object_get(json_object_get(json, "ranks"), "0");
    json_t *entry = json_array_get(json_object_get(rank, "entries"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(entry, "profiling_name")), "nccl:barrier");
    ck_assert_int_eq(json_integer_value(json_object_get(entry, "time_created_ns")), 1003000000000);
    ck_assert_ptr_nonnull(json_object_get(json_object_get(rank, "pg_config"), "world"));
    json_decref(json);
}
END_TEST

START_TEST(pickles_are_those_of_python)
{
    /* pickletools.optimize(pickle.dumps(..., 2)), but for the size of numbers. */
    static const char expected[] =
        "\x80\x02}(X\x01\0\0\0a](\x8a\x08\xfe\xff\xff\xff\xff\xff\xff\xff"
        "N\x88\x89G?\xe0\0\0\0\0\0\0X\x02\0\0\0\xc3\xa4"
        "e"
        "X\x01\0\0\0b}(u"
        "u.";
    json_t *json = json_pack("{s:[i,n,b,b,f,s],s:{}}", "a", -2, 1, 0, 0.5, "\xc3\xa4", "b");
    struct ddpi_buf out;
    ddpi_buf_init(&out, SIZE_MAX);
    ck_assert(dump_pickle(json, &out));
    ck_assert_uint_eq(ddpi_buf_len(&out), sizeof expected - 1);
    ck_assert_mem_eq(ddpi_buf_head(&out), expected, sizeof expected - 1);
    ddpi_buf_finish(&out);
    ddpi_buf_init(&out, 10);
    ck_assert(!dump_pickle(json, &out));
    ddpi_buf_finish(&out);
    json_decref(json);
}
END_TEST

START_TEST(asks_are_read_as_they_were_put)
{
    struct ddpi_flight_ask ask = {.id = "0123456789abcdef", .session = "s", .last = 0x01020304},
                           again;
    unsigned char value[DDPI_FLIGHT_ASK_SIZE];
    ddpi_flight_ask_put(&ask, value);
    ck_assert(ddpi_flight_ask_get("dump/ask/0123456789abcdef", value, sizeof value, &again));
    ck_assert_mem_eq(&again, &ask, sizeof ask);
    static const char *const others[] = {"dump/ask/0123456789abcde",  "dump/ask/0123456789abcdef0",
                                         "dump/ask/0123456789abcdeF", "dump/ask/0123456789abcd/f",
                                         "dump/answer/0123456789abc", ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert(!ddpi_flight_ask_get(others[i], value, sizeof value, &again));
    ck_assert(!ddpi_flight_ask_get("dump/ask/0123456789abcdef", value, sizeof value - 1, &again));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("dump");
    TCase *tcase = tcase_create("dump");
    tcase_add_checked_fixture(tcase, NULL, teardown);
    ADD_TESTS(tcase, answers_in_any_order, the_latest_generation_counts,
              json_has_the_names_of_pytorch, pickles_are_those_of_python,
              asks_are_read_as_they_were_put);
    tcase_add_loop_test(tcase, text_for_a_person, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
