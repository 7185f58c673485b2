/*
 * test_checkpoint.c - checkpoints in a folder of their own: what is written is read; the previous
 * one takes the place of a damaged newest one; each byte of a file flipped, each truncation and
 * hostile heads end in a sentence.
 */
#include "check_main.h"
#include "checksum.h"
#include "failmem.h"

#include <ddprun/ddp.h>
#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOBS = 3, FILE_MOST = 4096, LARGE = 3 << 18, PATH_MOST = 256 };

/* A checkpoint whose values follow from @step. */
struct fixture {
    char folder[64];
    uint64_t step;
    uint8_t weights[77];
    struct ddp_checkpoint_blob blobs[BLOBS];
    struct ddp_checkpoint checkpoint;
};

static void fixture_open(struct fixture *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    snprintf(fixture->folder, sizeof fixture->folder, "/tmp/test_checkpoint.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fixture->folder));
    fixture->blobs[0] = (struct ddp_checkpoint_blob){"step", &fixture->step, sizeof(uint64_t)};
    fixture->blobs[1] =
        (struct ddp_checkpoint_blob){"weights", fixture->weights, sizeof fixture->weights};
    fixture->blobs[2] = (struct ddp_checkpoint_blob){"empty", NULL, 0};
    fixture->checkpoint = (struct ddp_checkpoint){.size = sizeof fixture->checkpoint,
                                                  .folder = fixture->folder,
                                                  .run = "seed 1",
                                                  .run_bytes = 6,
                                                  .blobs = fixture->blobs,
                                                  .count = BLOBS};
}

static const char *path_of(const struct fixture *fixture, const char *name, char path[PATH_MOST])
{
    snprintf(path, PATH_MOST, "%s/%s", fixture->folder, name);
    return path;
}

static void fixture_close(const struct fixture *fixture)
{
    static const char *const names[] = {"newest", "previous", "writing", "replaced"};
    char path[PATH_MOST];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(fixture, names[i], path));
    ck_assert_int_eq(rmdir(fixture->folder), 0); /* nothing else was left */
}

static void write_step(struct fixture *fixture, uint64_t step)
{
    fixture->step = step;
    memset(fixture->weights, (int)step, sizeof fixture->weights);
    ck_assert_int_eq(ddp_checkpoint_write(&fixture->checkpoint, NULL), DDP_OK);
}

static void expect_step(struct fixture *fixture, ddp_checkpoint_found expected, uint64_t step,
                        const char *skipped_text)
{
    struct ddp_error skipped, err = {.status = DDP_OK};
    ddp_checkpoint_found found;
    fixture->step = UINT64_MAX;
    memset(fixture->weights, 0xee, sizeof fixture->weights);
    ddp_status status = ddp_checkpoint_read(&fixture->checkpoint, &found, &skipped, &err);
    ck_assert_msg(status == DDP_OK, "%s", err.msg);
    ck_assert_int_eq(found, expected);
    ck_assert_msg(strstr(skipped.msg, skipped_text) != NULL, "%s", skipped.msg);
    ck_assert_int_eq(skipped.status != DDP_OK, *skipped_text != '\0');
    if (expected != DDP_CHECKPOINT_NEWEST && expected != DDP_CHECKPOINT_PREVIOUS)
        return;
    ck_assert_uint_eq(fixture->step, step);
    for (size_t i = 0; i < sizeof fixture->weights; i++)
        ck_assert_uint_eq(fixture->weights[i], step);
}

static size_t load_file(const struct fixture *fixture, const char *name, uint8_t bytes[FILE_MOST])
{
    char path[PATH_MOST];
    FILE *file = fopen(path_of(fixture, name, path), "rb");
    ck_assert_ptr_nonnull(file);
    size_t len = fread(bytes, 1, FILE_MOST, file);
    fclose(file);
    return len;
}

