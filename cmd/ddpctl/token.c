/*
 * token.c - the verb "token": shows the path of the user's token, creates it, and derives keys that
 * permit one role only. Owns no secret; wipes each one from memory after use.
 */
#include "client_store.h"
#include "ddpctl.h"
#include "error.h"
#include "mem.h"
#include "token_file.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

struct token_options {
    const char *file;
    uint32_t role; /* enum ddp_store_role; UINT32_MAX: not given */
    const char *job;
    uint64_t epoch;
    const char *endpoint;
    const char *store;
    bool tls;
    bool help;
};

enum { CONNECT_MS = 10000 };

#define FIELD(member) offsetof(struct token_options, member)
#define OPTIONS       "Options"

static const struct option table[] = {
    {"token-file", 0, "FILE", "DDPRUN_TOKEN_FILE", "~/.config/ddprun/token", OPTIONS,
     "the token; if XDG_CONFIG_HOME is set, the default is ddprun/token in it", option_text,
     FIELD(file), 0, 0},
    {"role", 0, DDPCTL_ROLES, NULL, NULL, OPTIONS,
     "permissions of the derived key: observer (read), worker (read and change keys) or agent "
     "(all)",
     option_choice, FIELD(role), 0, 0},
    {"job", 0, "NAME", NULL, NULL, OPTIONS, "restrict the key to the keys of one job", option_text,
     FIELD(job), 0, 0},
    {"epoch", 0, "N", NULL, "0", OPTIONS, "restrict the key to one epoch of the job", option_u64,
     FIELD(epoch), 0, INT64_MAX},
    {"endpoint", 0, "HOST:PORT", "DDPRUN_STORE", NULL, OPTIONS,
     "make the key for the store at this address, which must prove that it has the token; the key "
     "is valid for this store only, not for a new one at this address",
     option_text, FIELD(endpoint), 0, 0},
    {"store", 0, "NUMBER", NULL, NULL, OPTIONS,
     "make the key for the store with this number (16 hexadecimal digits, from its log), if it "
     "cannot be reached from here",
     option_text, FIELD(store), 0, 0},
    {"tls", 0, NULL, "DDPRUN_TLS", NULL, OPTIONS,
     "encrypt the connection to a store on another machine (TLS 1.3, keyed by the token)",
     option_switch, FIELD(tls), 0, 0},
    OPTION_HELP(OPTIONS, FIELD(help)),
};

const struct option_table ddpctl_token_table = {
    .program = "ddpctl token", .options = table, .count = sizeof table / sizeof *table};

/* ---- actions ---- */

static ddp_status show_path(const struct token_options *options, const char *path,
                            struct ddp_error *err)
{
    (void)options;
    (void)err;
    puts(path);
    return DDP_OK;
}

static ddp_status make_user_token(const struct token_options *options, const char *path,
                                  struct ddp_error *err)
{
    struct ddpi_credential token;
    ddp_status status = ddpi_token_obtain(path, &token, err);
    ddpi_wipe(&token, sizeof token);
    return status == DDP_OK ? show_path(options, path, err) : status;
}

static ddp_status choose_identity(const struct token_options *options, struct ddpi_identity *ret,
                                  struct ddp_error *err)
{
    const char *job = options->job != NULL ? options->job : "";
    if (options->role == UINT32_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no role given: use --role=observer, --role=worker or --role=agent");
    if (*job != '\0' && !ddpi_job_valid(job, strlen(job)))
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "--job: '%s' is not a job name: 1 to %d of [A-Za-z0-9._-], not beginning with '.'", job,
            DDPI_JOB_MAX);
    *ret = (struct ddpi_identity){.role = (enum ddpi_role)options->role, .epoch = options->epoch};
    snprintf(ret->job, sizeof ret->job, "%s", job);
    return DDP_OK;
}

/* Ask the store for its number, and accept it only with a proof. */
static ddp_status ask_store_number(const struct token_options *given, const char *token_file,
                                   uint64_t *ret_number, struct ddp_error *err)
{
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = given->endpoint,
                                              .connect_timeout_ms = CONNECT_MS,
                                              .auth = DDP_STORE_AUTH_TOKEN,
                                              .token_file = token_file,
                                              .flags = DDP_STORE_NO_RECONNECT |
                                                       (given->tls ? DDP_STORE_TLS : 0)};
    ddp_store *store;
    ddp_status status =
        ddpctl_advise_token(&options, ddp_store_connect(&options, &store, err), err);
    if (status != DDP_OK)
        return status;
    if (!ddpi_store_met(store, ret_number))
        status = ddpi_error_set(err, DDP_E_INTERNAL, "%s did not prove its token", given->endpoint);
    ddp_store_close(store);
    return status;
}

