/*
 * test_round_record.c - records of rounds: what is written is read back, and nothing else is read.
 */
#include "check_main.h"
#include "round_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ddp_error why;

static const struct ddp_round_member a_member = {
    .name = "node3",
    .address = "10.0.0.3",
    .nproc = 8,
    .node_rank = -1,
    .master_port = 29500,
    .terms = {.min_nodes = 2,
              .max_nodes = 4,
              .max_restarts = 3,
              .settle_ms = 500,
              .lease_ms = 3000,
              .crash_loop = 5,
              .join = DDP_ROUND_JOIN_CHECKPOINT,
              .quarantine = 3,
              .worker_ports = true},
    .phase = DDP_ROUND_RUNNING,
    .generation = 7,
    .failure = {.generation = 6,
                .rank = 11,
                .exit_code = -1,
                .ran_ms = 123456789012,
                .final = true,
                .text = "rank 11 on node3: killed by signal 9 (\xc3\xbc)",
                .broken_program = true},
    .leaving = true,
    .fenced = true,
    .role = "a trainer",
    .sick = "node check failed (exit code 3): no GPU",
    .checking = true,
    .checks = 4,
    .command = "train.py --lr 0.1",
    .first_port = 40001};

static const struct ddp_round_seat a_seat = {.order = DDP_ROUND_STOP,
                                             .generation = INT64_MAX,
                                             .failed = true,
                                             .spare = true,
                                             .exit_code = INT32_MIN,
                                             .node_rank = 1,
                                             .nodes = 2,
                                             .first_rank = 8,
                                             .world_size = 16,
                                             .restarts = 3,
                                             .master_address = "fe80::1",
                                             .master_port = 65535,
                                             .text = "node a is lost",
                                             .role_first_rank = 4,
                                             .role_world_size = 12,
                                             .most_workers = 7,
                                             .left_out = true,
                                             .check = 5,
                                             .pausing = true,
                                             .notice = "node b was refused",
                                             .coordinator_address = "fe80::2",
                                             .coordinator_port = 65534};

static const struct ddpi_rounds_summary a_summary = {.state = ROUNDS_STOPPING,
                                                     .generation = 9,
                                                     .members = 3,
                                                     .seated = 2,
                                                     .world_size = UINT32_MAX,
                                                     .restarts = 1,
                                                     .reason = "why not",
                                                     .judging = true,
                                                     .closing = true,
                                                     .exit_code = 143,
                                                     .idle_ms = 1,
                                                     .seated_ms = 2,
                                                     .running_ms = 3,
                                                     .left_out = 1,
                                                     .terms.quarantine = 2,
                                                     .terms.worker_ports = true};

static const struct ddpi_rounds_blame a_blame = {
    .failures = 3, .left_out = true, .text = "rank 3 on b failed: exit code 7"};

/* The codecs with one face. */
enum { KINDS = 4 };
union record {
    struct ddp_round_member member;
    struct ddp_round_seat seat;
    struct ddpi_rounds_summary summary;
    struct ddpi_rounds_blame blame;
};

static ddp_status put_any(int kind, struct ddpi_buf *buf, const union record *record)
{
    return kind == 0   ? ddpi_round_member_put(buf, &record->member, &why)
           : kind == 1 ? ddpi_round_seat_put(buf, &record->seat, &why)
           : kind == 2 ? ddpi_round_summary_put(buf, &record->summary, &why)
                       : ddpi_round_blame_put(buf, &record->blame, &why);
}

static ddp_status get_any(int kind, const void *text, size_t len, union record *ret)
{
    struct ddpi_bytes record = ddpi_bytes_of(text, len);
    return kind == 0   ? ddpi_round_member_get(record, &ret->member, &why)
           : kind == 1 ? ddpi_round_seat_get(record, &ret->seat, &why)
           : kind == 2 ? ddpi_round_summary_get(record, &ret->summary, &why)
                       : ddpi_round_blame_get(record, &ret->blame, &why);
}

static union record example(int kind)
{
    union record record;
    memset(&record, 0, sizeof record);
    if (kind == 0)
        record.member = a_member;
    else if (kind == 1)
        record.seat = a_seat;
    else if (kind == 2)
        record.summary = a_summary;
    else
        record.blame = a_blame;
    return record;
}

