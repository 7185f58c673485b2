/*
 * main.c - main() of ddprun: command line -> plan -> guard and agent -> exit code.
 *
 * Errors of the command line, except a port in use, are found before the split into guard and
 * agent; all errors are found before a worker starts.
 */
#include "error.h"
#include "guard.h"
#include "outcome.h"
#include "plan.h"
#include "print_message.h"
#include "run_agent.h"
#include "secrecy.h"
#include "version.h"

#include <stdio.h>
#include <stdlib.h>
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
    if (announce_logs)
        print_message("logs are kept in '%s'; --log-dir=DIR puts them elsewhere", plan->logs.path);
    if (options->conf.unknown[0] != '\0')
        print_message("--rdzv-conf: ignored unknown settings: %s", options->conf.unknown);
    if (options->use_env)
        print_message("--use-env does nothing: workers always have LOCAL_RANK in the environment");
    if (options->nproc_per_node > 1 && getenv("OMP_NUM_THREADS") == NULL)
        print_message(
            "OMP_NUM_THREADS=1 in each worker, as they share this machine; set it to use more "
            "threads");
}

/* An attacker that exploits a fault of the listening agent gets the rights of its workers. */
static void warn_of_root(const struct plan *plan)
{
    if (plan->several && !plan_is_loopback(plan->multi.endpoint.host) && secrecy_is_root())
        print_message("a job of several nodes runs as root here; start it as another user");
}

static int run_job(struct ddprun_options *options, char **operands)
{
    struct ddp_error err;
    struct plan plan = {0};
    struct guard_agent split;
    const struct guard_farewell farewell = {clean_up, &plan, &plan.cgroup};
    bool announce_logs = false, waiting = false;
    int bad = EXIT_CONFIG; /* --nproc-per-node=gpu on a machine without a GPU */
    ddp_status status = ddprun_options_complete(options, &err);
    if (status == DDP_OK) {
        bad = EXIT_USAGE;
        status = plan_job(&plan, options, environ, &err);
    }
    if (status == DDP_OK) {
        bad = EXIT_CONFIG;
        status = plan_program(&plan, options, operands, &err);
    }
    if (status == DDP_OK)
        status = plan_files(&plan, &err);
    if (status == DDP_OK)
        status = plan_events(&plan, options, &err);
    if (status == DDP_OK) {
        guard_hold_signals();
        status = plan_logs(&plan, options, &announce_logs, &err);
    }
    if (status == DDP_OK)
        status = plan_timers(&plan, environ, &err);
    if (status == DDP_OK) {
        say_remarks(options, &plan, announce_logs);
        warn_of_root(&plan);
        cgroup_make(&plan.cgroup);
        plan.agent.cgroup = &plan.cgroup;
        status = guard_split(&farewell, &split, &err);
    }
    if (status == DDP_OK && plan.several) /* this process will hold the token */
        secrecy_hide_memory();
    int code = status == DDP_OK ? run_agent(&plan, &split, &waiting) : ddprun_fail(bad, &err);
    cgroup_remove(&plan.cgroup); /* the guard may have died */
    plan_finish(&plan);          /* in the agent; the guard cleans up in clean_up() */
    if (waiting)
        _exit(code); /* exit() would wait for the thread, or unload a library that it uses */
    return code;
}

static void print_help(void)
{
    fputs(usage_text, stdout);
    options_print_help(&ddprun_option_table, stdout);
}

int main(int argc, char **argv)
{
    struct ddp_error err;
    struct ddprun_options options;
    int operand;
    int sys_errno = host_ensure_stdio();
    if (sys_errno != 0)
        return EXIT_CONFIG; /* without stderr there is no way to say why */
    ddprun_options_init(&options);
    ddp_status status =
        options_parse(&ddprun_option_table, argc, argv, environ, &options, &operand, &err);
    if (status != DDP_OK)
        return ddprun_fail(EXIT_USAGE, &err);
    if (options.version) {
        puts("ddprun " DDPRUN_VERSION);
    } else if (options.help) {
        print_help();
    } else if (options.usage) {
        fputs(usage_text, stdout);
        puts("\n'ddprun --help' lists all options.");
    } else if (operand == argc) {
        ddpi_error_set(&err, DDP_E_INVALID,
                       "no program was given; 'ddprun --nproc-per-node=4 ./worker' runs four "
                       "workers, 'ddprun -h' shows more");
        return ddprun_fail(EXIT_USAGE, &err);
    } else {
        return run_job(&options, argv + operand);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
