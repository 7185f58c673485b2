/*
 * launch_hosts.c - reads the list of hosts, decides where the store of the job listens, and gathers
 * what each host is told. Errors of the command line are found before the split into guard and
 * head, those of the token behind it, so that the guard never has the token.
 */
#include "launcher.h"

#include "error.h"
#include "exit_codes.h"
#include "head.h"
#include "head_command.h"
#include "host.h"
#include "leash_text.h"
#include "mem.h"
#include "proof.h"
#include "route.h"
#include "secrecy.h"
#include "shell_words.h"
#include "signames.h"
#include "text_file.h"
#include "token_file.h"
#include "worker_program.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum {
    LAUNCHER_WORDS = 64,
    FILES_OF_HEAD = 32,
    FILES_OF_HOST = 4, /* three pipes and a pidfd; a start needs a few more for a moment */
    HOSTFILE_MAX = 16 * 1024 * 1024,
    NODES_AT_MOST = 65535,
};

struct launch {
    struct head_config head;
    struct head_command command;
    struct host_list hosts;
    struct ddpi_buf greeting;
    struct ddpi_credential token;
    char *launcher_text, *launcher_path, *discovery_path;
    char *launcher[LAUNCHER_WORDS + 1];
    char **words; /* the options, NULL-terminated */
    char store_host[DDPI_HOST_MAX], this_host[256], folder[PATH_MAX], program[PATH_MAX];
    char id[HOST_UUID_SIZE];
};

/* ---- the hosts ---- */

static ddp_status read_hostfile(struct launch *launch, const char *path, struct ddp_error *err)
{
    char *text = ddpi_calloc(1, HOSTFILE_MAX);
    if (text == NULL)
        return ddpi_error_nomem(err, HOSTFILE_MAX);
    size_t len;
    ddp_status status = ddpi_text_file_load(path, text, HOSTFILE_MAX, &len, err);
    if (status == DDP_OK && strlen(text) < len)
        status = ddpi_error_set(err, DDP_E_INVALID, "%s has a NUL byte", path);
    if (status == DDP_OK)
        status = host_list_add_file(&launch->hosts, text, path, err);
    ddpi_free(text);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "--hostfile");
}

static ddp_status read_hosts(struct launch *launch, const struct ddprun_options *options,
                             struct ddp_error *err)
{
    bool listed = option_given(options->hosts), filed = option_given(options->hostfile);
    if (listed + filed + option_given(options->discovery) > 1)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--hosts, --hostfile and --host-discovery-script each name the hosts "
                              "of the job; give one of them");
    if (option_given(options->discovery))
        return program_find(options->discovery, &launch->discovery_path, err);
    if (option_given(options->include) && option_given(options->exclude))
        return ddpi_error_set(err, DDP_E_INVALID, "give --include or --exclude, not both");
    ddp_status status = filed ? read_hostfile(launch, options->hostfile, err)
                              : host_list_add(&launch->hosts, options->hosts, err);
    if (status != DDP_OK)
        return filed ? status : ddpi_error_wrap(err, status, "--hosts");
    status = host_list_choose(&launch->hosts, options->include, options->exclude, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status,
                               option_given(options->include) ? "--include" : "--exclude");
    if (options->np > 0)
        status = host_list_limit(&launch->hosts, options->np, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "-np");
}

static ddp_status decide_nodes(struct launch *launch, const struct ddprun_options *options,
                               struct ddp_error *err)
{
    uint32_t count = (uint32_t)launch->hosts.count;
    uint32_t min = count, max = count;
    bool asked = options->min_nodes > 0;
    if (option_given(options->discovery)) {
        min = asked ? options->min_nodes : 1;
        max = asked ? options->max_nodes : NODES_AT_MOST;
    } else if (asked) {
        min = options->min_nodes;
        max = options->max_nodes < count ? options->max_nodes : count;
    }
    if (!option_given(options->discovery) && min > count)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--nnodes asks for %u nodes, but only %u host%s listed", min, count,
                              count == 1 ? " is" : "s are");
    launch->head.min_nodes = launch->command.min_nodes = min;
    launch->head.max_nodes = launch->command.max_nodes = max;
    return DDP_OK;
}

/* ---- the address of the store ---- */