/* As a string that the caller frees. */
static char *written(int kind)
{
    struct ddpi_buf buf;
    union record record = example(kind);
    ddpi_buf_init(&buf, DDPI_ROUND_RECORD_MAX);
    ck_assert_msg(put_any(kind, &buf, &record) == DDP_OK, "%s", why.msg);
    char *text = strndup((const char *)ddpi_buf_head(&buf), ddpi_buf_len(&buf));
    ck_assert_uint_eq(strlen(text), ddpi_buf_len(&buf));
    ddpi_buf_finish(&buf);
    return text;
}

static void refused(int kind, const char *text, const char *words)
{
    union record record;
    memset(&record, 0x5a, sizeof record);
    union record before = record;
    ck_assert_int_eq(get_any(kind, text, strlen(text), &record), DDP_E_PROTOCOL);
    ck_assert_mem_eq(&record, &before, sizeof record);
    ck_assert_msg(strstr(why.msg, words) != NULL, "'%s' has no '%s'", why.msg, words);
}

START_TEST(what_is_written_comes_back)
{
    char *text = written(_i);
    union record record;
    memset(&record, 0, sizeof record);
    ck_assert_msg(get_any(_i, text, strlen(text), &record) == DDP_OK, "%s", why.msg);
    struct ddpi_buf again;
    ddpi_buf_init(&again, DDPI_ROUND_RECORD_MAX);
    ck_assert_int_eq(put_any(_i, &again, &record), DDP_OK);
    ck_assert_uint_eq(ddpi_buf_len(&again), strlen(text));
    ck_assert_mem_eq(ddpi_buf_head(&again), text, strlen(text));
    ddpi_buf_finish(&again);
    free(text);
}
END_TEST

START_TEST(each_field_has_its_place)
{
    char *text = written(0);
    struct ddp_round_member got;
    ck_assert_int_eq(ddpi_round_member_get(ddpi_bytes_of(text, strlen(text)), &got, &why), DDP_OK);
    ck_assert_str_eq(got.name, "node3");
    ck_assert_str_eq(got.address, "10.0.0.3");
    ck_assert(got.nproc == 8 && got.node_rank == -1 && got.master_port == 29500);
    ck_assert_mem_eq(&got.terms, &a_member.terms, sizeof got.terms);
    ck_assert(got.phase == DDP_ROUND_RUNNING && got.generation == 7 && got.leaving);
    ck_assert(got.fenced);
    ck_assert(got.failure.generation == 6 && got.failure.rank == 11);
    ck_assert(got.failure.exit_code == -1 && got.failure.ran_ms == 123456789012);
    ck_assert(got.failure.final && got.failure.broken_program);
    ck_assert_str_eq(got.failure.text, a_member.failure.text);
    ck_assert_str_eq(got.role, "a trainer");
    ck_assert_str_eq(got.sick, a_member.sick);
    ck_assert_str_eq(got.command, a_member.command);
    ck_assert(got.checking && got.checks == 4);
    ck_assert(got.first_port == 40001);
    free(text);
    text = written(1);
    struct ddp_round_seat seat;
    ck_assert_int_eq(ddpi_round_seat_get(ddpi_bytes_of(text, strlen(text)), &seat, &why), DDP_OK);
    ck_assert(seat.order == DDP_ROUND_STOP && seat.generation == INT64_MAX && seat.failed);
    ck_assert(seat.spare);
    ck_assert(seat.exit_code == INT32_MIN && seat.node_rank == 1 && seat.nodes == 2);
    ck_assert(seat.first_rank == 8 && seat.world_size == 16 && seat.restarts == 3);
    ck_assert_str_eq(seat.master_address, "fe80::1");
    ck_assert_uint_eq(seat.master_port, 65535);
    ck_assert_str_eq(seat.text, "node a is lost");
    ck_assert(seat.role_first_rank == 4 && seat.role_world_size == 12);
    ck_assert_uint_eq(seat.most_workers, 7);
    ck_assert(seat.left_out && seat.check == 5 && seat.pausing);
    ck_assert_str_eq(seat.notice, "node b was refused");
    ck_assert_str_eq(seat.coordinator_address, "fe80::2");
    ck_assert_uint_eq(seat.coordinator_port, 65534);
    free(text);
    text = written(2);
    struct ddpi_rounds_summary sum;
    ck_assert_int_eq(ddpi_round_summary_get(ddpi_bytes_of(text, strlen(text)), &sum, &why), DDP_OK);
    ck_assert(sum.state == ROUNDS_STOPPING && sum.generation == 9 && sum.members == 3);
    ck_assert(sum.seated == 2 && sum.world_size == UINT32_MAX && sum.restarts == 1);
    ck_assert(sum.judging && sum.closing && sum.exit_code == 143 && sum.terms.max_nodes == 0);
    ck_assert(sum.idle_ms == 1 && sum.seated_ms == 2 && sum.running_ms == 3);
    ck_assert_str_eq(sum.reason, "why not");
    ck_assert(sum.left_out == 1 && sum.terms.quarantine == 2 && sum.terms.worker_ports);
    free(text);
    text = written(3);
    struct ddpi_rounds_blame blame;
    ck_assert_int_eq(ddpi_round_blame_get(ddpi_bytes_of(text, strlen(text)), &blame, &why), DDP_OK);
    ck_assert(blame.failures == 3 && blame.left_out);
    ck_assert_str_eq(blame.text, a_blame.text);
    free(text);
}
END_TEST

