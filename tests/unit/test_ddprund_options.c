/*
 * test_ddprund_options.c - ddprund's command line and environment: what each option sets, how
 * --listen adds up, and the sentences about what cannot be.
 */
#include "check_main.h"
#include "ddprund_options.h"

#include <string.h>

static struct ddprund_options options;
static struct ddp_error err;

/* @words and @variables end with NULL. */
static ddp_status parse(const char *const *words, const char *const *variables)
{
    static char program[] = "ddprund";
    int argc = 0;
    char *argv[32] = {program};
    while (words[argc] != NULL) {
        argv[argc + 1] = (char *)words[argc];
        argc++;
    }
    return ddprund_options_parse(argc + 1, argv, (char *const *)variables, &options, &err);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

#define PARSED(words, variables) ck_assert_msg(parse(words, variables) == DDP_OK, "%s", err.msg)

START_TEST(nothing_given)
{
    PARSED(WORDS(), WORDS());
    static const struct ddpi_server_options expected = {.fair_shares = true,
                                                        .named_jobs_only = true};
    ck_assert_uint_eq(options.listen.count, 0);
    ck_assert_mem_eq(&options.server, &expected, sizeof expected);
    ck_assert_int_eq(options.log_level, DDPI_LOG_INFO);
    ck_assert_uint_eq(options.drain_timeout_ms, 5000);
    ck_assert_ptr_null(options.log_file);
}
END_TEST

static void assert_listens(uint32_t index, const char *host, uint16_t port)
{
    ck_assert_uint_lt(index, options.listen.count);
    ck_assert_str_eq(options.listen.at[index].endpoint.host, host);
    ck_assert_uint_eq(options.listen.at[index].endpoint.port, port);
}

START_TEST(addresses_add_up)
{
    PARSED(WORDS("--listen=127.0.0.1:0,[::1]:29400", "--listen", "node7:1"), WORDS());
    ck_assert_uint_eq(options.listen.count, 3);
    assert_listens(0, "127.0.0.1", 0);
    assert_listens(1, "::1", 29400);
    assert_listens(2, "node7", 1);
}
END_TEST

START_TEST(the_command_line_replaces_the_environment)
{
    PARSED(WORDS(), WORDS("DDPRUND_LISTEN=a:1,b:2", "DDPRUND_MAX_KEYS=5"));
    ck_assert_uint_eq(options.listen.count, 2);
    ck_assert_uint_eq(options.server.max_keys, 5);
    PARSED(WORDS("--listen=c:3", "--listen=d:4", "--max-keys=6"),
           WORDS("DDPRUND_LISTEN=a:1,b:2", "DDPRUND_MAX_KEYS=5"));
    ck_assert_uint_eq(options.listen.count, 2);
    assert_listens(0, "c", 3);
    assert_listens(1, "d", 4);
    ck_assert_uint_eq(options.server.max_keys, 6);
}
END_TEST

START_TEST(every_limit_has_its_option)
{
    PARSED(WORDS("--max-connections=1", "--max-keys=2", "--max-bytes=1M", "--max-value=3K",
                 "--max-waits=4", "--output-limit=128K", "--output-soft-limit=64K",
                 "--output-timeout=1.5s", "--greeting-timeout=20ms", "--request-timeout=2m",
                 "--tcpstore-prefix=p/", "--tcpstore-max-key=5", "--tcpstore-max-value=6K",
                 "--tcpstore-max-keys=7", "--max-half-open=8", "--connection-rate=9",
                 "--max-key=10", "--max-keys-per-wait=11", "--max-watches=12", "--max-sessions=13",
                 "--history=14", "--history-bytes=15", "--max-output-total=65K",
                 "--max-input-total=66K", "--max-job-keys=67", "--max-job-bytes=68K",
                 "--max-job-sessions=69", "--reserve=70K"),
           WORDS());
    const struct ddpi_server_options *server = &options.server;
    ck_assert_uint_eq(server->max_connections, 1);
    ck_assert_uint_eq(server->max_keys, 2);
    ck_assert_uint_eq(server->max_bytes, 1 << 20);
    ck_assert_uint_eq(server->max_value_len, 3 << 10);
    ck_assert_uint_eq(server->max_waits, 4);
    ck_assert_uint_eq(server->output_hard, 128 << 10);
    ck_assert_uint_eq(server->output_soft, 64 << 10);
    ck_assert_uint_eq(server->output_ms, 1500);
    ck_assert_uint_eq(server->handshake_ms, 20);
    ck_assert_uint_eq(server->frame_ms, 120000);
    ck_assert_str_eq(server->tcpstore_prefix, "p/");
    ck_assert_uint_eq(server->tcpstore_max_key_len, 5);
    ck_assert_uint_eq(server->tcpstore_max_value_len, 6 << 10);
    ck_assert_uint_eq(server->tcpstore_max_keys, 7);
    ck_assert_uint_eq(server->max_half_open, 8);
    ck_assert_uint_eq(server->connection_rate, 9);
    ck_assert_uint_eq(server->max_key_len, 10);
    ck_assert_uint_eq(server->max_keys_per_wait, 11);
    ck_assert_uint_eq(server->max_watches, 12);
    ck_assert_uint_eq(server->max_sessions, 13);
    ck_assert_uint_eq(server->history_changes, 14);
    ck_assert_uint_eq(server->history_bytes, 15);
    ck_assert_uint_eq(server->output_total, 65 << 10);
    ck_assert_uint_eq(server->input_total, 66 << 10);
    ck_assert_uint_eq(server->max_job_keys, 67);
    ck_assert_uint_eq(server->max_job_bytes, 68 << 10);
    ck_assert_uint_eq(server->max_job_sessions, 69);
    ck_assert_uint_eq(server->reserve, 70 << 10);
}
END_TEST

START_TEST(the_soft_limit_follows_the_hard_one)
{
    PARSED(WORDS("--output-limit=1M"), WORDS());
    ck_assert_uint_eq(options.server.output_soft, 256 << 10);
}
END_TEST

START_TEST(log_and_authentication)
{
    PARSED(WORDS("--log-level=debug", "--log-file=x", "--no-auth", "--drain-timeout=0"), WORDS());
    ck_assert_int_eq(options.log_level, DDPI_LOG_DEBUG);
    ck_assert_str_eq(options.log_file, "x");
    ck_assert_int_eq(options.server.auth, DDPI_SERVER_AUTH_NEVER);
    ck_assert_uint_eq(options.drain_timeout_ms, 0);
    PARSED(WORDS("--auth=always", "--token-file=t", "--token-fd=7"), WORDS("DDPRUND_NO_AUTH=1"));
    ck_assert_int_eq(options.server.auth, DDPI_SERVER_AUTH_ALWAYS);
    ck_assert_str_eq(options.token_file, "t");
    ck_assert_uint_eq(options.token_fd, 7);
    PARSED(WORDS(), WORDS("DDPRUND_NO_AUTH=0", "DDPRUN_TOKEN_FILE=e"));
    ck_assert_int_eq(options.server.auth, DDPI_SERVER_AUTH_DEFAULT);
    ck_assert_str_eq(options.token_file, "e");
    PARSED(WORDS("--auth=never"), WORDS());
    ck_assert_int_eq(options.server.auth, DDPI_SERVER_AUTH_NEVER);
}
END_TEST

static const struct {
    const char *word, *text;
} refused[] = {
    {"--listen=", "''"},
    {"--listen=localhost", "port 0 takes a free port"},
    {"--listen=29400", "no port"},
    {"--listen=::1:80", "'::1:80'"},
    {"--listen=a:1,,b:2", "''"},
    {"--listen=a:65536", "65535"},
    {"--listen=a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1", "16"},
    {"--max-connections=0", "'0'"},
    {"--max-keys=-1", "'-1'"},
    {"--max-bytes=1", "4096"},
    {"--max-bytes=99999999G", "limit"},
    {"--max-value=17M", "16777216"},
    {"--max-value=0", "'0'"},
    {"--output-limit=x", "'x'"},
    {"--max-half-open=0", "'0'"},
    {"--connection-rate=0", "'0'"},
    {"--connection-rate=1000001", "1000000"},
    {"--max-key=0", "'0'"},
    {"--max-key=4097", "4096"},
    {"--max-keys-per-wait=4097", "4096"},
    {"--max-watches=0", "'0'"},
    {"--max-sessions=0", "'0'"},
    {"--history=-1", "'-1'"},
    {"--history-bytes=0", "'0'"},
    {"--max-output-total=1K", "65536"},
    {"--max-input-total=1K", "65536"},
    {"--output-timeout=0", "1 ms"},
    {"--request-timeout=25h", "--request-timeout"},
    {"--tcpstore-max-keys=131073", "131072"},
    {"--log-level=loud", "'loud'"},
    {"--drain-timeout=soon", "'soon'"},
    {"--no-auth=yes", "--no-auth"},
    {"--auth=yes", "default|always|never"},
    {"--token-fd=0", "'0'"},
    {"--lisen=a:1", "--listen"},
    {"operand", "'operand'"},
};

START_TEST(refusals)
{
    char word[200];
    snprintf(word, sizeof word, "%s", refused[_i].word);
    options.log_file = "unchanged";
    ck_assert_int_eq(parse(WORDS(word), WORDS()), DDP_E_INVALID);
    ck_assert_msg(strstr(err.msg, refused[_i].text) != NULL, "%s", err.msg);
    ck_assert_str_eq(options.log_file, "unchanged");
}
END_TEST

START_TEST(a_long_address_is_not_cut)
{
    char word[1000] = "--listen=";
    memset(word + strlen(word), 'h', 600);
    memcpy(word + strlen(word), ":1", 3);
    ck_assert_int_eq(parse(WORDS(word), WORDS()), DDP_E_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("ddprund_options");
    TCase *tcase = tcase_create("parse");
    ADD_TESTS(tcase, nothing_given, addresses_add_up, the_command_line_replaces_the_environment,
              every_limit_has_its_option, the_soft_limit_follows_the_hard_one,
              log_and_authentication);
    tcase_add_loop_test(tcase, refusals, 0, (int)(sizeof refused / sizeof *refused));
    tcase_add_test(tcase, a_long_address_is_not_cut);
    suite_add_tcase(suite, tcase);
    return suite;
}
