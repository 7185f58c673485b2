/*
 * test_log.c - what reaches the sink: levels, one line per call, cut when too long.
 */
#include "check_main.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

struct sink {
    unsigned calls;
    enum ddpi_log_level level;
    char line[2048];
};

static void keep(void *ctx, enum ddpi_log_level level, const char *line)
{
    struct sink *sink = ctx;
    sink->calls++;
    sink->level = level;
    snprintf(sink->line, sizeof sink->line, "%s", line);
}

static struct ddpi_log log_to(struct sink *sink, enum ddpi_log_level max_level)
{
    *sink = (struct sink){0};
    return (struct ddpi_log){.write = keep, .ctx = sink, .max_level = max_level};
}

START_TEST(a_line_arrives_formatted)
{
    struct sink sink;
    struct ddpi_log log = log_to(&sink, DDPI_LOG_DEBUG);
    ddpi_log(&log, DDPI_LOG_WARN, "rank %d of %s", 3, "job");
    ck_assert_uint_eq(sink.calls, 1);
    ck_assert_int_eq(sink.level, DDPI_LOG_WARN);
    ck_assert_str_eq(sink.line, "rank 3 of job");
}
END_TEST

START_TEST(only_wanted_levels_arrive)
{
    for (int max = DDPI_LOG_ERROR; max <= DDPI_LOG_DEBUG; max++) {
        struct sink sink;
        struct ddpi_log log = log_to(&sink, (enum ddpi_log_level)max);
        for (int level = DDPI_LOG_ERROR; level <= DDPI_LOG_DEBUG; level++)
            ddpi_log(&log, (enum ddpi_log_level)level, "x");
        ck_assert_uint_eq(sink.calls, (unsigned)max + 1);
    }
}
END_TEST

START_TEST(no_sink_drops_everything)
{
    struct ddpi_log log = {0};
    ddpi_log(NULL, DDPI_LOG_ERROR, "x");
    ddpi_log(&log, DDPI_LOG_ERROR, "x");
}
END_TEST

START_TEST(a_long_line_is_cut)
{
    struct sink sink;
    struct ddpi_log log = log_to(&sink, DDPI_LOG_DEBUG);
    ddpi_log(&log, DDPI_LOG_INFO, "%1023d", 7);
    ck_assert_uint_eq(strlen(sink.line), 1023);
    ck_assert_int_eq(sink.line[1022], '7');
    ddpi_log(&log, DDPI_LOG_INFO, "%5000d", 7);
    ck_assert_uint_eq(strlen(sink.line), 1023);
}
END_TEST

/* Names and messages in a log line come from other machines. */
START_TEST(control_characters_cannot_forge_a_line)
{
    struct sink sink;
    struct ddpi_log log = log_to(&sink, DDPI_LOG_DEBUG);
    ddpi_log(&log, DDPI_LOG_INFO, "node %s", "a\nerror: b\r\x1b[2J\x7f\tc \xc3\xa9");
    ck_assert_str_eq(sink.line, "node a?error: b??[2J?\tc \xc3\xa9");
}
END_TEST

START_TEST(levels_have_names)
{
    ck_assert_str_eq(ddpi_log_level_name(DDPI_LOG_ERROR), "error");
    ck_assert_str_eq(ddpi_log_level_name(DDPI_LOG_WARN), "warning");
    ck_assert_str_eq(ddpi_log_level_name(DDPI_LOG_INFO), "info");
    ck_assert_str_eq(ddpi_log_level_name(DDPI_LOG_DEBUG), "debug");
    ck_assert_str_eq(ddpi_log_level_name((enum ddpi_log_level)4), "unknown");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");
    ADD_TESTS(tcase, a_line_arrives_formatted, only_wanted_levels_arrive, no_sink_drops_everything,
              a_long_line_is_cut, control_characters_cannot_forge_a_line, levels_have_names);
    suite_add_tcase(suite, tcase);
    return suite;
}
