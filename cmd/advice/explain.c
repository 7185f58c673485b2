/*
 * explain.c - the verb "explain": what an exit code of ddprun means, how to make sure, and what to
 * do. The codes of ddprun(1) are rows of a table; those above 128 are signals, which have rows of
 * their own where a cause is common.
 */
#include "advice.h"
#include "ddpctl.h"
#include "error.h"
#include "parse.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

struct explain_options {
    bool json, help;
};

#define FIELD(member) offsetof(struct explain_options, member)

static const struct option table[] = {
    {"json", 0, NULL, NULL, NULL, "Options", "print one JSON object", option_switch, FIELD(json), 0,
     0},
    OPTION_HELP("Options", FIELD(help)),
};

const struct option_table ddpctl_explain_table = {
    .program = "ddpctl explain", .options = table, .count = sizeof table / sizeof *table};

struct explanation {
    int from, to;
    const char *origin;  /* "worker" or "ddprun" */
    const char *meaning; /* one sentence */
    const char *confirm, *remedy;
    const char *requeue; /* whether a scheduler should run the job again */
};

static const struct explanation codes[] = {
    {0, 0, "worker", "every worker exited with 0", "there is nothing to look for",
     "there is nothing to do", "no"},
    {2, 2, "ddprun",
     "the command line, or a variable that sets a default, is invalid; or a ddprund refused a job "
     "without a name",
     "the line on standard error names the option or the variable; a worker that itself exits with "
     "2 has a report of its own there",
     "correct it; 'ddprun --help' lists all options", "no"},
    {69, 69, "ddprun",
     "the store of the job, a host of --hosts, or the launcher could not be reached",
     "the line on standard error has the address; 'ddpctl status' with the same endpoint and token "
     "tries it from here",
     "check that ddprund or the node that hosts the store runs, and that no firewall is between",
     "yes"},
    {75, 75, "ddprun", "the store was there, but too few fit nodes came within --join-timeout",
     "the line on standard error says how many nodes were there, how many are needed, and which "
     "are left out",
     "start the missing nodes, mend those left out and 'ddpctl admit' them, lower MIN of "
     "--nnodes=MIN:MAX, or give a longer --join-timeout",
     "yes"},
    {77, 77, "ddprun",
     "the store refused this node: its token is another one, or a program that is no store of "
     "ddprun has the port",
     "the line on standard error says which; compare the files that 'ddpctl token show-path' names "
     "on both machines",
     "copy the file from the store's machine over that of this one; or name another endpoint",
     "no"},
    {78, 78, "ddprun", "the job cannot run on this machine",
     "the line on standard error says what is missing: a program, a GPU, a port, a folder, a "
     "limit; or how the node check has failed",
     "provide it; the line ends with how", "no"},
    {93, 93, "ddprun", "workers failed in the same way again and again (--crash-loop)",
     "the last report names the rank, its exit code and its last lines of standard error",
     "mend the program or its input; --crash-loop=0 turns this off, and the pauses before it",
     "no"},
    {124, 124, "worker", "timeout(1), in front of ddprun, has ended it",
     "look for it in the command", "give it more time", "as you like"},
    {126, 126, "worker", "a worker, or its shell, found a program that it may not execute",
     "the report has the last lines of the worker", "chmod +x the program", "no"},
    {127, 127, "worker", "a worker, or its shell, did not find a program",
     "the report has the last lines of the worker", "correct the path, or PATH", "no"},
    {255, 255, "worker",
     "the worker that failed first exited with -1, as sys.exit(-1) does; or ssh, in front of "
     "ddprun, has failed",
     "the report on standard error says 'exit code 255'; without a report it was ssh",
     "look for the cause in the report, or try ssh alone", "as you like"},
    {1, 254, "worker", "the worker that failed first exited with this code",
     "the report on standard error names its rank, and quotes its last lines; --log-dir=DIR "
     "--tee=3 keeps all of them",
     "look for the cause there", "as you like"},
};

/* Signal by signal; 0: all others. */
static const struct {
    int signal;
    const char *meaning, *confirm, *remedy, *requeue;
} signals[] = {
    {SIGHUP, "SIGHUP ended the job: its terminal or ssh session was closed",
     "a program that ended by sys.exit(-1) would have given 255",
     "start it under tmux, nohup or a scheduler", "as you like"},
    {SIGINT, "Ctrl-C ended the job, or its launcher got SIGINT",
     "on the other nodes 130 means that one was ended so",
     "nothing if it was intended; otherwise start the job again", "as you like"},
    {SIGTERM, "SIGTERM ended the job: kill, a scheduler at its time limit, or 'ddpctl stop'",
     "the log of the scheduler, and 'ddpctl status'",
     "ask the scheduler for a signal before its limit, and save there (Slurm: "
     "--signal=B:USR1@120, and 'exec ddprun ...' as the last line of the script)",
     "yes"},
    {SIGKILL, "the kernel killed a worker for lack of memory, or something else sent SIGKILL",
     "the report says so where the kernel counts it (oom_kill of the control group); dmesg has it "
     "too",
     "use less memory on each node, or start fewer workers there", "as you like"},
    {SIGSEGV, "a worker used memory that it does not have", "a core file, under a debugger",
     "mend the program, or a library that it loads", "no"},
    {SIGBUS, "a worker touched memory of a file that ended, most often a full /dev/shm",
     "df /dev/shm while the job runs",
     "enlarge it; in a container give --shm-size, or a volume of memory", "no"},
    {SIGABRT, "a worker gave up: a failed assertion, or an exception that nothing caught",
     "the report quotes its last lines", "look for the cause there", "no"},
    {SIGXCPU, "a worker used up its limit of processor time", "'ulimit -t' where ddprun starts",
     "raise it", "no"},
    {0, "the worker that failed first was killed by this signal",
     "the report on standard error names the rank and the signal", "find out what sent it",
     "as you like"},
};