static void store_file(const struct fixture *fixture, const char *name, const uint8_t *bytes,
                       size_t len)
{
    char path[PATH_MOST];
    FILE *file = fopen(path_of(fixture, name, path), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
    ck_assert_int_eq(fclose(file), 0);
}

/* ---- what is written is read ---- */

START_TEST(the_two_last_ones_are_kept)
{
    struct fixture fixture;
    char path[PATH_MOST];
    fixture_open(&fixture);
    expect_step(&fixture, DDP_CHECKPOINT_NONE, 0, "");
    for (uint64_t step = 1; step <= 4; step++) {
        write_step(&fixture, step);
        expect_step(&fixture, DDP_CHECKPOINT_NEWEST, step, "");
        ck_assert_int_ne(access(path_of(&fixture, "writing", path), F_OK), 0);
        ck_assert_int_ne(access(path_of(&fixture, "replaced", path), F_OK), 0);
    }
    ck_assert_int_eq(unlink(path_of(&fixture, "newest", path)), 0);
    expect_step(&fixture, DDP_CHECKPOINT_PREVIOUS, 3, "");
    write_step(&fixture, 5);
    ck_assert_int_eq(unlink(path_of(&fixture, "newest", path)), 0);
    expect_step(&fixture, DDP_CHECKPOINT_PREVIOUS, 3, "");
    fixture_close(&fixture);
}
END_TEST

/* What a writer that was killed has left does not disturb the next one. */
START_TEST(remains_of_a_killed_writer_are_replaced)
{
    struct fixture fixture;
    fixture_open(&fixture);
    write_step(&fixture, 1);
    store_file(&fixture, "writing", (const uint8_t *)"half", 4);
    store_file(&fixture, "replaced", (const uint8_t *)"old", 3);
    expect_step(&fixture, DDP_CHECKPOINT_NEWEST, 1, "");
    write_step(&fixture, 2);
    expect_step(&fixture, DDP_CHECKPOINT_NEWEST, 2, "");
    store_file(&fixture, "newest", (const uint8_t *)"", 0);
    expect_step(&fixture, DDP_CHECKPOINT_PREVIOUS, 1, "newest is damaged: it ends early");
    fixture_close(&fixture);
}
END_TEST

/* Sizes around the pieces in which a blob is written. */
START_TEST(a_large_blob_is_read_back)
{
    struct fixture fixture;
    uint8_t *bytes = calloc(1, LARGE), *copy = calloc(1, LARGE);
    size_t len = (size_t)(LARGE - 33 * _i);
    ck_assert(bytes != NULL && copy != NULL);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 2654435761U >> 13);
    memcpy(copy, bytes, len);
    fixture_open(&fixture);
    fixture.blobs[2] = (struct ddp_checkpoint_blob){"large", bytes, len};
    write_step(&fixture, 1);
    memset(bytes, 0, len);
    expect_step(&fixture, DDP_CHECKPOINT_NEWEST, 1, "");
    ck_assert_mem_eq(bytes, copy, len);
    fixture_close(&fixture);
    free(bytes);
    free(copy);
}
END_TEST

