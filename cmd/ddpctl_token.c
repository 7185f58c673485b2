/*
 * ddpctl_token.c - the verb "token": where a user's token is, the first one, and keys for others
 * who may take one role only. Owns no secret longer than it takes to print it.
 */
#include "ddpctl.h"
#include "error.h"
#include "mem.h"
#include "token.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

struct token_options {
    const char *file;
    struct ddpctl_role role;
    const char *job;
    uint64_t epoch;
    bool help;
};

#define FIELD(member) offsetof(struct token_options, member)
#define OPTIONS       "Options"

static const struct option table[] = {
    {"token-file", 0, "FILE", "DDPRUN_TOKEN_FILE", "~/.config/ddprun/token", OPTIONS,
     "the token; with XDG_CONFIG_HOME its default is ddprun/token there", option_text, FIELD(file),
     0, 0},
    {"role", 0, "ROLE", NULL, NULL, OPTIONS,
     "of the key that is derived: observer (reads), worker (changes keys too) or agent "
     "(everything)",
     ddpctl_option_role, FIELD(role), 0, 0},
    {"job", 0, "NAME", NULL, NULL, OPTIONS,
     "keep the key to one job, whose keys are all that it sees", option_text, FIELD(job), 0, 0},
    {"epoch", 0, "N", NULL, "0", OPTIONS, "keep the key to one epoch of the job",
     ddpctl_option_number, FIELD(epoch), 0, INT64_MAX},
    {"help", 'h', NULL, NULL, NULL, OPTIONS, "this list", option_show, FIELD(help), 0, 0},
};

const struct option_table ddpctl_token_table = {
    .program = "ddpctl token", .options = table, .count = sizeof table / sizeof *table};

/* ---- actions --------------------------------------------------------------------------------- */

static ddp_status show_path(const struct token_options *options, const char *path,
                            struct ddp_error *err)
{
    (void)options;
    (void)err;
    puts(path);
    return DDP_OK;
}

static ddp_status make(const struct token_options *options, const char *path, struct ddp_error *err)
{
    struct ddpi_credential token;
    ddp_status status = ddpi_token_obtain(path, &token, err);
    ddpi_wipe(&token, sizeof token);
    return status == DDP_OK ? show_path(options, path, err) : status;
}

static ddp_status take_identity(const struct token_options *options, struct ddpi_identity *ret,
                                struct ddp_error *err)
{
    const char *job = options->job != NULL ? options->job : "";
    if (!options->role.given)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "whose key? give --role=observer, --role=worker or --role=agent");
    if (*job != '\0' && !ddpi_job_valid(job, strlen(job)))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--job: '%s' is no name of a job: 1 to %d letters, digits and any of "
                              "'._-', of which the first is no '.'",
                              job, DDPI_JOB_MAX);
    *ret =
        (struct ddpi_identity){.role = (enum ddpi_role)options->role.role, .epoch = options->epoch};
    snprintf(ret->job, sizeof ret->job, "%s", job);
    return DDP_OK;
}

static ddp_status derive(const struct token_options *options, const char *path,
                         struct ddp_error *err)
{
    struct ddpi_identity identity;
    struct ddpi_credential token;
    char line[DDPI_KEY_LINE];
    ddp_status status = take_identity(options, &identity, err);
    if (status == DDP_OK)
        status = ddpi_token_read(path, &token, err);
    if (status != DDP_OK)
        return status;
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
    {"show-path", show_path, "print where the token is, or would be"},
    {"make", make, "make one, unless there is one, and print where it is"},
    {"derive", derive, "print a key that stands in for the token, for one role only"},
};

enum { ACTIONS = sizeof actions / sizeof *actions };

/* ---- the verb -------------------------------------------------------------------------------- */

static void print_help(void)
{
    fputs("usage: ddpctl token [OPTIONS] ACTION [OPTIONS]\n\nActions\n", stdout);
    for (size_t i = 0; i < ACTIONS; i++)
        printf("  %-10s %s\n", actions[i].name, actions[i].help);
    options_print_help(&ddpctl_token_table, stdout);
}

static ddp_status find_action(const char *name, const struct action **ret, struct ddp_error *err)
{
    for (size_t i = 0; i < ACTIONS; i++)
        if (strcmp(actions[i].name, name) == 0) {
            *ret = &actions[i];
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID,
                          "'%s' is nothing that can be done with a token; 'ddpctl token --help' "
                          "lists what can",
                          name);
}

/* Options stand before the action or behind it. */
static ddp_status parse(int argc, char **argv, struct token_options *options,
                        const struct action **ret_action, struct ddp_error *err)
{
    char *const no_envp[] = {NULL};
    int at = argc, behind = 0;
    ddp_status status = options_parse(&ddpctl_token_table, argc, argv, environ, options, &at, err);
    if (status != DDP_OK || options->help)
        return status;
    status = find_action(at < argc ? argv[at] : "", ret_action, err);
    if (status == DDP_OK)
        status = options_parse(&ddpctl_token_table, argc - at, argv + at, no_envp, options, &behind,
                               err);
    if (status == DDP_OK && at + behind < argc)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is one word too many", argv[at + behind]);
    return status;
}

static ddp_status perform(const struct action *action, const struct token_options *options,
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
    struct token_options options = {0};
    const struct action *action = NULL;
    ddp_status status = parse(argc, argv, &options, &action, &err);
    if (status == DDP_OK && options.help)
        print_help();
    else if (status == DDP_OK)
        status = perform(action, &options, &err);
    if (status == DDP_OK && fflush(stdout) != 0)
        status = ddpi_error_sys(&err, errno, "cannot write to standard output");
    if (status != DDP_OK)
        fprintf(stderr, "ddpctl: %s\n", err.msg);
    return (int)ddpctl_exit_of(status);
}