/* Some writers do not have the last fields. The first of them, in each kind of record. */
static const char *const newer_fields[KINDS] = {"\nrole ", "\nrole_first_rank ", "\nleft_out ",
                                                NULL};

/* Whichever line is left out, or is there twice, or has no newline, or not all of its bytes. */
START_TEST(every_line_counts)
{
    char *text = written(_i), *changed = malloc(2 * strlen(text) + 1), name[64];
    size_t lines = 0;
    const char *newer = newer_fields[_i] != NULL ? strstr(text, newer_fields[_i]) : NULL;
    for (const char *at = text; *at != '\0'; lines++) {
        size_t before = (size_t)(at - text), len = strcspn(at, "\n") + 1;
        snprintf(name, sizeof name, "'%.*s'", (int)strcspn(at, " "), at);
        memcpy(changed, text, before);
        memcpy(changed + before, at + len, strlen(at + len) + 1);
        if (newer == NULL || at <= newer)
            refused(_i, changed, name);
        memcpy(changed, text, before + len);
        memcpy(changed + before + len, at, strlen(at) + 1);
        refused(_i, changed, "twice");
        at += len;
    }
    ck_assert_uint_ge(lines, _i == 3 ? 3 : 12);
    for (size_t len = 0; len < strlen(text); len++) {
        union record record;
        bool whole = newer != NULL && text + len > newer && text[len - 1] == '\n';
        ck_assert_int_eq(get_any(_i, text, len, &record), whole ? DDP_OK : DDP_E_PROTOCOL);
    }
    free(changed);
    free(text);
}
END_TEST

START_TEST(what_is_not_known_is_skipped)
{
    char *text = written(_i), *longer;
    union record record;
    ck_assert_int_gt(asprintf(&longer, "colour blue\n%sshape  \n", text), 0);
    ck_assert_msg(get_any(_i, longer, strlen(longer), &record) == DDP_OK, "%s", why.msg);
    free(longer);
    ck_assert_int_gt(asprintf(&longer, "%scolour\n", text), 0);
    refused(_i, longer, "no field and value");
    free(longer);
    ck_assert_int_gt(asprintf(&longer, "%s\n", text), 0);
    refused(_i, longer, "no field and value");
    free(longer);
    ck_assert_int_gt(asprintf(&longer, "%s blue\n", text), 0);
    refused(_i, longer, "no field and value");
    free(longer);
    ck_assert_int_gt(asprintf(&longer, "%scolour \x1b[31m\n", text), 0);
    refused(_i, longer, "no field and value");
    free(longer);
    longer = calloc(1, DDPI_ROUND_RECORD_MAX + 1);
    ck_assert_int_eq(get_any(_i, longer, DDPI_ROUND_RECORD_MAX + 1, &record), DDP_E_PROTOCOL);
    free(longer);
    free(text);
}
END_TEST