/* The address of this machine from which it reaches @name; false: the name has no address here. */
static bool route_to(const char *name, char ret[DDPI_HOST_MAX])
{
    struct sockaddr_storage own;
    return ddpi_source_address(name, 9, &own, NULL) == DDP_OK &&
           getnameinfo((struct sockaddr *)&own, sizeof own, ret, DDPI_HOST_MAX, NULL, 0,
                       NI_NUMERICHOST) == 0;
}

/* Hosts reach the store where this machine reaches them from. A name that only the remote shell
 * knows says nothing about that. */
static ddp_status decide_store(struct launch *launch, const struct ddprun_options *options,
                               struct ddp_error *err)
{
    bool local = true;
    if (option_given(options->local_addr)) {
        snprintf(launch->store_host, sizeof launch->store_host, "%s", options->local_addr);
        return DDP_OK;
    }
    for (size_t i = 0; i < launch->hosts.count; i++) {
        const struct host_entry *host = &launch->hosts.entries[i];
        if (head_command_is_local(&launch->command, host))
            continue;
        local = false;
        if (route_to(host->name, launch->store_host))
            return DDP_OK;
    }
    if (local && launch->hosts.count > 0) {
        snprintf(launch->store_host, sizeof launch->store_host, "127.0.0.1");
        return DDP_OK;
    }
    if (launch->hosts.count == 0 && route_to(launch->this_host, launch->store_host))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "this machine cannot look up %s'%s', perhaps an alias of ssh: give the "
                          "address at which the hosts reach this machine as --local-addr=ADDRESS",
                          launch->hosts.count > 0 ? "any of the hosts, such as " : "its own name, ",
                          launch->hosts.count > 0 ? launch->hosts.entries[0].name
                                                  : launch->this_host);
}

/* ---- what each host is told ---- */

static ddp_status read_token(struct launch *launch, const struct ddprun_options *options,
                             struct ddp_error *err)
{
    char *path = NULL;
    if (options->auth == DDPI_SERVER_AUTH_NEVER)
        return DDP_OK;
    ddp_status status = DDP_OK;
    if (!option_given(options->token_file))
        status = ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &path, err);
    if (status != DDP_OK)
        return ddpi_error_advise(err, status, "name a file by --token-file, or give --no-auth");
    status = path != NULL ? ddpi_token_obtain(path, &launch->token, err)
                          : ddpi_token_read(options->token_file, &launch->token, err);
    ddpi_free(path);
    if (status == DDP_OK && !launch->token.is_token)
        status = ddpi_error_set(err, DDP_E_INVALID,
                                "--token-file: a key of one role cannot start a job; give a token");
    return status;
}

static ddp_status greet(struct launch *launch, const struct ddprun_options *options,
                        struct ddp_error *err)
{
    char hex[sizeof launch->token.secret * 2 + 1];
    ddpi_buf_init(&launch->greeting, LEASH_TEXT_MAX);
    sodium_bin2hex(hex, sizeof hex, launch->token.secret, sizeof launch->token.secret);
    bool ok = leash_put_greeting(&launch->greeting, launch->command.has_token ? hex : NULL) &&
              leash_put_environment(&launch->greeting, environ, options->exports.names,
                                    options->exports.count);
    ddpi_wipe(hex, sizeof hex);
    return ok ? DDP_OK
              : ddpi_error_set(err, DDP_E_LIMIT,
                               "the environment for the other hosts has more than %d bytes",
                               LEASH_TEXT_MAX);
}

static ddp_status find_launcher(struct launch *launch, const struct ddprun_options *options,
                                struct ddp_error *err)
{
    launch->launcher_text = ddpi_strdup(options->launcher);
    if (launch->launcher_text == NULL)
        return ddpi_error_nomem(err, strlen(options->launcher));
    size_t count = shell_words_split(launch->launcher_text, launch->launcher, LAUNCHER_WORDS);
    if (count == 0 || count > LAUNCHER_WORDS)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not a command of 1 to %d words",
                              options->launcher, LAUNCHER_WORDS);
    ddp_status status = program_find(launch->launcher[0], &launch->launcher_path, err);
    launch->launcher[0] = launch->launcher_path;
    return status;
}

