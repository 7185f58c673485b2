/*
 * ddpctl_store.c - the verb "store": one action on a store, through the public client. Owns the
 * handle. What was asked for goes to stdout, raw or as one JSON object; sentences go to stderr.
 */
#include "buf.h"
#include "ddpctl.h"
#include "error.h"
#include "mem.h"
#include "parse.h"
#include "token.h"

#include <ctype.h>
#include <ddprun/store.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum {
    CONNECT_MIN_MS = 1000,
    CHUNK = 64 * 1024,
    WORDS_MAX = DDP_STORE_MANY_MAX,
};

struct store_options {
    const char *endpoint;
    const char *prefix;
    uint64_t timeout_ms;
    const char *token_file;
    uint32_t token_fd; /* 0: not given */
    bool no_auth;
    struct ddpctl_role role;
    const char *job;
    uint64_t epoch;
    int64_t if_version; /* -1: not given */
    bool json;
    bool help;
};

#define FIELD(member) offsetof(struct store_options, member)
#define OPTIONS       "Options"
#define IDENTITY      "Authentication"

static ddp_status parse_version(const struct option *option, const char *text, void *field,
                                struct ddp_error *err)
{
    return ddpi_parse_int(text, option->min, option->max, field, err);
}

static const struct option table[] = {
    {"endpoint", 0, "HOST:PORT", "DDPRUN_STORE", NULL, OPTIONS, "the store", option_text,
     FIELD(endpoint), 0, 0},
    {"prefix", 0, "TEXT", "DDPRUN_STORE_PREFIX", NULL, OPTIONS,
     "put in front of every key; list shows keys without it", option_text, FIELD(prefix), 0, 0},
    {"timeout", 0, "DURATION", NULL, "5s", OPTIONS,
     "how long to try to reach the store, and then to wait for the answer: seconds, or with a "
     "unit: "
     "500ms, 2m",
     option_duration, FIELD(timeout_ms), 0, INT64_C(49) * 24 * 3600 * 1000},
    {"if-version", 0, "N", NULL, NULL, OPTIONS,
     "set only if the key still has this version; 0: if it does not exist", parse_version,
     FIELD(if_version), 0, INT64_MAX},
    {"json", 0, NULL, NULL, NULL, OPTIONS,
     "one JSON object on a line; what is not UTF-8 stands as {\"base64\": \"...\"}", option_switch,
     FIELD(json), 0, 0},
    {"token-file", 0, "FILE", "DDPRUN_TOKEN_FILE",
     "~/.config/ddprun/token, for stores on other machines", IDENTITY,
     "prove by the token in FILE, or by a key made by 'ddpctl token derive', who this is, and have "
     "the store do the same",
     option_text, FIELD(token_file), 0, 0},
    {"token-fd", 0, "N", "DDPRUN_TOKEN_FD", NULL, IDENTITY,
     "the same from the open descriptor N, before --token-file", option_u32, FIELD(token_fd), 3,
     INT32_MAX},
    {"no-auth", 0, NULL, NULL, NULL, IDENTITY,
     "prove nothing, and take whatever answers for the store", option_switch, FIELD(no_auth), 0, 0},
    {"role", 0, "ROLE", NULL, "agent, or what the key is for", IDENTITY,
     "agent, worker or observer: be allowed no more than that", ddpctl_option_role, FIELD(role), 0,
     0},
    {"job", 0, "NAME", NULL, NULL, IDENTITY, "belong to this job", option_text, FIELD(job), 0, 0},
    {"epoch", 0, "N", NULL, "0", IDENTITY, "and to this epoch of it", ddpctl_option_number,
     FIELD(epoch), 0, INT64_MAX},
    {"help", 'h', NULL, NULL, NULL, OPTIONS, "this list", option_switch, FIELD(help), 0, 0},
};

const struct option_table ddpctl_store_table = {
    .program = "ddpctl store", .options = table, .count = sizeof table / sizeof *table};

struct call {
    const struct store_options *options;
    ddp_store *store;
    uint32_t timeout_ms;
    char **words; /* after the action */
    size_t nwords;
};

/* ---- output ---------------------------------------------------------------------------------- */

