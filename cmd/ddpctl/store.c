/*
 * store.c - the verb "store": parses its options and action, connects, and runs the action. Owns
 * the store handle. Results go to stdout, messages to stderr.
 */
#include "ddpctl_store.h"
#include "error.h"
#include "mem.h"
#include "verbs.h"

#include <string.h>

extern char **environ;

enum {
    TIMEOUT_MS = 5000,
    CONNECT_MIN_MS = 1000,
    WORDS_MAX = DDP_STORE_MANY_MAX,
};

#define FIELD(member) offsetof(struct ddpctl_store_options, member)
#define OPTIONS       "Options"
#define IDENTITY      "Authentication"
#define WATCH         "Watch"
#define BENCH         "Bench"

static const struct option table[] = {
    {"endpoint", 0, "HOST:PORT", "DDPRUN_STORE", NULL, OPTIONS, "address of the store", option_text,
     FIELD(endpoint), 0, 0},
    {"prefix", 0, "TEXT", "DDPRUN_STORE_PREFIX", NULL, OPTIONS,
     "put TEXT in front of every key; list prints keys without it", option_text, FIELD(prefix), 0,
     0},
    {"timeout", 0, "DURATION", NULL, "5s", OPTIONS,
     "give up after this long without reaching the store, and after this long without its answer: "
     "seconds, or with a unit: 500ms, 2m. watch: exit after this long without a change (default: "
     "never)",
     option_duration, FIELD(timeout_ms), 0, INT64_C(49) * 24 * 3600 * 1000},
    {"if-version", 0, "N", NULL, NULL, OPTIONS,
     "set only if the key still has this version; 0: if it does not exist", option_u64,
     FIELD(if_version), 0, INT64_MAX},
    {"json", 0, NULL, NULL, NULL, OPTIONS,
     "print one JSON object per line; bytes that are not UTF-8 as {\"base64\": \"...\"}",
     option_switch, FIELD(json), 0, 0},
    OPTION_HELP(OPTIONS, FIELD(help)),
    {"key", 0, NULL, NULL, NULL, WATCH, "watch exactly one key, not all keys with this prefix",
     option_switch, FIELD(watch.key), 0, 0},
    {"initial", 0, NULL, NULL, NULL, WATCH,
     "print existing keys first; a change during this may be printed twice, with the same version",
     option_switch, FIELD(watch.initial), 0, 0},
    {"from", 0, "VERSION", NULL, "the next change", WATCH,
     "start with the change that has this version, if the server still remembers it", option_u64,
     FIELD(watch.from), 1, INT64_MAX},
    {"count", 0, "N", NULL, NULL, WATCH, "exit after N changes", option_u64, FIELD(watch.count), 1,
     INT64_MAX},
    {"op", 0, "mix|set|get", NULL, "mix", BENCH, "measure set, get, or both in turns (mix)",
     option_choice, FIELD(bench.op), 0, 0},
    {"clients", 0, "N", NULL, "1", BENCH, "run N threads, each with one request in flight",
     option_u32, FIELD(bench.clients), 1, 1024},
    {"shared", 0, NULL, NULL, NULL, BENCH, "use one connection for all threads", option_switch,
     FIELD(bench.shared), 0, 0},
    {"duration", 0, "DURATION", NULL, "2s", BENCH, "run for this long", option_duration,
     FIELD(bench.duration_ms), 1, 3600 * 1000},
    {"value-size", 0, "SIZE", NULL, "64", BENCH, "length of a value", option_size,
     FIELD(bench.value_size), 0, DDP_STORE_VALUE_MAX},
    DDPCTL_AUTH_OPTIONS(IDENTITY, FIELD(auth)),
    {"role", 0, DDPCTL_ROLES, NULL, "agent, or the key's role", IDENTITY,
     "use only the permissions of this role", option_choice, FIELD(role), 0, 0},
    {"job", 0, "NAME", NULL, NULL, IDENTITY, "act as a member of this job", option_text, FIELD(job),
     0, 0},
    {"epoch", 0, "N", NULL, "0", IDENTITY, "act in this epoch of the job", option_u64, FIELD(epoch),
     0, INT64_MAX},
};

