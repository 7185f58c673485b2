/*
 * test_error_file.c - the error file of a worker: both forms, and what a worker may put in its
 * place.
 */
#include "check_main.h"
#include "error_file.h"
#include "failmem.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/test_error_file_XXXXXX";
static char path[64];

static void make_dir(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/error.json", dir);
}

static void remove_dir(void)
{
    unlink(path);
    rmdir(dir);
}

static void write_bytes(const char *bytes, size_t len)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
    ck_assert_int_eq(fclose(file), 0);
}

static void holds(const char *text, const char *message, const char *traceback)
{
    struct error_file file = {0};
    struct ddp_error error = {0};
    write_bytes(text, strlen(text));
    ck_assert_msg(error_file_read(path, 7, &file, &error) == DDP_OK, "%s", error.msg);
    ck_assert_str_eq(file.message, message);
    ck_assert_pstr_eq(file.traceback, traceback);
    error_file_finish(&file);
    ck_assert_ptr_null(file.message);
}

START_TEST(both_forms_are_read)
{
    holds("{\"message\":{\"message\":\"ValueError: no\",\"extraInfo\":{\"py_callstack\":"
          "\"Traceback:\\nx\",\"timestamp\":\"1700000000\"}}}",
          "ValueError: no", "Traceback:\nx");
    holds("{\"message\":\"plain\",\"timestamp\":12}", "plain", NULL);
    holds("{\"message\":{\"message\":\"no callstack\",\"extraInfo\":{}}}", "no callstack", NULL);
    holds("{\"message\":{\"message\":\"m\",\"extraInfo\":{\"py_callstack\":5}}}", "m", NULL);
    holds("{\"message\":{\"message\":\"m\"}}\n", "m", NULL);
    holds("{\"message\":\"\"}", "", NULL);
}
END_TEST

/* Refused as invalid, with @in_sentence in the error and the result unchanged. */
static void refused(const char *in_sentence)
{
    struct error_file file = {.message = path};
    struct ddp_error error = {0};
    ck_assert_int_eq(error_file_read(path, 7, &file, &error), DDP_E_INVALID);
    ck_assert_ptr_eq(file.message, path);
    ck_assert_msg(strstr(error.msg, in_sentence) != NULL, "'%s' lacks '%s'", error.msg,
                  in_sentence);
    ck_assert_ptr_nonnull(strstr(error.msg, path));
}

START_TEST(other_text_is_a_message)
{
    static const char *const texts[] = {
        "Traceback (most recent call last)",
        "two\nlines\n",
        "{\"message\":\"a\"",
        "{\"message\":\"a\"}x",
        "{\"message\":\"a\",\"message\":\"b\"}",
        "{\"message\":\"nul \\u0000\"}",
        "{\"message\":\"\xff\"}",
        "[]",
        "\"x\"",
        "{}",
        "{\"message\":5}",
        "{\"message\":null}",
        "{\"message\":{}}",
        "{\"message\":{\"message\":[]}}",
        "{\"message\":{\"extraInfo\":{\"py_callstack\":\"x\"}}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        holds(texts[i], texts[i], NULL);
}
END_TEST

START_TEST(bytes_are_not_text)
{
    struct error_file file = {0};
    write_bytes("{\"message\":\"a\"}\0b", 17);
    ck_assert_int_eq(error_file_read(path, 7, &file, NULL), DDP_OK);
    ck_assert_str_eq(file.message, "{\"message\":\"a\"} b");
    error_file_finish(&file);
}
END_TEST

START_TEST(an_empty_file_says_nothing)
{
    struct error_file file = {0};
    write_bytes("", 0);
    ck_assert_int_eq(error_file_read(path, 7, &file, NULL), DDP_E_NOT_FOUND);
}
END_TEST

/* The copy of a file with @text, for @exit_code. */
static json_t *copy_of(const char *text, int exit_code)
{
    struct error_file file = {0};
    write_bytes(text, strlen(text));
    ck_assert_int_eq(error_file_read(path, exit_code, &file, NULL), DDP_OK);
    ck_assert_ptr_nonnull(file.copy);
    json_t *copy = json_loads(file.copy, 0, NULL);
    ck_assert_ptr_nonnull(copy);
    error_file_finish(&file);
    return copy;
}

static void copies(const char *text, int exit_code, const char *expected)
{
    json_t *copy = copy_of(text, exit_code), *wanted = json_loads(expected, 0, NULL);
    ck_assert_ptr_nonnull(wanted);
    ck_assert(json_equal(copy, wanted));
    json_decref(copy);
    json_decref(wanted);
}

START_TEST(the_copy_has_the_code)
{
    copies("{\"message\":{\"message\":\"m\",\"extraInfo\":{\"timestamp\":\"5\"}},\"x\":[1]}", 7,
           "{\"message\":{\"message\":\"m\",\"extraInfo\":{\"timestamp\":\"5\"},\"errorCode\":7},"
           "\"x\":[1]}");
    copies("{\"message\":{\"message\":\"m\",\"errorCode\":1}}", -11,
           "{\"message\":{\"message\":\"m\",\"errorCode\":-11}}");
    copies("{\"message\":\"plain\",\"timestamp\":5}", 7, "{\"message\":\"plain\",\"timestamp\":5}");
}
END_TEST

START_TEST(the_copy_of_a_text_is_what_record_writes)
{
    json_t *copy = copy_of("plain \xff text", 7), *message = json_object_get(copy, "message");
    json_t *extra = json_object_get(message, "extraInfo");
    ck_assert_str_eq(json_string_value(json_object_get(message, "message")), "plain ? text");
    ck_assert_int_eq(json_integer_value(json_object_get(message, "errorCode")), 7);
    ck_assert_uint_ge(json_string_length(json_object_get(extra, "timestamp")), 10);
    json_decref(copy);
}
END_TEST

/* Our own file then exists, and holds @text. */
static void is_written(const char *text)
{
    char held[64] = "";
    struct ddp_error error = {0};
    ck_assert_msg(error_file_write(path, text, &error) == DDP_OK, "%s", error.msg);
    struct stat st;
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(S_ISREG(st.st_mode));
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(held, 1, sizeof held, file), strlen(text));
    fclose(file);
    ck_assert_str_eq(held, text);
}

