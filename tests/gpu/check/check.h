/*
 * check.h - what the tests of device memory use of the test library Check, for machines that have a
 * GPU and no Check: the same sources run on both. See check.c for what becomes of a test.
 */
#ifndef TESTS_GPU_CHECK_H
#define TESTS_GPU_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct Suite Suite;
typedef struct TCase TCase;
typedef struct SRunner SRunner;

enum print_output { CK_ENV };
enum fork_status { CK_FORK, CK_NOFORK };

typedef struct TTest {
    const char *name;
    void (*run)(int _i);
} TTest;

Suite *suite_create(const char *name);
void suite_add_tcase(Suite *suite, TCase *tcase);
TCase *tcase_create(const char *name);
void check_add(TCase *tcase, const TTest *test, int first, int end);
SRunner *srunner_create(Suite *suite);
void srunner_set_fork_status(SRunner *runner, enum fork_status status);
void srunner_run_all(SRunner *runner, enum print_output output);
int srunner_ntests_failed(SRunner *runner);
void srunner_free(SRunner *runner);

#define START_TEST(name)                                 \
    static void name##_fn(int _i);                       \
    static const TTest name##_test = {#name, name##_fn}; \
    static const TTest *const name = &name##_test;       \
    static void name##_fn(int _i)                        \
    {                                                    \
        (void)_i;
#define END_TEST }

#define tcase_add_test(tcase, test)                  check_add(tcase, test, 0, 1)
#define tcase_add_loop_test(tcase, test, first, end) check_add(tcase, test, first, end)

/* Ends the test. */
_Noreturn void check_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define ck_abort_msg(...) check_fail(__FILE__, __LINE__, __VA_ARGS__)

#define ck_assert_msg(condition, ...)                    \
    do {                                                 \
        if (!(condition))                                \
            check_fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

#define ck_assert(condition) ck_assert_msg(condition, "%s", #condition)

#define CHECK_NUMBERS(type, format, a, relation, b)                                                \
    do {                                                                                           \
        type a_ = (a), b_ = (b);                                                                   \
        ck_assert_msg(a_ relation b_, "%s %s %s: %" format " and %" format, #a, #relation, #b, a_, \
                      b_);                                                                         \
    } while (0)

#define ck_assert_int_eq(a, b)  CHECK_NUMBERS(intmax_t, PRIdMAX, a, ==, b)
#define ck_assert_int_ne(a, b)  CHECK_NUMBERS(intmax_t, PRIdMAX, a, !=, b)
#define ck_assert_int_lt(a, b)  CHECK_NUMBERS(intmax_t, PRIdMAX, a, <, b)
#define ck_assert_int_le(a, b)  CHECK_NUMBERS(intmax_t, PRIdMAX, a, <=, b)
#define ck_assert_int_gt(a, b)  CHECK_NUMBERS(intmax_t, PRIdMAX, a, >, b)
#define ck_assert_int_ge(a, b)  CHECK_NUMBERS(intmax_t, PRIdMAX, a, >=, b)
#define ck_assert_uint_eq(a, b) CHECK_NUMBERS(uintmax_t, PRIuMAX, a, ==, b)
#define ck_assert_uint_ne(a, b) CHECK_NUMBERS(uintmax_t, PRIuMAX, a, !=, b)
#define ck_assert_uint_lt(a, b) CHECK_NUMBERS(uintmax_t, PRIuMAX, a, <, b)
#define ck_assert_uint_le(a, b) CHECK_NUMBERS(uintmax_t, PRIuMAX, a, <=, b)
#define ck_assert_uint_gt(a, b) CHECK_NUMBERS(uintmax_t, PRIuMAX, a, >, b)
#define ck_assert_uint_ge(a, b) CHECK_NUMBERS(uintmax_t, PRIuMAX, a, >=, b)

#define ck_assert_ptr_nonnull(a) ck_assert_msg((a) != NULL, "%s is NULL", #a)
#define ck_assert_ptr_null(a)    ck_assert_msg((a) == NULL, "%s is not NULL", #a)
#define ck_assert_ptr_eq(a, b)   ck_assert_msg((a) == (b), "%s is not %s", #a, #b)
#define ck_assert_ptr_ne(a, b)   ck_assert_msg((a) != (b), "%s is %s", #a, #b)

#define ck_assert_str_eq(a, b)                                                      \
    ck_assert_msg(strcmp(a, b) == 0, "%s is '%s', not '%s'", #a, (const char *)(a), \
                  (const char *)(b))
#define ck_assert_mem_eq(a, b, len) ck_assert_msg(memcmp(a, b, len) == 0, "%s is not %s", #a, #b)

#endif
