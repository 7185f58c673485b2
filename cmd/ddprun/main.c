/*
 * main.c - main() of ddprun: command line -> plan -> guard and agent -> exit code.
 *
 * Errors of the command line are found before the split into guard and agent, except that a port is
 * in use. All other errors that can be foreseen are found before a worker starts. A launcher on
 * another host starts ddprun on a leash: standard input brings the token, the environment and
 * signals (leash.h).
 */
#include "error.h"
#include "exit_codes.h"
#include "guard.h"
#include "host.h"
#include "launcher.h"
#include "leash.h"
#include "plan.h"
#include "processors.h"
#include "secrecy.h"
#include "version.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char usage_text[] =
    "usage: ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Start the workers of a distributed training job with RANK, WORLD_SIZE, LOCAL_RANK,\n"
    "MASTER_ADDR and so on in their environment, supervise them, and stop or restart all of\n"
    "them when one fails. Arguments after PROGRAM are passed to it.\n"
    "\n"
    "  ddprun --nproc-per-node=4 ./worker              four workers on this machine\n"
    "  ddprun --nproc-per-node=gpu train.py --lr 0.1   a Python script, one worker per GPU\n"
    "  ddprun --nproc-per-node=4 --max-restarts=3 --log-dir=logs --tee=3 ./worker\n";

static int ddprun_fail(int code, const struct ddp_error *err)
{
    print_message("%s", err->msg);
    return code;
}

/* The guard needs nothing of what the leash has brought. */
static void forget(void *ctx)
{
    struct plan *plan = ctx;
    if (plan->leash != NULL)
        leash_forget(plan->leash);
}

static void clean_up(void *ctx)
{
    struct plan *plan = ctx;
    cgroup_remove(&plan->cgroup);
    watchdog_fifo_remove(&plan->timers);
    logdir_close(&plan->logs);
}

/* Print the remarks on defaults and ignored options, once, as torchrun does. */
static void say_remarks(const struct ddprun_options *options, const struct plan *plan,
                        bool announce_logs)
{
    if (plan->agent.voice == VOICE_QUIET)
        return;
    if (announce_logs)
        print_message("logs are kept in '%s'; --log-dir=DIR puts them elsewhere", plan->logs.path);
    if (options->conf.unknown[0] != '\0')
        print_message("--rdzv-conf: ignored unknown settings: %s", options->conf.unknown);
    if (options->preload != NULL && *options->preload != '\0' && !plan->program.script)
        print_message("--preload does nothing: '%s' does not run as a Python script",
                      plan->program.argv[0]);
    if (options->use_env)
        print_message("--use-env does nothing: workers always have LOCAL_RANK in the environment");
    if (plan->agent.omp_threads > 0 && plan->agent.voice == VOICE_VERBOSE)
        print_message("%u processors for %u workers: OMP_NUM_THREADS=%u in each; set it to have "
                      "another number of threads",
                      ddpi_processors(), plan->agent.nproc, plan->agent.omp_threads);
    if (options->numa_binding != BINDING_NONE)
        print_message("--numa-binding: each worker is bound to %u core%s or more, near its %s",
                      plan->binding.cores, plan->binding.cores == 1 ? "" : "s",
                      plan->binding.by_gpu ? "GPU" : "NUMA node");
}

/* An attacker that exploits a fault of the listening agent gets the rights of its workers. */
static void warn_of_root(const struct plan *plan)
{
    if (plan->agent.voice != VOICE_QUIET && plan->several &&
        !ddpi_host_is_loopback(plan->multi.endpoint.host) && secrecy_is_root())
        print_message("warning: a job of several nodes runs as root here; it goes on, but would be "
                      "safer as another user");
}

/* Take from the job's scheduler what was not given. In an allocation of several nodes this process
 * may become the scheduler's launcher instead, which starts the same command on each node. Strings
 * of @job are borrowed by @options. */