START_TEST(our_own_replaces_what_was_there)
{
    is_written("new");
    is_written("no");
    unlink(path);
    ck_assert_int_eq(symlink("/etc/hostname", path), 0);
    is_written("instead of a link");
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    is_written("instead of a FIFO");
}
END_TEST

START_TEST(our_own_that_cannot_be_written_is_named)
{
    struct ddp_error error = {0};
    ck_assert_int_ne(error_file_write("/nowhere/error.json", "x", &error), DDP_OK);
    ck_assert_ptr_nonnull(strstr(error.msg, "'/nowhere/error.json'"));
    ck_assert_int_ne(error_file_write("/dev/full", "x", &error), DDP_OK);
    ck_assert_ptr_nonnull(strstr(error.msg, "'/dev/full'"));
}
END_TEST

START_TEST(deep_nesting_does_not_end_us)
{
    enum { DEPTH = 500000 };
    char *text = malloc(DEPTH);
    ck_assert_ptr_nonnull(text);
    memset(text, '[', DEPTH);
    struct error_file file = {0};
    write_bytes(text, DEPTH);
    ck_assert_int_eq(error_file_read(path, 7, &file, NULL), DDP_OK);
    ck_assert_uint_eq(strlen(file.message), DEPTH);
    error_file_finish(&file);
    free(text);
}
END_TEST

START_TEST(a_missing_file_is_the_usual_case)
{
    struct error_file file = {0};
    ck_assert_int_eq(error_file_read(path, 7, &file, NULL), DDP_E_NOT_FOUND);
    ck_assert_int_eq(error_file_read("", 7, &file, NULL), DDP_E_NOT_FOUND);
}
END_TEST

START_TEST(a_fifo_does_not_hold_us)
{
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refused("is not a regular file");
}
END_TEST

START_TEST(a_directory_is_refused)
{
    struct error_file file = {0};
    struct ddp_error error = {0};
    ck_assert_int_eq(error_file_read(dir, 7, &file, &error), DDP_E_INVALID);
}
END_TEST

START_TEST(a_symlink_is_not_followed)
{
    struct error_file file = {0};
    struct ddp_error error = {0};
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    ddp_status status = error_file_read(path, 7, &file, &error);
    ck_assert_int_ne(status, DDP_OK);
    ck_assert_int_ne(status, DDP_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.msg, path));
    ck_assert_ptr_null(file.message);
}
END_TEST

START_TEST(size_is_checked_before_anything_is_read)
{
    write_bytes("{\"message\":\"a\"}", 15);
    ck_assert_int_eq(truncate(path, 1024 * 1024 + 1), 0);
    refused("at most 1048576 bytes");
    ck_assert_int_eq(truncate(path, (off_t)1 << 40), 0);
    refused("at most 1048576 bytes");
}
END_TEST

START_TEST(the_largest_file_is_read)
{
    enum { SIZE = 1024 * 1024 };
    char *text = malloc(SIZE + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', SIZE);
    memcpy(text, "{\"message\":\"", 12);
    memcpy(text + SIZE - 2, "\"}", 3);
    struct error_file file = {0};
    struct ddp_error error = {0};
    write_bytes(text, SIZE);
    ck_assert_msg(error_file_read(path, 7, &file, &error) == DDP_OK, "%s", error.msg);
    ck_assert_uint_eq(strlen(file.message), SIZE - 14);
    error_file_finish(&file);
    free(text);
}
END_TEST

START_TEST(without_memory_it_is_an_error)
{
    static const char text[] =
        "{\"message\":{\"message\":\"m\",\"extraInfo\":{\"py_callstack\":\"t\"}}}";
    write_bytes(text, sizeof text - 1);
    for (unsigned successes = 0;; successes++) {
        struct error_file file = {0};
        struct ddp_error error = {0};
        failmem_start(successes);
        ddp_status status = error_file_read(path, 7, &file, &error);
        if (!failmem_stop()) {
            ck_assert_int_eq(status, DDP_OK);
            error_file_finish(&file);
            break;
        }
        if (status == DDP_OK) { /* the traceback alone was too much, or to take it apart */
            ck_assert(strcmp(file.message, "m") == 0 || strcmp(file.message, text) == 0);
            error_file_finish(&file);
        }
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("error_file");
    TCase *tcase = tcase_create("error_file");
    tcase_add_checked_fixture(tcase, make_dir, remove_dir);
    ADD_TESTS(tcase, both_forms_are_read, other_text_is_a_message, bytes_are_not_text,
              an_empty_file_says_nothing, the_copy_has_the_code,
              the_copy_of_a_text_is_what_record_writes, our_own_replaces_what_was_there,
              our_own_that_cannot_be_written_is_named, deep_nesting_does_not_end_us,
              a_missing_file_is_the_usual_case, a_fifo_does_not_hold_us, a_directory_is_refused,
              a_symlink_is_not_followed, size_is_checked_before_anything_is_read,
              the_largest_file_is_read, without_memory_it_is_an_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
