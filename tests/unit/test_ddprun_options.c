/*
 * test_ddprun_options.c - ddprun's option table, and what per-rank lists mean.
 */
#include "check_main.h"
#include "ddprun_options.h"
#include "foreign_options.h"
#include "local_ranks.h"

#include <string.h>

static char *no_env[] = {NULL};
static struct ddp_error error;

static void streams(const char *text, uint32_t nproc, const char *expected)
{
    uint8_t bits[16];
    ck_assert_msg(local_ranks_parse_streams(text, nproc, bits, &error) == DDP_OK, "%s", error.msg);
    for (uint32_t i = 0; i < nproc; i++)
        ck_assert_int_eq(bits[i], expected[i] - '0');
}

START_TEST(streams_of_all_ranks_or_some)
{
    streams("0", 3, "000");
    streams("3", 3, "333");
    streams("0:3,2:1", 3, "301");
    streams("10:2", 11, "00000000002");
}
END_TEST

START_TEST(ranks_that_are_shown)
{
    bool hidden[3];
    ck_assert_int_eq(local_ranks_parse_filter("", 3, hidden, &error), DDP_OK);
    ck_assert(!hidden[0] && !hidden[1] && !hidden[2]);
    ck_assert_int_eq(local_ranks_parse_filter("2,0", 3, hidden, &error), DDP_OK);
    ck_assert(!hidden[0] && hidden[1] && !hidden[2]);
    ck_assert_int_eq(local_ranks_parse_filter("3", 3, hidden, &error), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(error.msg, "'3' is not a local rank"));
    ck_assert_ptr_nonnull(strstr(error.msg, "0 to 2"));
}
END_TEST

/* What each option gets when its variable, or it itself, is malformed: the source, the text. */
static const struct {
    const char *option;
    const char *variable;
    const char *value;
} malformed[] = {
    {"--nproc-per-node", "PET_NPROC_PER_NODE", "4x"},
    {"--nnodes", "PET_NNODES", "3:2"},
    {"--node-rank", "PET_NODE_RANK", "first"},
    {"--rdzv-conf", "PET_RDZV_CONF", "joined"},
    {"--lease", "", "1ms"},
    {"--join-policy", "", "soon"},
    {"--max-restarts", "PET_MAX_RESTARTS", "-1"},
    {"--rdzv-backend", "PET_RDZV_BACKEND", "etcd"},
    {"--rdzv-endpoint", "PET_RDZV_ENDPOINT", "a:b:c"},
    {"--master-port", "PET_MASTER_PORT", "65536"},
    {"--shutdown-timeout", "PET_SHUTDOWN_TIMEOUT", "soon"},
    {"--monitor-interval", "PET_MONITOR_INTERVAL", "often"},
    {"--redirects", "PET_REDIRECTS", "7"},
    {"--tee", "PET_TEE", "0:3,x"},
    {"--local-ranks-filter", "PET_LOCAL_RANKS_FILTER", "first"},
    {"--signals-to-handle", "PET_SIGNALS_TO_HANDLE", "SIGFOO"},
    {"--start-method", "PET_START_METHOD", "fork"},
    {"--event-log-handler", "PET_EVENT_LOG_HANDLER", "wandb"},
};

static void refused(char **argv, int argc, char **env, const char *source, const char *value)
{
    struct ddprun_options options;
    int operand;
    ddprun_options_init(&options);
    ck_assert_int_ne(
        options_parse(&ddprun_option_table, argc, argv, env, &options, &operand, &error), DDP_OK);
    ck_assert_msg(strstr(error.msg, source) != NULL, "'%s' lacks '%s'", error.msg, source);
    ck_assert_msg(strstr(error.msg, value) != NULL, "'%s' lacks '%s'", error.msg, value);
}

START_TEST(a_malformed_value_names_its_source)
{
    char program[] = "ddprun", word[128], entry[128];
    const char *value = malformed[_i].value;
    snprintf(word, sizeof word, "%s=%s", malformed[_i].option, value);
    snprintf(entry, sizeof entry, "%s=%s", malformed[_i].variable, value);
    char *argv[] = {program, word, NULL}, *env[] = {entry, NULL};
    const char *shown = strcmp(value, "0:3,x") == 0 ? "'x'" : value;
    refused(argv, 2, no_env, malformed[_i].option, shown);
    if (malformed[_i].variable[0] != '\0')
        refused(argv, 1, env, malformed[_i].variable, shown);
}
END_TEST