/* The record of a member, in which @line replaces the line that begins with @field. */
static void with_line(const char *field, const char *line)
{
    char *text = written(0), *changed;
    const char *at = strstr(text, field);
    ck_assert_ptr_nonnull(at);
    ck_assert_int_gt(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, line, strchr(at, '\n')),
                     0);
    refused(0, changed, field);
    free(changed);
    free(text);
}

START_TEST(values_are_strict)
{
    static const char *const bad[][2] = {
        {"nproc", "nproc 0"},
        {"nproc", "nproc 65537"},
        {"nproc", "nproc  8"},
        {"nproc", "nproc 8 "},
        {"nproc", "nproc "},
        {"nproc", "nproc +8"},
        {"nproc", "nproc 0x8"},
        {"node_rank", "node_rank -2"},
        {"node_rank", "node_rank 2147483648"},
        {"master_port", "master_port 65536"},
        {"min_nodes", "min_nodes 0"},
        {"max_nodes", "max_nodes 4294967296"},
        {"join", "join later"},
        {"join", "join no"},
        {"phase", "phase "},
        {"phase", "phase 1"},
        {"generation", "generation 9223372036854775808"},
        {"generation", "generation 00000000000000000000000000000000000000000000001"},
        {"leaving", "leaving 1"},
        {"failure_exit_code", "failure_exit_code -2"},
        {"name", "name "},
        {"name", "name 0123456789012345678901234567890123456789012345678901234567890123"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        with_line(bad[i][0], bad[i][1]);
    char *text = written(0);
    char *at = strstr(text, "min_nodes 2");
    at[strlen("min_nodes ")] = '5';
    refused(0, text, "at least 5 nodes and at most 4");
    free(text);
}
END_TEST

#define REFUSED(change)                                                              \
    do {                                                                             \
        struct ddp_round_member member = a_member;                                   \
        struct ddpi_buf buf;                                                         \
        ddpi_buf_init(&buf, DDPI_ROUND_RECORD_MAX);                                  \
        ck_assert(ddpi_buf_append(&buf, "x", 1));                                    \
        change;                                                                      \
        ck_assert_int_eq(ddpi_round_member_put(&buf, &member, &why), DDP_E_INVALID); \
        ck_assert_uint_eq(ddpi_buf_len(&buf), 1);                                    \
        ddpi_buf_finish(&buf);                                                       \
    } while (0)

START_TEST(what_cannot_be_read_is_not_written)
{
    REFUSED(member.name[0] = '\0');
    REFUSED(member.name[1] = '\n');
    REFUSED(member.address[1] = 0x7f);
    REFUSED(memset(member.name, 'x', sizeof member.name));
    REFUSED(memset(member.failure.text, 'x', sizeof member.failure.text));
    REFUSED(member.nproc = 0);
    REFUSED(member.node_rank = -2);
    REFUSED(member.terms.min_nodes = 0);
    REFUSED(member.terms.max_nodes = 1);
    REFUSED(member.terms.join = (enum ddp_round_join)3);
    REFUSED(member.phase = (enum ddp_round_phase)4);
    REFUSED(member.generation = UINT64_MAX);
    REFUSED(member.generation = (UINT64_C(1) << 53) + 1);
    REFUSED(member.failure.generation = INT64_MAX);
    REFUSED(member.failure.exit_code = -2);
    ck_assert_str_eq(why.msg, "the failure_exit_code of a member must be -1 to 2147483647");
    struct ddpi_buf small;
    ddpi_buf_init(&small, 100);
    ck_assert_int_eq(ddpi_round_member_put(&small, &a_member, &why), DDP_E_NOMEM);
    ck_assert_uint_eq(ddpi_buf_len(&small), 0);
    ddpi_buf_finish(&small);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("round_record");
    TCase *tcase = tcase_create("codec");
    tcase_add_loop_test(tcase, what_is_written_comes_back, 0, KINDS);
    tcase_add_test(tcase, each_field_has_its_place);
    tcase_add_loop_test(tcase, every_line_counts, 0, KINDS);
    tcase_add_loop_test(tcase, what_is_not_known_is_skipped, 0, KINDS);
    tcase_add_test(tcase, values_are_strict);
    tcase_add_test(tcase, what_cannot_be_read_is_not_written);
    suite_add_tcase(suite, tcase);
    return suite;
}
