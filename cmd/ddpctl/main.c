/*
 * main.c - main() of ddpctl: picks the verb.
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
    {"stop", ddpctl_job, "end a job"},
    {"drain", ddpctl_job, "take a node out of a job, which goes on without it"},
    {"scale", ddpctl_job, "say how many nodes a job is to have"},
    {"store", ddpctl_store, "look into a store, or change it"},
    {"token", ddpctl_token, "the token by which clients and servers know each other"},
};

enum { VERBS = sizeof verbs / sizeof *verbs };

static void print_help(void)
{
    fputs("usage: ddpctl VERB [OPTIONS] ...\n\nVerbs; 'ddpctl VERB --help' says more\n", stdout);
    for (size_t i = 0; i < VERBS; i++)
        printf("  %-12s %s\n", verbs[i].name, verbs[i].help);
    fputs("\nOptions\n  -h, --help     this list\n      --version  print the version and exit\n",
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
        print_help();
    } else {
        fprintf(stderr, "ddpctl: '%s' is no verb; 'ddpctl --help' lists them\n", word);
        return DDPCTL_USAGE;
    }
    return fflush(stdout) == 0 ? DDPCTL_DONE : DDPCTL_FAILED;
}