const struct option_table ddpctl_store_table = {
    .program = "ddpctl store", .options = table, .count = sizeof table / sizeof *table};

static const struct action {
    const char *name;
    ddp_status (*run)(struct ddpctl_call *call, struct ddp_error *err);
    const char *words; /* operands, as shown in the help */
    size_t min, max;
    bool connects; /* opens its own connection */
    const char *help;
} actions[] = {
    {"get", ddpctl_run_get, "KEY", 1, 1, false, "print the value, unchanged"},
    {"set", ddpctl_run_set, "KEY VALUE", 2, 2, false,
     "set the key; if VALUE is '-', read it from standard input"},
    {"add", ddpctl_run_add, "KEY [NUMBER]", 1, 2, false,
     "add NUMBER (default: 1), and print the sum"},
    {"wait", ddpctl_run_wait, "KEY...", 1, WORDS_MAX, false,
     "wait until all keys exist at the same time"},
    {"watch", ddpctl_run_watch, "[PREFIX]", 0, 1, true,
     "print each change of a key that begins with PREFIX; with --key, of one key"},
    {"list", ddpctl_run_list, "[PREFIX]", 0, 1, false,
     "print the keys that begin with PREFIX, one per line"},
    {"delete", ddpctl_run_delete, "KEY...", 1, WORDS_MAX, false, "delete the keys, in this order"},
    {"stats", ddpctl_run_stats, "", 0, 0, false, "print the server's counters"},
    {"bench", ddpctl_run_bench, "", 0, 0, true, "measure the store's speed from this machine"},
    {"fence", ddpctl_run_fence, "JOB EPOCH", 2, 2, false,
     "end all epochs of JOB before EPOCH, and disconnect their clients"},
    {"port", ddpctl_run_port, "JOB", 1, 1, true,
     "open a port for JOB's TCPStore clients, print it, and keep it open until a signal"},
};

enum { ACTIONS = sizeof actions / sizeof *actions };

/* ---- the verb ---- */

static void print_store_help(void)
{
    fputs("usage: ddpctl store [OPTIONS] ACTION [OPTIONS] ...\n\nActions\n", stdout);
    for (size_t i = 0; i < ACTIONS; i++)
        printf("  %-6s %-12s %s\n", actions[i].name, actions[i].words, actions[i].help);
    options_print_help(&ddpctl_store_table, stdout);
}

static ddp_status find_store_action(const char *name, const struct action **ret,
                                    struct ddp_error *err)
{
    for (size_t i = 0; i < ACTIONS; i++)
        if (strcmp(actions[i].name, name) == 0) {
            *ret = &actions[i];
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID, "%s '%s'; 'ddpctl store --help' lists the actions",
                          *name != '\0' ? "unknown action" : "an action is missing after",
                          *name != '\0' ? name : "ddpctl store");
}

static bool has_watch_options(const struct ddpctl_watch_options *watch)
{
    return watch->key || watch->initial || watch->from != 0 || watch->count != 0;
}

static bool has_bench_options(const struct ddpctl_bench_options *bench)
{
    return bench->op != UINT32_MAX || bench->clients != 0 || bench->shared ||
           bench->duration_ms != 0 || bench->value_size != UINT64_MAX;
}

static ddp_status check_words(const struct action *action, const struct ddpctl_call *call,
                              struct ddp_error *err)
{
    for (size_t i = action->max; i < call->nwords; i++)
        if (options_find(&ddpctl_store_table, call->words[i]) != NULL)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "options come before the words of 'ddpctl store %s': put '%.64s' "
                                  "before '%.64s'",
                                  action->name, call->words[i], call->words[0]);
    if (call->nwords < action->min || call->nwords > action->max)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "usage: 'ddpctl store %s%s%s', but %zu word%s given; options come "
                              "before the words",
                              action->name, *action->words != '\0' ? " " : "", action->words,
                              call->nwords, call->nwords == 1 ? " was" : "s were");
    if (call->options->if_version >= 0 && action->run != ddpctl_run_set)
        return ddpi_error_set(err, DDP_E_INVALID, "--if-version is for set only");
    if (has_watch_options(&call->options->watch) && action->run != ddpctl_run_watch)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--key, --initial, --from and --count are for watch only");
    if (has_bench_options(&call->options->bench) && action->run != ddpctl_run_bench)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "--op, --clients, --shared, --duration and --value-size are for bench only");
    if (call->options->endpoint == NULL || *call->options->endpoint == '\0')
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no store address: give --endpoint=HOST:PORT or set DDPRUN_STORE");
    return DDP_OK;
}

