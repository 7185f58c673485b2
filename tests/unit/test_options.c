/*
 * test_options.c - command lines and environment defaults from a table.
 */
#include "check_main.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

struct config {
    const char *name;
    uint32_t count;
    uint64_t pause_ms;
    bool loud;
};

#define FIELD(member) offsetof(struct config, member)

static const struct option table[] = {
    {"full-name", 'n', "NAME", "T_NAME T_OLD_NAME", "nobody", "One", "who", option_text,
     FIELD(name), 0, 0},
    {"full-count", 0, "N", "T_COUNT", NULL, "One", "how many", option_u32, FIELD(count), 1, 8},
    {"pause", 0, "DURATION", "T_PAUSE", NULL, "Two", "how long", option_duration, FIELD(pause_ms),
     0, 5000},
    {"loud", 'l', NULL, "T_LOUD", NULL, "Two", "make noise", option_switch, FIELD(loud), 0, 0},
    {"show", 0, NULL, NULL, NULL, "Two", "a text", option_show, FIELD(loud), 0, 0},
    {"secret", 0, "X", "T_SECRET", NULL, "Two", "nobody may; leave it out", NULL, 0, 0, 0},
};

static const struct option_table options = {.program = "tool",
                                            .refused_heading = "Refused",
                                            .options = table,
                                            .count = sizeof table / sizeof *table};

static char *no_env[] = {NULL};
static struct ddp_error error;

/* @line is cut at blanks; the program's name is put in front. */
static ddp_status parse(const char *line, char **env, struct config *config, int *ret_operand)
{
    static char words[512], program[] = "tool";
    char *argv[32] = {program}, *save = NULL;
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    *config = (struct config){.name = "nobody"};
    return options_parse(&options, argc, argv, env, config, ret_operand, &error);
}

static struct config good(const char *line, char **env, int operand)
{
    struct config config;
    int at = 0;
    ck_assert_msg(parse(line, env, &config, &at) == DDP_OK, "%s", error.msg);
    ck_assert_int_eq(at, operand);
    return config;
}

/* The sentence must contain each of the texts, the last of which is NULL. */
static void bad(const char *line, char **env, const char *const *texts)
{
    struct config config;
    int at = -1;
    ck_assert_int_ne(parse(line, env, &config, &at), DDP_OK);
    ck_assert_int_eq(at, -1);
    for (; *texts != NULL; texts++)
        ck_assert_msg(strstr(error.msg, *texts) != NULL, "'%s' lacks '%s'", error.msg, *texts);
}

#define BAD(line, env, ...) bad(line, env, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(spellings)
{
    ck_assert_uint_eq(good("--full-count=3", no_env, 2).count, 3);
    ck_assert_uint_eq(good("--full_count 3", no_env, 3).count, 3);
    ck_assert_uint_eq(good("--full-c=3 --full_c=4", no_env, 3).count, 4);
    ck_assert_str_eq(good("-n me", no_env, 3).name, "me");
    ck_assert_str_eq(good("-nme", no_env, 2).name, "me");
    ck_assert_str_eq(good("-n=me", no_env, 2).name, "me");
    ck_assert(good("-l", no_env, 2).loud);
    ck_assert_uint_eq(good("--pause=1.5", no_env, 2).pause_ms, 1500);
}
END_TEST

START_TEST(where_the_options_end)
{
    ck_assert(!good("program --loud", no_env, 1).loud);
    ck_assert(!good("-- --loud", no_env, 2).loud);
    ck_assert(good("--loud - x", no_env, 2).loud);
    good("", no_env, 1);
}
END_TEST

START_TEST(a_text_that_is_asked_for_needs_nothing_else)
{
    char count[] = "T_COUNT=x";
    char *env[] = {count, NULL};
    ck_assert(good("--show", env, 2).loud);
    ck_assert(good("--full-count=2 --show --no-such-option program", env, 5).loud);
    BAD("--full-count=x --show", no_env, "'x'");
}
END_TEST