/* The number of the store for which to make a key. */
static ddp_status choose_store(const struct token_options *options, const char *path,
                               uint64_t *ret_number, struct ddp_error *err)
{
    if (options->store != NULL) {
        ddp_status status = ddpi_store_number_get(options->store, ret_number, err);
        return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "--store");
    }
    if (options->endpoint != NULL && *options->endpoint != '\0')
        return ask_store_number(options, path, ret_number, err);
    return ddpi_error_set(err, DDP_E_INVALID,
                          "no store given: use --endpoint=HOST:PORT, or --store=NUMBER with the "
                          "number from its log");
}

static ddp_status print_derived_key(const struct token_options *options, const char *path,
                                    struct ddp_error *err)
{
    struct ddpi_identity identity;
    struct ddpi_credential token;
    char line[DDPI_KEY_LINE];
    ddp_status status = choose_identity(options, &identity, err);
    if (status == DDP_OK)
        status = ddpi_token_read(path, &token, err);
    if (status != DDP_OK)
        return status;
    if (token.is_token)
        status = choose_store(options, path, &identity.store, err);
    if (status == DDP_OK)
        status = ddpi_token_key_line(&token, &identity, line, err);
    if (status == DDP_OK)
        fputs(line, stdout);
    ddpi_wipe(&token, sizeof token);
    ddpi_wipe(line, sizeof line);
    return status;
}

static const struct action {
    const char *name;
    ddp_status (*run)(const struct token_options *options, const char *path, struct ddp_error *err);
    const char *help;
} actions[] = {
    {"show-path", show_path, "print the path of the token, whether or not it exists"},
    {"make", make_user_token, "create the token unless it exists, and print its path"},
    {"derive", print_derived_key,
     "print a key to use instead of the token, for one role at one store"},
};

enum { ACTIONS = sizeof actions / sizeof *actions };

/* ---- the verb ---- */

static void print_token_help(void)
{
    fputs("usage: ddpctl token [OPTIONS] ACTION [OPTIONS]\n\nActions\n", stdout);
    for (size_t i = 0; i < ACTIONS; i++)
        printf("  %-10s %s\n", actions[i].name, actions[i].help);
    options_print_help(&ddpctl_token_table, stdout);
}

static ddp_status find_token_action(const char *name, const struct action **ret,
                                    struct ddp_error *err)
{
    for (size_t i = 0; i < ACTIONS; i++)
        if (strcmp(actions[i].name, name) == 0) {
            *ret = &actions[i];
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID, "%s '%s'; 'ddpctl token --help' lists the actions",
                          *name != '\0' ? "unknown action" : "an action is missing after",
                          *name != '\0' ? name : "ddpctl token");
}

/* Options may stand before or after the action. */
static ddp_status parse_token_words(int argc, char **argv, struct token_options *options,
                                    const struct action **ret_action, struct ddp_error *err)
{
    char *const no_envp[] = {NULL};
    int at = argc, after = 0;
    ddp_status status = options_parse(&ddpctl_token_table, argc, argv, environ, options, &at, err);
    if (status != DDP_OK || options->help)
        return status;
    status = find_token_action(at < argc ? argv[at] : "", ret_action, err);
    if (status == DDP_OK)
        status =
            options_parse(&ddpctl_token_table, argc - at, argv + at, no_envp, options, &after, err);
    if (status == DDP_OK && at + after < argc)
        return ddpi_error_set(err, DDP_E_INVALID, "unexpected operand '%s'", argv[at + after]);
    return status;
}

static ddp_status run_token_action(const struct action *action, const struct token_options *options,
                                   struct ddp_error *err)
{
    if (options->file != NULL)
        return action->run(options, options->file, err);
    char *path;
    ddp_status status =
        ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &path, err);
    if (status != DDP_OK)
        return status;
    status = action->run(options, path, err);
    ddpi_free(path);
    return status;
}

int ddpctl_token(int argc, char **argv)
{
    struct ddp_error err;
    struct token_options options = {.role = UINT32_MAX};
    const struct action *action = NULL;
    ddp_status status = parse_token_words(argc, argv, &options, &action, &err);
    if (status == DDP_OK && options.help)
        print_token_help();
    else if (status == DDP_OK)
        status = run_token_action(action, &options, &err);
    return ddpctl_finish(status, &err);
}