static ddp_status ask_scheduler(struct ddprun_options *options, char **argv,
                                struct scheduler_job *job, struct ddp_error *err)
{
    char fqdn[DDPI_HOST_MAX];
    if (!ddprun_options_want_scheduler(options))
        return DDP_OK;
    bool named = scheduler_needs_fqdn(environ);
    if (named)
        host_full_name(fqdn, sizeof fqdn);
    ddp_status status = scheduler_read(environ, named ? fqdn : NULL, job, err);
    if (status != DDP_OK)
        return status;
    if (!job->is_allocation || job->nodes <= 1) {
        ddprun_options_take_scheduler(options, job);
        return DDP_OK;
    }
    if (!options->dry_run)
        return node_starter_exec(job, argv, err);
    print_message("srun would start this command on each of %u nodes; here is that of one alone",
                  job->nodes);
    return DDP_OK;
}

/* Without hosts, -x sets variables of the workers here. */
static ddp_status export_variables(const struct ddprun_options *options, struct ddp_error *err)
{
    if (!options->leash && (options->include != NULL || options->exclude != NULL))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--include and --exclude choose among the hosts of --hosts or "
                              "--hostfile, and neither is given");
    for (uint32_t i = 0; i < options->exports.count; i++) {
        const char *text = options->exports.names[i], *value = strchr(text, '=');
        char name[256];
        if (value == NULL)
            continue; /* workers inherit it */
        snprintf(name, sizeof name, "%.*s", (int)(value - text), text);
        if (setenv(name, value + 1, 1) != 0)
            return ddpi_error_sys(err, errno, "cannot set %s", name);
    }
    return DDP_OK;
}

/* Decide everything about the job. Creates no file and no process, but sets the variables of -x,
 * and may become the scheduler's launcher. 0, or an exit code. */
static int decide(struct plan *plan, struct ddprun_options *options, char **argv, char **operands,
                  struct scheduler_job *scheduled, struct ddp_error *err)
{
    if (ask_scheduler(options, argv, scheduled, err) != DDP_OK ||
        ddprun_options_complete(options, err) != DDP_OK)
        return EXIT_CONFIG; /* --nproc-per-node=gpu on a machine without a GPU */
    if (export_variables(options, err) != DDP_OK || plan_job(plan, options, environ, err) != DDP_OK)
        return EXIT_USAGE;
    ddp_status status = plan_binding(plan, options, environ, err);
    if (status != DDP_OK)
        return status == DDP_E_UNSUPPORTED ? EXIT_CONFIG : EXIT_USAGE;
    return plan_program(plan, options, operands, err) == DDP_OK ? 0 : EXIT_CONFIG;
}

/* Open and create what the job needs, and split off the agent. 0, in the agent; or an exit code. */
static int split_off(struct plan *plan, const struct ddprun_options *options,
                     struct guard_agent *ret_split, struct ddp_error *err)
{
    struct guard_duties duties = {forget, clean_up, plan, &plan->cgroup, NULL};
    bool announce_logs = false;
    if (plan_files(plan, err) != DDP_OK || plan_events(plan, options, err) != DDP_OK ||
        replicate_open(&plan->replicate, &duties.sidecar, err) != DDP_OK)
        return EXIT_CONFIG;
    ddp_status status = plan_metrics(plan, options, err);
    if (status != DDP_OK)
        return status == DDP_E_INVALID ? EXIT_USAGE : EXIT_CONFIG;
    guard_hold_signals();
    if (plan_logs(plan, options, &announce_logs, err) != DDP_OK ||
        plan_timers(plan, environ, err) != DDP_OK)
        return EXIT_CONFIG;
    say_remarks(options, plan, announce_logs);
    warn_of_root(plan);
    cgroup_make(&plan->cgroup);
    plan->agent.cgroup = &plan->cgroup;
    if (plan->several) /* the agent will hold the token, and the guard shares what was before */
        secrecy_hide_memory();
    return guard_split(&duties, ret_split, err) == DDP_OK ? 0 : EXIT_CONFIG;
}

