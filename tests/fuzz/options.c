/*
 * options.c - fuzzes the command lines of ddprun and ddprund. What is accepted is in the ranges
 * that the tables promise, and every text in it is one of those given, or a default.
 *
 * The input is words with NUL between them: the first byte says how many of them are variables of
 * the environment, the others are argv[1] and so on.
 */
#include "ddprun_options.h"
#include "ddprund_options.h"
#include "fuzz.h"
#include "host.h"
#include "local_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 32, NPROC_MAX = HOST_NPROC_MAX };

struct words {
    char *envp[WORDS_MAX + 1];
    char *argv[WORDS_MAX + 2];
    int argc;
    char *text[WORDS_MAX]; /* all of them, each in a block of its own */
    size_t count;
};

static void split(struct words *words, const uint8_t *data, size_t size)
{
    static char program[] = "program";
    size_t nenv = size > 0 ? data[0] % 8 : 0, env = 0;
    words->argv[words->argc++] = program;
    for (size_t at = 1; at < size && words->count < WORDS_MAX;) {
        char *word = fuzz_text(data + at, size - at);
        at += strlen(word) + 1;
        words->text[words->count++] = word;
        if (env < nenv)
            words->envp[env++] = word;
        else
            words->argv[words->argc++] = word;
    }
}

/* NULL, a default, or the end of a word that was given. */
static bool is_given(const struct words *words, const char *text, const char *standard)
{
    bool found = text == NULL || (standard != NULL && strcmp(text, standard) == 0);
    for (size_t i = 0; i < words->count && !found; i++) {
        size_t word_len = strlen(words->text[i]), len = strlen(text);
        found = len <= word_len && text == words->text[i] + word_len - len;
    }
    return found;
}

static void check_texts(const struct words *words, const struct ddprun_options *options,
                        const struct ddprun_options *standard)
{
#define CHECK(field) HOLDS(is_given(words, options->field, standard->field))
    CHECK(workers);
    CHECK(rdzv_id);
    CHECK(agent.role);
    CHECK(log_dir);
    CHECK(redirects);
    CHECK(tee);
    CHECK(local_ranks_filter);
    CHECK(line_template);
    CHECK(signals_to_handle);
    CHECK(forward_signals);
    CHECK(master_addr);
    CHECK(local_addr);
#undef CHECK
}

static void check_ddprun(struct words *words)
{
    struct ddprun_options options, standard;
    struct ddp_error err;
    int operand = -1;
    uint8_t bits[NPROC_MAX];
    bool hidden[NPROC_MAX];
    ddprun_options_init(&standard);
    ddprun_options_init(&options);
    ddp_status status = options_parse(&ddprun_option_table, words->argc, words->argv, words->envp,
                                      &options, &operand, &err);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        HOLDS(operand == -1);
        return;
    }
    HOLDS(operand >= 1 && operand <= words->argc);
    HOLDS(host_check_workers(options.workers, NULL) == DDP_OK);
    HOLDS(options.master_port <= UINT16_MAX || options.master_port == UINT32_MAX);
    HOLDS(options.agent.max_restarts <= 1000000);
    HOLDS(options.agent.shutdown_timeout_ms <= 24 * 3600 * 1000);
    HOLDS(options.rdzv_endpoints.count <= DDPI_ENDPOINTS_MAX);
    for (uint32_t i = 0; i < options.rdzv_endpoints.count; i++)
        HOLDS(strnlen(options.rdzv_endpoints.at[i].host, DDPI_HOST_MAX) < DDPI_HOST_MAX);
    check_texts(words, &options, &standard);
    HOLDS(local_ranks_parse_streams(options.tee, NPROC_MAX, bits, NULL) == DDP_OK);
    HOLDS(local_ranks_parse_filter(options.local_ranks_filter, NPROC_MAX, hidden, NULL) == DDP_OK);
}

static void check_ddprund(struct words *words)
{
    struct ddprund_options options = {.drain_timeout_ms = 4711};
    struct ddp_error err;
    ddp_status status =
        ddprund_options_parse(words->argc, words->argv, words->envp, &options, &err);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        HOLDS(options.drain_timeout_ms == 4711);
        return;
    }
    HOLDS(options.listen.count <= DDPRUND_LISTEN_MAX);
    for (uint32_t i = 0; i < options.listen.count; i++)
        HOLDS(options.listen.at[i].endpoint.has_port &&
              options.listen.at[i].endpoint.host[0] != '\0');
    HOLDS(options.server.auth <= DDPI_SERVER_AUTH_NEVER);
    HOLDS(is_given(words, options.token_file, NULL));
    HOLDS(options.token_fd == 0 || options.token_fd >= 3);
    HOLDS(options.server.max_value_len <= 16 << 20 && options.server.max_waits <= 1000000);
    HOLDS(options.server.output_hard == 0 || options.server.output_soft != 0);
    HOLDS(options.log_level <= DDPI_LOG_DEBUG);
    HOLDS(is_given(words, options.log_file, NULL));
    HOLDS(is_given(words, options.server.tcpstore_prefix, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct words words = {0};
    split(&words, data, size);
    check_ddprun(&words);
    check_ddprund(&words);
    for (size_t i = 0; i < words.count; i++)
        free(words.text[i]);
    return 0;
}
