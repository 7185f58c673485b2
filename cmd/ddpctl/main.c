/*
 * main.c - main() of ddpctl: selects the verb.
 */
#include "ddpctl.h"
#include "secrecy.h"
#include "version.h"

#include <string.h>

static const struct {
    const char *name;
    ddpctl_verb run;
    const char *help;
} verbs[] = {
    {"status", ddpctl_job, "show the jobs of a store, their nodes and workers"},
    {"dump", ddpctl_job, "show what the ranks of a job are doing, and who is behind whom"},
    {"stop", ddpctl_job, "end a job"},
    {"drain", ddpctl_job, "remove a node from a job, which continues without it"},
    {"scale", ddpctl_job, "change the number of nodes of a job"},
    {"store", ddpctl_store, "read and change the keys of a store"},
    {"token", ddpctl_token, "create a token, show its path, or derive keys from it"},
};

enum { VERBS = sizeof verbs / sizeof *verbs };

static void print_verbs(void)
{
    fputs("usage: ddpctl VERB [OPTIONS] ...\n\nVerbs; see also 'ddpctl VERB --help'\n", stdout);
    for (size_t i = 0; i < VERBS; i++)
        printf("  %-12s %s\n", verbs[i].name, verbs[i].help);
    fputs("\nOptions\n  -h, --help     print help\n      --version  print the version and exit\n",
          stdout);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    secrecy_hide_memory();
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(word, verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    if (strcmp(word, "--version") == 0) {
        puts("ddpctl " DDPRUN_VERSION);
    } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_verbs();
    } else {
        fprintf(stderr, "ddpctl: unknown verb '%s'; 'ddpctl --help' lists the verbs\n", word);
        return DDPCTL_USAGE;
    }
    return fflush(stdout) == 0 ? DDPCTL_DONE : DDPCTL_FAILED;
}