/* What --settle, --lease and --join-timeout come to, in milliseconds. */
static const struct {
    const char *words[3];
    const char *variable;
    uint64_t settle_ms, lease_ms, join_timeout_ms;
} durations[] = {
    {{NULL}, "X=", 1000, 3000, 600000},
    {{"--rdzv-conf=last_call_timeout=4,timeout=5,keep_alive_interval=2"}, "X=", 4000, 6000, 5000},
    {{NULL}, "PET_RDZV_CONF=last_call_timeout=4", 4000, 3000, 600000},
    {{"--settle=2", "--lease=1s"}, "PET_RDZV_CONF=last_call_timeout=4", 2000, 1000, 600000},
    {{"--settle=0", "--rdzv-conf=last_call_timeout=4"}, "X=", 0, 3000, 600000},
};

START_TEST(an_option_counts_more_than_torchruns_setting)
{
    char program[] = "ddprun", words[3][128], variable[128], *argv[4] = {program};
    char *env[] = {variable, NULL};
    int argc = 1, operand;
    struct ddprun_options options;
    for (size_t i = 0; i < 3 && durations[_i].words[i] != NULL; i++, argc++) {
        snprintf(words[i], sizeof words[i], "%s", durations[_i].words[i]);
        argv[argc] = words[i];
    }
    snprintf(variable, sizeof variable, "%s", durations[_i].variable);
    ddprun_options_init(&options);
    ck_assert_int_eq(
        options_parse(&ddprun_option_table, argc, argv, env, &options, &operand, &error), DDP_OK);
    ck_assert_int_eq(ddprun_options_complete(&options, &error), DDP_OK);
    ck_assert_uint_eq(options.settle_ms, durations[_i].settle_ms);
    ck_assert_uint_eq(options.lease_ms, durations[_i].lease_ms);
    ck_assert_uint_eq(options.join_timeout_ms, durations[_i].join_timeout_ms);
}
END_TEST

START_TEST(each_option_of_the_table_says_enough)
{
    const struct option *options = ddprun_option_table.options, *before = NULL;
    for (size_t i = 0; i < ddprun_option_table.count; i++) {
        bool listed = option_is_listed(&options[i]);
        bool begins = listed && before != NULL && strcmp(options[i].group, before->group) != 0;
        ck_assert_uint_gt(strlen(options[i].help), 0);
        for (size_t j = 0; j < i; j++) {
            ck_assert_str_ne(options[i].name, options[j].name);
            /* A group that begins twice would have two headings. */
            if (begins && option_is_listed(&options[j]))
                ck_assert_str_ne(options[i].group, options[j].group);
        }
        before = listed ? &options[i] : before;
    }
}
END_TEST

/* A word that ddprun takes, or takes for the beginning of one of its own, never gets to its row. */
START_TEST(what_other_launchers_say_gets_an_answer)
{
    for (const struct option_foreign *row = ddprun_foreign_options; row->word != NULL; row++) {
        char program[] = "ddprun", word[64];
        char *argv[] = {program, word, NULL};
        snprintf(word, sizeof word, "%s", row->word);
        refused(argv, 2, no_env, row->of, row->instead);
        ck_assert_ptr_nonnull(strstr(error.msg, row->word));
        ck_assert_ptr_null(strstr(error.msg, "nearest"));
        for (const struct option_foreign *other = row + 1; other->word != NULL; other++)
            ck_assert_str_ne(row->word, other->word);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("ddprun_options");
    TCase *tcase = tcase_create("ddprun_options");
    tcase_add_test(tcase, streams_of_all_ranks_or_some);
    tcase_add_test(tcase, ranks_that_are_shown);
    tcase_add_loop_test(tcase, a_malformed_value_names_its_source, 0,
                        sizeof malformed / sizeof *malformed);
    tcase_add_loop_test(tcase, an_option_counts_more_than_torchruns_setting, 0,
                        sizeof durations / sizeof *durations);
    tcase_add_test(tcase, each_option_of_the_table_says_enough);
    tcase_add_test(tcase, what_other_launchers_say_gets_an_answer);
    suite_add_tcase(suite, tcase);
    return suite;
}