/* Takes over @object, which may be NULL. */
static ddp_status print_json(json_t *object, struct ddp_error *err)
{
    if (object == NULL)
        return ddpi_error_nomem(err, sizeof *object);
    int failed = json_dumpf(object, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(object);
    if (failed != 0)
        return ddpi_error_set(err, DDP_E_SYSTEM, "cannot write the answer as JSON");
    putchar('\n');
    return DDP_OK;
}

static json_t *json_word(const char *word)
{
    return ddpctl_json_bytes(word, strlen(word));
}

static json_t *json_words(char *const *words, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < count; i++)
        if (json_array_append_new(array, json_word(words[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static ddp_status print_words(const struct call *call, char *const *words, size_t count,
                              struct ddp_error *err)
{
    return call->options->json
               ? print_json(json_pack("{s:o}", "keys", json_words(words, count)), err)
               : DDP_OK;
}

/* A key on a line of its own, whatever it consists of. */
static void print_key(const char *key)
{
    for (; *key != '\0'; key++)
        if (*key == '\\')
            fputs("\\\\", stdout);
        else if (iscntrl((unsigned char)*key))
            printf("\\x%02x", (unsigned char)*key);
        else
            putchar(*key);
    putchar('\n');
}

/* ---- actions --------------------------------------------------------------------------------- */

static ddp_status run_get(struct call *call, struct ddp_error *err)
{
    void *value;
    size_t len;
    uint64_t version;
    ddp_status status = ddp_store_try_get(call->store, call->words[0], call->timeout_ms, &value,
                                          &len, &version, err);
    if (status != DDP_OK)
        return status;
    if (call->options->json)
        status =
            print_json(json_pack("{s:o,s:o,s:I}", "key", json_word(call->words[0]), "value",
                                 ddpctl_json_bytes(value, len), "version", (json_int_t)version),
                       err);
    else
        (void)!fwrite(value, 1, len, stdout); /* checked when it is flushed */
    ddp_store_free(value);
    return status;
}

/* All of stdin. */
static ddp_status read_value(struct ddpi_buf *buf, struct ddp_error *err)
{
    for (;;) {
        size_t room = buf->limit - ddpi_buf_len(buf);
        if (room == 0)
            return ddpi_error_set(err, DDP_E_LIMIT, "standard input has more than %d bytes",
                                  DDP_STORE_VALUE_MAX);
        room = room < CHUNK ? room : CHUNK;
        uint8_t *at = ddpi_buf_reserve(buf, room);
        if (at == NULL)
            return ddpi_error_nomem(err, room);
        ssize_t got = read(STDIN_FILENO, at, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ddpi_error_sys(err, errno, "cannot read standard input");
        if (got == 0)
            return DDP_OK;
        ddpi_buf_added(buf, (size_t)got);
    }
}

static ddp_status set_value(struct call *call, const void *value, size_t len, struct ddp_error *err)
{
    uint64_t version;
    const char *key = call->words[0];
    int64_t expected = call->options->if_version;
    ddp_status status =
        expected < 0 ? ddp_store_set(call->store, key, value, len, call->timeout_ms, &version, err)
                     : ddp_store_compare_and_swap(call->store, key, (uint64_t)expected, value, len,
                                                  call->timeout_ms, &version, err);
    if (status == DDP_OK && call->options->json)
        return print_json(
            json_pack("{s:o,s:I}", "key", json_word(key), "version", (json_int_t)version), err);
    return status;
}

static ddp_status run_set(struct call *call, struct ddp_error *err)
{
    const char *word = call->words[1];
    if (strcmp(word, "-") != 0)
        return set_value(call, word, strlen(word), err);
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, (size_t)DDP_STORE_VALUE_MAX + 1);
    ddp_status status = read_value(&buf, err);
    if (status == DDP_OK)
        status = set_value(call, ddpi_buf_head(&buf), ddpi_buf_len(&buf), err);
    ddpi_buf_finish(&buf);
    return status;
}

static ddp_status run_add(struct call *call, struct ddp_error *err)
{
    int64_t delta = 1, sum;
    ddp_status status = DDP_OK;
    if (call->nwords > 1)
        status = ddpi_parse_int(call->words[1], INT64_MIN, INT64_MAX, &delta, err);
    if (status == DDP_OK)
        status = ddp_store_add(call->store, call->words[0], delta, call->timeout_ms, &sum, err);
    if (status != DDP_OK)
        return status;
    if (call->options->json)
        return print_json(
            json_pack("{s:o,s:I}", "key", json_word(call->words[0]), "value", (json_int_t)sum),
            err);
    printf("%" PRId64 "\n", sum);
    return DDP_OK;
}

static ddp_status run_wait(struct call *call, struct ddp_error *err)
{
    ddp_status status = ddp_store_wait(call->store, (const char *const *)call->words, call->nwords,
                                       call->timeout_ms, err);
    return status == DDP_OK ? print_words(call, call->words, call->nwords, err) : status;
}

static ddp_status run_list(struct call *call, struct ddp_error *err)
{
    char **keys;
    size_t count;
    const char *prefix = call->nwords > 0 ? call->words[0] : "";
    ddp_status status = ddp_store_list(call->store, prefix, call->timeout_ms, &keys, &count, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < count && !call->options->json; i++)
        print_key(keys[i]);
    status = print_words(call, keys, count, err);
    ddp_store_free(keys);
    return status;
}

static ddp_status run_delete(struct call *call, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < call->nwords && status == DDP_OK; i++)
        status = ddp_store_delete(call->store, call->words[i], call->timeout_ms, err);
    return status == DDP_OK ? print_words(call, call->words, call->nwords, err) : status;
}

/* "name number" on each line, into {"name": number}; NULL if it is anything else. */
static json_t *json_stats(const char *text)
{
    json_t *object = json_object();
    const char *line;
    size_t len;
    while (object != NULL && ddpi_parse_list_next(&text, '\n', &line, &len)) {
        char name[64], digits[24];
        int64_t value;
        size_t name_len = strcspn(line, " \n");
        if (len == 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)name_len, line);
        snprintf(digits, sizeof digits, "%.*s", (int)(len - name_len), line + name_len + 1);
        digits[strcspn(digits, "\n")] = '\0';
        if (ddpi_parse_int(digits, 0, INT64_MAX, &value, NULL) != DDP_OK ||
            json_object_set_new(object, name, json_integer(value)) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static ddp_status run_stats(struct call *call, struct ddp_error *err)
{
    char *text;
    ddp_status status = ddp_store_stats(call->store, call->timeout_ms, &text, err);
    if (status != DDP_OK)
        return status;
    if (call->options->json)
        status = print_json(json_stats(text), err);
    else
        fputs(text, stdout);
    ddp_store_free(text);
    return status;
}

static const struct action {
    const char *name;
    ddp_status (*run)(struct call *call, struct ddp_error *err);
    const char *words; /* as written in the help */
    size_t min, max;
    const char *help;
} actions[] = {
    {"get", run_get, "KEY", 1, 1, "print the value, as it is"},
    {"set", run_set, "KEY VALUE", 2, 2, "set it; '-' takes the value from standard input"},
    {"add", run_add, "KEY [NUMBER]", 1, 2, "add NUMBER (1), and print the sum"},
    {"wait", run_wait, "KEY...", 1, WORDS_MAX, "wait until all of them exist"},
    {"list", run_list, "[PREFIX]", 0, 1, "print the keys that begin with PREFIX, one a line"},
    {"delete", run_delete, "KEY...", 1, WORDS_MAX, "delete them"},
    {"stats", run_stats, "", 0, 0, "print what the server counts"},
};

enum { ACTIONS = sizeof actions / sizeof *actions };

/* ---- the verb -------------------------------------------------------------------------------- */

static void print_help(void)
{
    fputs("usage: ddpctl store [OPTIONS] ACTION [OPTIONS] ...\n\nActions\n", stdout);
    for (size_t i = 0; i < ACTIONS; i++)
        printf("  %-6s %-24s %s\n", actions[i].name, actions[i].words, actions[i].help);
    options_print_help(&ddpctl_store_table, stdout);
}

static ddp_status find_action(const char *name, const struct action **ret, struct ddp_error *err)
{
    for (size_t i = 0; i < ACTIONS; i++)
        if (strcmp(actions[i].name, name) == 0) {
            *ret = &actions[i];
            return DDP_OK;
        }
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "'%s' is nothing that can be done to a store; 'ddpctl store --help' lists "
        "what can",
        name);
}

static ddp_status check_words(const struct action *action, const struct call *call,
                              struct ddp_error *err)
{
    if (call->nwords < action->min || call->nwords > action->max)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "it is 'ddpctl store %s%s%s', but %zu words were "
                              "given",
                              action->name, *action->words != '\0' ? " " : "", action->words,
                              call->nwords);
    if (call->options->if_version >= 0 && action->run != run_set)
        return ddpi_error_set(err, DDP_E_INVALID, "--if-version goes with set only");
    if (call->options->endpoint == NULL || *call->options->endpoint == '\0')
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no store is named; give --endpoint=HOST:PORT, or set DDPRUN_STORE");
    return DDP_OK;
}

/* Options stand before the action or behind it. */
static ddp_status parse(int argc, char **argv, struct store_options *options,
                        const struct action **ret_action, int *ret_first, struct ddp_error *err)
{
    char *const no_envp[] = {NULL};
    int at = argc, behind;
    ddp_status status = options_parse(&ddpctl_store_table, argc, argv, environ, options, &at, err);
    if (status != DDP_OK || options->help)
        return status;
    if (at == argc)
        return find_action("", ret_action, err);
    status = find_action(argv[at], ret_action, err);
    if (status == DDP_OK)
        status = options_parse(&ddpctl_store_table, argc - at, argv + at, no_envp, options, &behind,
                               err);
    if (status == DDP_OK)
        *ret_first = at + behind;
    return status;
}

/* With the token that is named; else with that of this user, but only where it may be asked for. A
 * user without a home has none. */
static ddp_status connect_store(struct call *call, struct ddp_error *err)
{
    const struct store_options *given = call->options;
    char *home_token = NULL;
    struct ddp_store_options options = {
        .size = sizeof options,
        .endpoint = given->endpoint,
        .prefix = given->prefix,
        .connect_timeout_ms = call->timeout_ms > CONNECT_MIN_MS ? call->timeout_ms : CONNECT_MIN_MS,
        .auth = given->no_auth ? DDP_STORE_AUTH_NONE : DDP_STORE_AUTH_DEFAULT,
        .token_file = given->token_file,
        .token_fd = (int)given->token_fd,
        .role = given->role.role,
        .job = given->job,
        .epoch = given->epoch,
        .flags = DDP_STORE_NO_RECONNECT, /* a person wants to know at once */
    };
    if (!given->no_auth && given->token_file == NULL && given->token_fd == 0 &&
        ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &home_token, NULL) ==
            DDP_OK) {
        options.auth = DDP_STORE_AUTH_BEYOND_LOOPBACK;
        options.token_file = home_token;
    }
    ddp_status status = ddp_store_connect(&options, &call->store, err);
    ddpi_free(home_token);
    return status;
}

static ddp_status perform(const struct action *action, struct call *call, struct ddp_error *err)
{
    ddp_status status = check_words(action, call, err);
    if (status != DDP_OK)
        return status;
    call->timeout_ms = (uint32_t)call->options->timeout_ms;
    status = connect_store(call, err);
    if (status != DDP_OK)
        return status;
    status = action->run(call, err);
    ddp_store_close(call->store);
    return status;
}

int ddpctl_store(int argc, char **argv)
{
    struct ddp_error err;
    struct store_options options = {.timeout_ms = 5000, .if_version = -1};
    const struct action *action = NULL;
    int first = argc;
    ddp_status status = parse(argc, argv, &options, &action, &first, &err);
    if (status == DDP_OK && options.help) {
        print_help();
    } else if (status == DDP_OK) {
        struct call call = {
            .options = &options, .words = argv + first, .nwords = (size_t)(argc - first)};
        status = perform(action, &call, &err);
    }
    if (status == DDP_OK && fflush(stdout) != 0)
        status = ddpi_error_sys(&err, errno, "cannot write to standard output");
    if (status != DDP_OK)
        fprintf(stderr, "ddpctl: %s\n", err.msg);
    return (int)ddpctl_exit_of(status);
}