/* The first values are those of the reference implementation. */
START_TEST(the_checksum_is_xxh64)
{
    static const struct {
        const char *text;
        uint64_t sum;
    } rows[] = {
        {"", 0xef46db3751d8e999U},
        {"a", 0xd24ec4f1a98c6e5bU},
        {"abc", 0x44bc2cf5ad770999U},
        {"Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1U},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddpi_checksum sum;
        ddpi_checksum_start(&sum);
        ck_assert_uint_eq(ddpi_checksum_end(&sum, rows[i].text, strlen(rows[i].text)), rows[i].sum);
    }
}
END_TEST

/* ---- damage ---- */

START_TEST(each_damaged_byte_and_length_is_noticed)
{
    struct fixture fixture;
    uint8_t good[FILE_MOST], bad[FILE_MOST + 1] = {0};
    fixture_open(&fixture);
    write_step(&fixture, 1);
    write_step(&fixture, 2);
    size_t len = load_file(&fixture, "newest", good);
    for (size_t at = 0; at < len; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            memcpy(bad, good, len);
            bad[at] ^= (uint8_t)(1U << bit);
            store_file(&fixture, "newest", bad, len);
            expect_step(&fixture, DDP_CHECKPOINT_PREVIOUS, 1, "newest is damaged: ");
        }
        store_file(&fixture, "newest", good, at);
        expect_step(&fixture, DDP_CHECKPOINT_PREVIOUS, 1, "newest is damaged: ");
    }
    memcpy(bad, good, len);
    store_file(&fixture, "newest", bad, len + 1);
    expect_step(&fixture, DDP_CHECKPOINT_PREVIOUS, 1, "newest is damaged: it has");
    store_file(&fixture, "previous", good, len / 2);
    expect_step(&fixture, DDP_CHECKPOINT_DAMAGED, 0, "newest is damaged: it has");
    fixture_close(&fixture);
}
END_TEST

/* A head with a right checksum and wrong numbers: no read past its end, no huge allocation. */
START_TEST(hostile_numbers_are_refused)
{
    static const struct {
        size_t at, bytes;
    } fields[] = {{12, 4}, {16, 8}, {24, 8}, {38, 2}, {40, 8}};
    static const uint64_t values[] = {0, 1, 39, 40, 41, 1 << 20, UINT32_MAX, INT64_MAX, UINT64_MAX};
    struct fixture fixture;
    uint8_t good[FILE_MOST], bad[FILE_MOST];
    fixture_open(&fixture);
    write_step(&fixture, 2);
    size_t len = load_file(&fixture, "newest", good), head = good[16] + 256U * good[17];
    uint64_t value = htole64(values[_i]);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct ddpi_checksum sum;
        struct ddp_error err;
        ddp_checkpoint_found found = DDP_CHECKPOINT_NONE;
        memcpy(bad, good, len);
        memcpy(bad + fields[i].at, &value, fields[i].bytes);
        ddpi_checksum_start(&sum);
        uint64_t wire = htole64(ddpi_checksum_end(&sum, bad, head - sizeof wire));
        memcpy(bad + head - sizeof wire, &wire, sizeof wire);
        store_file(&fixture, "newest", bad, len);
        ddp_status status = ddp_checkpoint_read(&fixture.checkpoint, &found, NULL, &err);
        ck_assert(status == DDP_E_MISMATCH ||
                  (status == DDP_OK && found == DDP_CHECKPOINT_DAMAGED));
    }
    fixture_close(&fixture);
}
END_TEST

START_TEST(a_pipe_and_a_folder_are_no_checkpoints)
{
    struct fixture fixture;
    char path[PATH_MOST];
    fixture_open(&fixture);
    ck_assert_int_eq(mkfifo(path_of(&fixture, "newest", path), 0600), 0);
    expect_step(&fixture, DDP_CHECKPOINT_DAMAGED, 0, "no ordinary file");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    expect_step(&fixture, DDP_CHECKPOINT_DAMAGED, 0, "no ordinary file");
    ck_assert_int_eq(rmdir(path), 0);
    fixture_close(&fixture);
}
END_TEST

/* ---- another run ---- */

static void expect_mismatch(const struct fixture *fixture, const char *text)
{
    struct ddp_error err;
    ddp_checkpoint_found found;
    ck_assert_int_eq(ddp_checkpoint_read(&fixture->checkpoint, &found, NULL, &err), DDP_E_MISMATCH);
    ck_assert_msg(strstr(err.msg, text) != NULL, "%s", err.msg);
}