static int run_job(struct ddprun_options *options, struct leash *leash, char **argv,
                   char **operands)
{
    struct ddp_error err;
    struct scheduler_job scheduled = {0};
    struct plan plan = {.leash = leash->fd >= 0 ? leash : NULL};
    struct guard_agent split;
    bool thread_is_stuck = false;
    int code = decide(&plan, options, argv, operands, &scheduled, &err);
    if (code == 0 && options->dry_run) {
        code = dry_run_print(&plan, options, &scheduled);
        plan_finish(&plan);
        return code;
    }
    if (code == 0)
        code = split_off(&plan, options, &split, &err);
    if (code != 0) {
        ddprun_fail(code, &err);
    } else {
        if (plan.leash != NULL)
            leash_say_hello();
        code = run_agent(&plan, &split, &thread_is_stuck);
    }
    guard_is_needless();
    cgroup_remove(&plan.cgroup); /* the guard may have died */
    plan_finish(&plan);          /* in the agent; the guard cleans up in clean_up() */
    if (thread_is_stuck)         /* in the look-up of a name, a driver, or the start of a program */
        _exit(code);             /* exit() would wait for it, or unload a library that it uses */
    return code;
}

/* Options for the agents are completed on their hosts: only there the number of GPUs is known, for
 * one. */
static int run_on_hosts(struct ddprun_options *options, char **argv, char **operands)
{
    struct ddp_error err;
    size_t words = (size_t)(operands - argv) - 1;
    if (words > 0 && strcmp(argv[words], "--") == 0)
        words--;
    ddprun_options_complete_times(options);
    if (replicate_check(options, &err) != DDP_OK)
        return ddprun_fail(EXIT_USAGE, &err);
    return launch_hosts(options, argv + 1, words, operands);
}

static void say_misplaced(const struct ddprun_options *options, char *const *operands)
{
    bool silent = options->leash || ddprun_options_voice(options) == VOICE_QUIET;
    const char *word = silent ? NULL : ddprun_options_misplaced(operands);
    if (word != NULL)
        print_message("'%s' comes after the program '%s' and is passed to it; an option of ddprun "
                      "comes before the program",
                      word, operands[0]);
}

static void print_help(void)
{
    fputs(usage_text, stdout);
    options_print_help(&ddprun_option_table, stdout);
}

static int carry_out(int argc, char **argv, struct leash *leash)
{
    struct ddp_error err;
    struct ddprun_options options;
    int operand;
    ddprun_options_init(&options);
    bool leashed = leash_is_given(argc, argv);
    if (leashed) /* before the token comes */
        secrecy_hide_memory();
    if ((leashed && leash_take(leash, &err) != DDP_OK) ||
        options_parse(&ddprun_option_table, argc, argv, environ, &options, &operand, &err) !=
            DDP_OK)
        return ddprun_fail(EXIT_USAGE, &err);
    if (options.version) {
        puts("ddprun " DDPRUN_VERSION);
    } else if (options.help) {
        print_help();
    } else if (options.usage) {
        fputs(usage_text, stdout);
        puts("\n'ddprun --help' lists all options.");
    } else if (options.completion != COMPLETION_NONE) {
        completion_print(&(struct completion){"ddprun", &ddprun_option_table, NULL},
                         options.completion, stdout);
    } else if (operand == argc) {
        ddpi_error_set(&err, DDP_E_INVALID,
                       "no program was given; 'ddprun --nproc-per-node=4 ./worker' runs four "
                       "workers, 'ddprun -h' shows more");
        return ddprun_fail(EXIT_USAGE, &err);
    } else if (ddprun_options_have_hosts(&options)) {
        say_misplaced(&options, argv + operand);
        return run_on_hosts(&options, argv, argv + operand);
    } else {
        say_misplaced(&options, argv + operand);
        return run_job(&options, leash, argv, argv + operand);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct leash leash = {.fd = -1, .token_fd = -1};
    if (host_ensure_stdio() != 0)
        return EXIT_CONFIG; /* without stderr there is no way to say why */
    int code = carry_out(argc, argv, &leash);
    leash_finish(&leash);
    return code;
}
