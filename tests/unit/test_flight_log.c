/*
 * test_flight_log.c - reading copies of a flight recorder's memory: what was written is read, a
 * ring keeps the last records, and whatever else the copy has is refused or made harmless.
 */
#include "check_main.h"
#include "failmem.h"
#include "flight_log.h"
#include "sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 16, HOSTILE_RUNS = 3000 };

static struct ddpi_flight_header *memory, *copy;
static size_t len;
static struct ddpi_flight_log *flight;
static struct ddpi_flight_group group;

static void setup(void)
{
    memory = calloc(1, ddpi_flight_size(RECORDS));
    copy = calloc(1, ddpi_flight_size(RECORDS));
    ddpi_flight_format(memory, RECORDS);
    snprintf(memory->names.operations[1], DDPI_FLIGHT_NAME_SIZE, "all_reduce");
    group = (struct ddpi_flight_group){.id = 77, .rank = 1, .size = 2, .pid = 4711, .name = "w"};
    ddpi_flight_add_group(memory, &group);
}

static void teardown(void)
{
    ddpi_flight_log_destroy(flight);
    flight = NULL;
    free(memory);
    free(copy);
}

static uint64_t write_op(uint64_t seq, enum ddpi_flight_state state)
{
    struct ddpi_flight_op op = {.state = state,
                                .created_ns = 100 + seq,
                                .seq = seq,
                                .count = UINT64_MAX,
                                .timeout_ms = 600000,
                                .peer = 3,
                                .group = (uint32_t)group.serial,
                                .operation = 1,
                                .dtype = 2,
                                .reduction = 3,
                                .parts = 0xfedc,
                                .is_uneven = true,
                                .has_root = true,
                                .reduces = true,
                                .has_elements = true};
    ddpi_flight_begin(memory, RECORDS, &op);
    return op.number;
}

static ddp_status read_copy(uint32_t last)
{
    const struct ddpi_flight_place place = {.rank = 1, .world_size = 2, .host = "a"};
    len = ddpi_flight_copy(memory, RECORDS, last, &place, copy);
    return ddpi_flight_log_read(copy, len, &flight, NULL);
}

START_TEST(what_was_written_is_read)
{
    uint64_t number = write_op(5, DDPI_FLIGHT_SCHEDULED);
    ddpi_flight_move(memory, RECORDS, number, DDPI_FLIGHT_STARTED, 0, 200);
    ddpi_flight_move(memory, RECORDS, number, DDPI_FLIGHT_FAILED, DDP_E_TIMEOUT, 300);
    ddpi_flight_move(memory, RECORDS, number, DDPI_FLIGHT_COMPLETED, 0, 400); /* too late */
    ck_assert_int_eq(read_copy(RECORDS), DDP_OK);
    ck_assert_uint_eq(flight->count, 1);
    const struct ddpi_flight_op *op = &flight->ops[0];
    ck_assert(op->number == 1 && op->seq == 5 && op->count == UINT64_MAX);
    ck_assert(op->created_ns == 105 && op->started_ns == 200 && op->ended_ns == 300);
    ck_assert(op->state == DDPI_FLIGHT_FAILED && op->status == DDP_E_TIMEOUT);
    ck_assert(op->timeout_ms == 600000 && op->peer == 3 && op->dtype == 2 && op->reduction == 3);
    ck_assert(op->parts == 0xfedc && op->is_uneven && !op->in_pairs);
    ck_assert(op->has_root && op->reduces && op->has_elements && !op->is_message && !op->is_send);
    const struct ddpi_flight_group *of = ddpi_flight_group_of(flight, op);
    ck_assert_ptr_nonnull(of);
    ck_assert(of->id == 77 && of->rank == 1 && of->size == 2 && of->pid == 4711);
    ck_assert_str_eq(of->name, "w");
    ck_assert_str_eq(flight->place.host, "a");
    ck_assert_str_eq(ddpi_flight_state_name(op->state), "failed");
}
END_TEST

START_TEST(a_ring_keeps_the_last_records)
{
    uint64_t first = 0;
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t number = write_op(i, DDPI_FLIGHT_STARTED);
        first = i == 0 ? number : first;
    }
    ddpi_flight_move(memory, RECORDS, first, DDPI_FLIGHT_COMPLETED, 0, 1); /* its record is gone */
    ck_assert_int_eq(read_copy(RECORDS), DDP_OK);
    ck_assert_uint_eq(flight->begun, 100);
    ck_assert_uint_eq(flight->count, RECORDS);
    for (uint64_t i = 0; i < RECORDS; i++) {
        ck_assert_uint_eq(flight->ops[i].seq, 100 - RECORDS + i);
        ck_assert_int_eq(flight->ops[i].state, DDPI_FLIGHT_STARTED);
    }
    ddpi_flight_log_destroy(flight);
    ck_assert_int_eq(read_copy(3), DDP_OK);
    ck_assert_uint_eq(flight->count, 3);
    ck_assert_uint_eq(flight->ops[0].seq, 97);
}
END_TEST