START_TEST(one_of_another_program_is_not_passed_over)
{
    struct fixture fixture, other;
    fixture_open(&fixture);
    write_step(&fixture, 1);
    write_step(&fixture, 2);
    other = fixture;
    other.checkpoint.blobs = other.blobs;
    other.checkpoint.run = "seed 2";
    expect_mismatch(&other, "a run with other options");
    other.checkpoint.run = "seed 1";
    other.blobs[1].bytes = 76;
    expect_mismatch(&other, "its blob 'weights' has 77 bytes, that of the program has 76");
    other.blobs[1] = fixture.blobs[1];
    other.blobs[0].name = "stop";
    expect_mismatch(&other, "has the blob 'stop', it has 'step'");
    other.blobs[0] = fixture.blobs[0];
    other.checkpoint.count = 2;
    expect_mismatch(&other, "it has 3 blobs, the program has 2");
    fixture_close(&fixture);
}
END_TEST

/* ---- what callers do wrong ---- */

START_TEST(a_faulty_member_is_named)
{
    struct fixture fixture;
    struct ddp_error err;
    fixture_open(&fixture);
    struct ddp_checkpoint good = fixture.checkpoint, bad[6];
    for (size_t i = 0; i < 6; i++)
        bad[i] = good;
    struct ddp_checkpoint_blob nameless = {"", &fixture, 1}, empty = {"x", NULL, 1};
    bad[0].size = 1;
    bad[1].folder = NULL;
    bad[2].run_bytes = DDP_CHECKPOINT_RUN + 1;
    bad[3].count = 0;
    bad[4].blobs = &nameless;
    bad[4].count = 1;
    bad[5].blobs = &empty;
    bad[5].count = 1;
    static const char *const named[] = {"size of the ddp_checkpoint",
                                        "no folder",
                                        "run_bytes",
                                        "0 blobs",
                                        "name of blob 0",
                                        "data is NULL"};
    for (size_t i = 0; i < 6; i++) {
        ck_assert_int_eq(ddp_checkpoint_write(&bad[i], &err), DDP_E_INVALID);
        ck_assert_msg(strstr(err.msg, named[i]) != NULL, "%s", err.msg);
    }
    fixture_close(&fixture);
    ck_assert_int_eq(ddp_checkpoint_write(&good, &err), DDP_E_SYSTEM); /* the folder is gone */
    ck_assert_ptr_nonnull(strstr(err.msg, "cannot open the folder of checkpoints /tmp/test_"));
}
END_TEST

START_TEST(a_lack_of_memory_leaves_the_last_one)
{
    struct fixture fixture;
    bool failed = true;
    fixture_open(&fixture);
    write_step(&fixture, 1);
    for (unsigned good = 0; failed; good++) {
        failmem_start(good);
        ddp_status status = ddp_checkpoint_write(&fixture.checkpoint, NULL);
        failed = failmem_stop();
        ck_assert_int_eq(status, failed ? DDP_E_NOMEM : DDP_OK);
        expect_step(&fixture, DDP_CHECKPOINT_NEWEST, 1, "");
    }
    ddp_checkpoint_found found;
    failmem_start(0);
    ck_assert_int_eq(ddp_checkpoint_read(&fixture.checkpoint, &found, NULL, NULL), DDP_E_NOMEM);
    ck_assert(failmem_stop());
    fixture_close(&fixture);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *files = tcase_create("files"), *input = tcase_create("input");
    tcase_add_test(files, the_two_last_ones_are_kept);
    tcase_add_test(files, remains_of_a_killed_writer_are_replaced);
    tcase_add_loop_test(files, a_large_blob_is_read_back, 0, 3);
    tcase_add_test(files, the_checksum_is_xxh64);
    tcase_add_test(files, one_of_another_program_is_not_passed_over);
    suite_add_tcase(suite, files);
    tcase_add_test(input, each_damaged_byte_and_length_is_noticed);
    tcase_add_loop_test(input, hostile_numbers_are_refused, 0, 9);
    tcase_add_test(input, a_pipe_and_a_folder_are_no_checkpoints);
    tcase_add_test(input, a_faulty_member_is_named);
    tcase_add_test(input, a_lack_of_memory_leaves_the_last_one);
    suite_add_tcase(suite, input);
    return suite;
}