enum { CODES = sizeof codes / sizeof *codes, SIGNALS = sizeof signals / sizeof *signals };

static struct explanation explain_signal(int sig)
{
    size_t i = 0;
    while (i < SIGNALS - 1 && signals[i].signal != sig)
        i++;
    return (struct explanation){128 + sig,          128 + sig,          "worker",
                                signals[i].meaning, signals[i].confirm, signals[i].remedy,
                                signals[i].requeue};
}

/* The kernel's, also those without a name; a worker cannot be killed by others. */
static bool is_signal(int sig)
{
    return sig > 0 && sig <= SIGRTMAX;
}

static struct explanation explain_code(int code)
{
    if (is_signal(code - 128))
        return explain_signal(code - 128);
    size_t i = 0;
    while (i < CODES - 1 && (code < codes[i].from || code > codes[i].to))
        i++;
    return codes[i];
}

/* "137", or a signal: "SIGKILL", "KILL", and "-9", as Python and torchrun print it. */
static ddp_status parse_code(const char *text, int *ret, struct ddp_error *err)
{
    int64_t value;
    const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;
    if (ddpi_parse_int(text, 0, 255, &value, NULL) == DDP_OK && value != 128) {
        *ret = (int)value;
        return DDP_OK;
    }
    if (ddpi_parse_int(text, -SIGRTMAX, -1, &value, NULL) == DDP_OK) {
        *ret = 128 - (int)value;
        return DDP_OK;
    }
    for (int sig = 1; sig < NSIG; sig++) {
        const char *known = sigabbrev_np(sig);
        if (known != NULL && strcmp(known, name) == 0) {
            *ret = 128 + sig;
            return DDP_OK;
        }
    }
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "'%.64s' is neither an exit code from 0 to 255 nor a signal such as SIGKILL or -9", text);
}

static void print_text(int code, const struct explanation *is)
{
    const char *known = is_signal(code - 128) ? sigabbrev_np(code - 128) : NULL;
    printf("%d%s%s: %s\n", code, known != NULL ? " = 128 + SIG" : "", known != NULL ? known : "",
           is->meaning);
    printf("  to make sure: %s\n  what to do:   %s\n  run it again: %s\n", is->confirm, is->remedy,
           is->requeue);
    if (strcmp(is->origin, "ddprun") == 0)
        printf("  A worker may exit with %d too; then there is a report of it on standard error.\n",
               code);
}

static int explain(const struct explain_options *options, const char *text)
{
    struct ddp_error err;
    int code = 0;
    if (parse_code(text, &code, &err) != DDP_OK) {
        fprintf(stderr, "ddpctl explain: %s\n", err.msg);
        return DDPCTL_USAGE;
    }
    const struct explanation is = explain_code(code);
    if (!options->json) {
        print_text(code, &is);
        return DDPCTL_DONE;
    }
    json_t *object =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:s}", "code", code, "origin", is.origin, "meaning",
                  is.meaning, "confirm", is.confirm, "remedy", is.remedy, "requeue", is.requeue);
    return ddpctl_print_json(object, &err) == DDP_OK ? DDPCTL_DONE : DDPCTL_FAILED;
}

int ddpctl_explain(int argc, char **argv)
{
    struct explain_options options = {.json = false};
    struct ddp_error err;
    int operand, code = DDPCTL_DONE;
    if (options_parse(&ddpctl_explain_table, argc, argv, environ, &options, &operand, &err) !=
        DDP_OK) {
        fprintf(stderr, "ddpctl explain: %s\n", err.msg);
        return DDPCTL_USAGE;
    }
    if (options.help) {
        fputs("usage: ddpctl explain [OPTIONS] CODE\n\nSay what an exit code of ddprun means, how "
              "to make sure, and what to do.\n",
              stdout);
        options_print_help(&ddpctl_explain_table, stdout);
    } else if (operand != argc - 1) {
        fputs("ddpctl explain: give one exit code, such as 137, or a signal\n", stderr);
        return DDPCTL_USAGE;
    } else {
        code = explain(&options, argv[operand]);
    }
    return fflush(stdout) == 0 ? code : DDPCTL_FAILED;
}