/* A launcher that is not there matters only if a host needs one. */
static bool needs_launcher(const struct launch *launch)
{
    for (size_t i = 0; i < launch->hosts.count; i++)
        if (!head_command_is_local(&launch->command, &launch->hosts.entries[i]))
            return true;
    return launch->hosts.count == 0;
}

static ddp_status find_self(struct launch *launch, struct ddp_error *err)
{
    ssize_t len = readlink("/proc/self/exe", launch->program, sizeof launch->program - 1);
    if (len <= 0 || getcwd(launch->folder, sizeof launch->folder) == NULL)
        return ddpi_error_sys(err, errno, "cannot find ddprun itself, or the current directory");
    launch->program[len] = '\0';
    return DDP_OK;
}

static ddp_status make_command(struct launch *launch, const struct ddprun_options *options,
                               char **words, size_t nwords, char **operands, struct ddp_error *err)
{
    bool named = option_given(options->rdzv_id);
    launch->words = ddpi_calloc(nwords + 1, sizeof *launch->words);
    if (launch->words == NULL)
        return ddpi_error_nomem(err, nwords * sizeof *launch->words);
    memcpy(launch->words, words, nwords * sizeof *words);
    if (!named)
        host_random_uuid(launch->id);
    if (named && !ddpi_job_valid(options->rdzv_id, strlen(options->rdzv_id)))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--rdzv-id: '%s' cannot be the name of a job: use 1 to %d characters "
                              "of [A-Za-z0-9._-], the first not '.'",
                              options->rdzv_id, DDPI_JOB_MAX);
    bool plain = option_given(options->line_template) || options->no_prefix;
    host_name(launch->this_host, sizeof launch->this_host);
    launch->command.launcher = launch->launcher;
    launch->command.this_host = launch->this_host;
    launch->command.folder = launch->folder;
    launch->command.program = launch->program;
    launch->command.options = launch->words;
    launch->command.operands = operands;
    launch->command.job = named ? options->rdzv_id : launch->id;
    launch->command.template = plain ? NULL : "[${role_name}${rank}]:";
    launch->command.has_token = options->auth != DDPI_SERVER_AUTH_NEVER;
    return find_self(launch, err);
}

static ddp_status check_together(const struct ddprun_options *options, struct ddp_error *err)
{
    if (options->standalone || options->rdzv_endpoints.count > 0 ||
        option_given(options->master_addr))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a list of hosts comes with a store of its own: leave out "
                              "--standalone, --rdzv-endpoint and --master-addr");
    if (options->cooldown.min_ms != 0 && options->discovery == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--blacklist-cooldown-range is for hosts of a "
                              "--host-discovery-script; those of a list are not tried again");
    return DDP_OK;
}

static ddp_status fill_head(struct launch *launch, const struct ddprun_options *options,
                            struct ddp_error *err)
{
    struct head_config *head = &launch->head;
    head->hosts = &launch->hosts;
    head->discovery = launch->discovery_path;
    head->command = &launch->command;
    head->greeting = &launch->greeting;
    head->voice = ddprun_options_voice(options);
    head->envp = environ;
    head->store_host = launch->store_host;
    head->token = launch->command.has_token ? &launch->token : NULL;
    head->auth = options->auth;
    head->trust_local_users = options->trust_local_users;
    head->tls = options->agent.tls;
    head->job = launch->command.job;
    head->start_timeout_ms = options->start_timeout_ms;
    head->shutdown_timeout_ms = options->agent.shutdown_timeout_ms;
    head->join_timeout_ms = options->join_timeout_ms;
    head->cooldown = options->cooldown;
    ddp_status status = signame_parse_list(options->signals_to_handle, &head->ending_signals, err);
    return status == DDP_OK
               ? signame_parse_list(options->forward_signals, &head->forwarded_signals, err)
               : status;
}

/* The address of the store, whose port is not known yet. */
static void name_store(const struct launch *launch, char ret[DDPI_HOST_MAX + 16])
{
    bool v6 = strchr(launch->store_host, ':') != NULL;
    snprintf(ret, DDPI_HOST_MAX + 16, v6 ? "[%s]:PORT" : "%s:PORT", launch->store_host);
}