/* Options may stand before or after the action. */
static ddp_status parse_store_words(int argc, char **argv, struct ddpctl_store_options *options,
                                    const struct action **ret_action, int *ret_first,
                                    struct ddp_error *err)
{
    char *const no_envp[] = {NULL};
    int at = argc, after;
    ddp_status status = options_parse(&ddpctl_store_table, argc, argv, environ, options, &at, err);
    if (status != DDP_OK || options->help)
        return status;
    if (at == argc)
        return find_store_action("", ret_action, err);
    status = find_store_action(argv[at], ret_action, err);
    if (status != DDP_OK)
        return status;
    status =
        options_parse(&ddpctl_store_table, argc - at, argv + at, no_envp, options, &after, err);
    if (status == DDP_OK)
        *ret_first = at + after;
    return status;
}

static ddp_status connect_and_run(const struct action *action, struct ddpctl_call *call,
                                  struct ddp_error *err)
{
    if (action->connects)
        return action->run(call, err);
    ddp_status status = ddpctl_advise_token(
        call->connect, ddp_store_connect(call->connect, &call->store, err), err);
    if (status != DDP_OK)
        return status;
    status = action->run(call, err);
    ddp_store_close(call->store);
    return status;
}

static ddp_status run_store_action(const struct action *action, struct ddpctl_call *call,
                                   struct ddp_error *err)
{
    const struct ddpctl_store_options *given = call->options;
    char *home_token = NULL;
    ddp_status status = check_words(action, call, err);
    if (status != DDP_OK)
        return status;
    call->timeout_ms = given->timeout_ms != UINT64_MAX ? (uint32_t)given->timeout_ms : TIMEOUT_MS;
    struct ddp_store_options options = {
        .size = sizeof options,
        .endpoint = given->endpoint,
        .prefix = given->prefix,
        .connect_timeout_ms = call->timeout_ms > CONNECT_MIN_MS ? call->timeout_ms : CONNECT_MIN_MS,
        .auth = given->auth.none ? DDP_STORE_AUTH_NONE : DDP_STORE_AUTH_DEFAULT,
        .token_file = given->auth.token_file,
        .token_fd = (int)given->auth.token_fd,
        .role = given->role,
        .job = given->job,
        .epoch = given->epoch,
        /* An interactive command reports a lost connection at once. */
        .flags = DDP_STORE_NO_RECONNECT | (given->auth.tls ? DDP_STORE_TLS : 0),
    };
    ddpctl_choose_token(&options, &home_token);
    call->connect = &options;
    status = connect_and_run(action, call, err);
    ddpi_free(home_token);
    return status;
}

int ddpctl_store(int argc, char **argv)
{
    struct ddp_error err;
    struct ddpctl_store_options options = {.timeout_ms = UINT64_MAX,
                                           .if_version = -1,
                                           .bench = {.op = UINT32_MAX, .value_size = UINT64_MAX}};
    const struct action *action = NULL;
    int first = argc;
    ddp_status status = parse_store_words(argc, argv, &options, &action, &first, &err);
    if (status == DDP_OK && options.help) {
        print_store_help();
    } else if (status == DDP_OK) {
        struct ddpctl_call call = {
            .options = &options, .words = argv + first, .nwords = (size_t)(argc - first)};
        status = run_store_action(action, &call, &err);
    }
    return ddpctl_finish(status, &err);
}