START_TEST(groups_beyond_the_room_are_forgotten)
{
    write_op(0, DDPI_FLIGHT_STARTED);
    for (int i = 0; i < DDPI_FLIGHT_GROUPS; i++) {
        struct ddpi_flight_group more = {.rank = 0, .size = 1, .name = "more"};
        ddpi_flight_add_group(memory, &more);
        ck_assert_int_eq((int)more.instance, i + 1);
    }
    ck_assert_int_eq(read_copy(RECORDS), DDP_OK);
    ck_assert_uint_eq(flight->ngroups, DDPI_FLIGHT_GROUPS);
    ck_assert_ptr_null(ddpi_flight_group_of(flight, &flight->ops[0]));
}
END_TEST

START_TEST(what_is_no_copy_is_refused)
{
    struct ddp_error err;
    ck_assert_int_eq(read_copy(RECORDS), DDP_OK);
    ddpi_flight_log_destroy(flight);
    flight = NULL;
    for (size_t cut = 0; cut < len; cut += 7)
        ck_assert_int_eq(ddpi_flight_log_read(copy, cut, &flight, &err), DDP_E_PROTOCOL);
    copy->place.rank = 2;
    ck_assert_int_eq(ddpi_flight_log_read(copy, len, &flight, &err), DDP_E_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(err.msg, "rank 2 in a world of 2"));
    copy->magic++;
    ck_assert_int_eq(ddpi_flight_log_read(copy, len, &flight, &err), DDP_E_PROTOCOL);
    ck_assert_ptr_null(flight);
}
END_TEST

/* The writer owns the memory, and may put anything there. */
START_TEST(a_hostile_writer_harms_no_reader)
{
    size_t size = ddpi_flight_size(RECORDS);
    char text[DDPI_FLIGHT_TEXT];
    for (unsigned run = 0; run < HOSTILE_RUNS; run += (unsigned)sample_stride()) {
        srand(run);
        write_op(run, DDPI_FLIGHT_STARTED);
        for (int i = rand() % 200; i > 0; i--)
            ((uint8_t *)memory)[(size_t)rand() % size] = (uint8_t)rand();
        ck_assert_int_eq(read_copy(RECORDS), DDP_OK);
        for (size_t i = 0; i < flight->count; i++) {
            ddpi_flight_describe(flight, &flight->ops[i], text);
            (void)ddpi_flight_group_of(flight, &flight->ops[i]);
            ck_assert(i == 0 || flight->ops[i - 1].number < flight->ops[i].number);
            for (const char *at = text; *at != '\0'; at++)
                ck_assert((unsigned char)*at >= 0x20);
        }
        ddpi_flight_log_destroy(flight);
        flight = NULL;
    }
}
END_TEST

START_TEST(log_memory_runs_out)
{
    write_op(0, DDPI_FLIGHT_STARTED);
    bool failed = true;
    for (unsigned successes = 0; failed; successes++) {
        failmem_start(successes);
        ddp_status status = read_copy(RECORDS);
        failed = failmem_stop();
        ck_assert_int_eq(status, failed ? DDP_E_NOMEM : DDP_OK);
    }
}
END_TEST

START_TEST(capacities_are_powers_of_two)
{
    ck_assert_uint_eq(ddpi_flight_capacity(1), DDPI_FLIGHT_RECORDS_MIN);
    ck_assert_uint_eq(ddpi_flight_capacity(2000), 2048);
    ck_assert_uint_eq(ddpi_flight_capacity(2048), 2048);
    ck_assert_uint_eq(ddpi_flight_capacity(UINT32_MAX), DDPI_FLIGHT_RECORDS_MAX);
    ck_assert(ddpi_flight_is_live(memory, ddpi_flight_size(RECORDS)));
    ck_assert(!ddpi_flight_is_live(memory, ddpi_flight_size(RECORDS) - 1));
    memory->records = 2 * RECORDS;
    ck_assert(!ddpi_flight_is_live(memory, ddpi_flight_size(RECORDS)));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("flight_log");
    TCase *tcase = tcase_create("flight_log");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, what_was_written_is_read, a_ring_keeps_the_last_records,
              groups_beyond_the_room_are_forgotten, what_is_no_copy_is_refused,
              a_hostile_writer_harms_no_reader, log_memory_runs_out, capacities_are_powers_of_two);
    suite_add_tcase(suite, tcase);
    return suite;
}