START_TEST(the_environment_fills_what_is_left_open)
{
    char name[] = "T_NAME=env", old[] = "T_OLD_NAME=old", count[] = "T_COUNT=5", on[] = "T_LOUD=1";
    char *env[] = {old, name, count, on, NULL}, *only_old[] = {old, NULL};
    struct config config = good("--full-count=2", env, 2);
    ck_assert_str_eq(config.name, "env");
    ck_assert_uint_eq(config.count, 2);
    ck_assert(config.loud);
    ck_assert_str_eq(good("", only_old, 1).name, "old");
}
END_TEST

START_TEST(a_variable_that_is_overridden_is_not_read)
{
    char count[] = "T_COUNT=x", secret[] = "T_SECRET=1";
    char *env[] = {count, NULL}, *refused[] = {secret, NULL};
    ck_assert_uint_eq(good("--full-count=2", env, 2).count, 2);
    BAD("", env, "the environment variable T_COUNT", "'x'", "from 1 to 8");
    BAD("", refused, "the environment variable T_SECRET", "leave it out");
}
END_TEST

/* The whole name, as mpirun's -np; a part of it is letters. */
START_TEST(one_dash_and_the_whole_name)
{
    ck_assert_uint_eq(good("-pause=3", no_env, 2).pause_ms, 3000);
    ck_assert_uint_eq(good("-pause 3", no_env, 3).pause_ms, 3000);
    BAD("-paus=3", no_env, "'-paus'", "'--pause'");
}
END_TEST

START_TEST(an_unknown_option_gets_the_nearest)
{
    BAD("--full-cuont=3", no_env, "'--full-cuont'", "did you mean '--full-count'?");
    BAD("--Loud", no_env, "'--Loud'", "did you mean '--loud'?");
    BAD("--bogus=1", no_env, "there is no option '--bogus' ('tool --help' lists all)");
    BAD("-puase=3", no_env, "'-puase'", "did you mean '--pause'?");
    BAD("-x", no_env, "there is no option '-x' ('tool --help' lists all)");
    BAD("-fo", no_env, "there is no option '-fo' (");
    BAD("--full", no_env, "'--full'", "--full-name or --full-count");
}
END_TEST

START_TEST(values_that_are_wrong)
{
    BAD("--full-count=9", no_env, "--full-count", "'9'", "1 to 8");
    BAD("--full-count=", no_env, "--full-count", "''", "1 to 8");
    BAD("--full-count", no_env, "--full-count=N");
    BAD("--pause=1h", no_env, "--pause", "'1h'", "5000 ms");
    BAD("--loud=yes", no_env, "--loud", "'yes'", "omit it");
    BAD("--secret=1", no_env, "--secret", "leave it out");
}
END_TEST

static char *printed(void (*print)(const struct option_table *, FILE *))
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    ck_assert_ptr_nonnull(out);
    print(&options, out);
    fclose(out);
    return text;
}

START_TEST(help_has_each_option_and_each_group_once)
{
    char *help = printed(options_print_help), *man = printed(options_print_man);
    const char *two = strstr(help, "\nTwo\n");
    ck_assert_ptr_nonnull(strstr(help, "-n, --full-name=NAME"));
    ck_assert_ptr_nonnull(strstr(help, "who (default: nobody)"));
    ck_assert_ptr_nonnull(two);
    ck_assert_ptr_null(strstr(two + 1, "\nTwo\n"));
    ck_assert_ptr_nonnull(strstr(help, "Refused\n  --secret\n"));
    ck_assert_ptr_nonnull(strstr(man, ".SS One\n"));
    ck_assert_ptr_nonnull(strstr(man, "\\-n\\fR, \\fB\\-\\-full\\-name\\fR=\\fINAME\\fR\n"));
    ck_assert_ptr_nonnull(strstr(man, "Environment: \\fBT_COUNT\\fR"));
    free(help);
    free(man);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("parse");
    ADD_TESTS(tcase, spellings, where_the_options_end, a_text_that_is_asked_for_needs_nothing_else,
              the_environment_fills_what_is_left_open, a_variable_that_is_overridden_is_not_read,
              one_dash_and_the_whole_name, an_unknown_option_gets_the_nearest,
              values_that_are_wrong, help_has_each_option_and_each_group_once);
    suite_add_tcase(suite, tcase);
    return suite;
}