/* Find a command that no host could get before any host is started. */
static ddp_status check_commands(const struct launch *launch, struct ddp_error *err)
{
    char store[DDPI_HOST_MAX + 16];
    name_store(launch, store);
    for (size_t i = 0; i < launch->hosts.count; i++) {
        const struct host_entry *host = &launch->hosts.entries[i];
        char **words = head_command_make(&launch->command, host, (uint32_t)i, store);
        if (words == NULL)
            return ddpi_error_set(err, DDP_E_LIMIT, "host '%s' cannot be started: %s", host->name,
                                  HEAD_COMMAND_TOO_LONG);
        ddpi_free(words);
    }
    return DDP_OK;
}

/* 0, or an exit code. */
static int plan_launch(struct launch *launch, const struct ddprun_options *options, char **words,
                       size_t nwords, char **operands, struct ddp_error *err)
{
    if (check_together(options, err) != DDP_OK ||
        make_command(launch, options, words, nwords, operands, err) != DDP_OK ||
        read_hosts(launch, options, err) != DDP_OK || decide_nodes(launch, options, err) != DDP_OK)
        return EXIT_USAGE;
    uint32_t files = FILES_OF_HEAD + (uint32_t)launch->hosts.count * (FILES_OF_HOST + 1);
    if ((needs_launcher(launch) && find_launcher(launch, options, err) != DDP_OK) ||
        decide_store(launch, options, err) != DDP_OK || check_commands(launch, err) != DDP_OK ||
        fill_head(launch, options, err) != DDP_OK ||
        host_need_files(files, &launch->head.nofile, err) != DDP_OK)
        return EXIT_CONFIG;
    return 0;
}

static void finish_launch(struct launch *launch)
{
    host_list_finish(&launch->hosts);
    ddpi_wipe(launch->greeting.data, launch->greeting.tail); /* the token is in it */
    ddpi_buf_finish(&launch->greeting);
    ddpi_wipe(&launch->token, sizeof launch->token);
    ddpi_free(launch->launcher_text);
    ddpi_free(launch->launcher_path);
    ddpi_free(launch->discovery_path);
    ddpi_free(launch->words);
    ddpi_free(launch);
}

/* --dry-run: the command of each host, as a shell here would read it. */
static int print_hosts(const struct launch *launch, const struct ddprun_options *options)
{
    char store[DDPI_HOST_MAX + 16];
    name_store(launch, store);
    print_message("nothing is started (--dry-run)");
    for (size_t i = 0; i < launch->hosts.count; i++) {
        char **words =
            head_command_make(&launch->command, &launch->hosts.entries[i], (uint32_t)i, store);
        if (words == NULL) {
            print_message("host '%s': " HEAD_COMMAND_TOO_LONG, launch->hosts.entries[i].name);
            return EXIT_CONFIG;
        }
        dry_run_print_command(words);
        ddpi_free(words);
    }
    dry_run_print_sources(options);
    return fflush(stdout) == 0 ? 0 : 1;
}

/* The token is read behind the split: the guard never has it. */
static int run_head(struct launch *launch, const struct ddprun_options *options)
{
    struct ddp_error err;
    struct guard_agent split;
    const struct guard_duties duties = {0};
    secrecy_hide_memory();
    guard_hold_signals();
    int code = EXIT_CONFIG;
    if (guard_split(&duties, &split, &err) != DDP_OK ||
        read_token(launch, options, &err) != DDP_OK || greet(launch, options, &err) != DDP_OK)
        print_message("%s", err.msg);
    else
        code = head_run(&launch->head, &split);
    guard_is_needless();
    return code;
}

int launch_hosts(const struct ddprun_options *options, char **words, size_t nwords, char **operands)
{
    struct ddp_error err;
    struct launch *launch = ddpi_calloc(1, sizeof *launch);
    if (launch == NULL) {
        ddpi_error_nomem(&err, sizeof *launch);
        print_message("%s", err.msg);
        return EXIT_CONFIG;
    }
    int code = plan_launch(launch, options, words, nwords, operands, &err);
    if (code != 0)
        print_message("%s", err.msg);
    else if (options->dry_run)
        code = print_hosts(launch, options);
    else
        code = run_head(launch, options);
    finish_launch(launch);
    return code;
}
