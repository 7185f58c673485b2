/*
 * gen_completion.c - writes the completions of a program for a shell: gen-completion PROGRAM SHELL.
 * Runs at build time only.
 */
#include "completion.h"
#include "ddprun_options.h"
#include "ddprund_options.h"
#include "perf_coll.h"
#include "tune.h"
#include "verbs.h"

#include <stdio.h>
#include <string.h>

static struct completion_verb ddpctl_words[COMPLETION_VERBS_MAX + 1];

static const struct completion_verb perf_words[] = {
#define PERF_WORD(symbol, name, other, total, reduces, rooted) {name, &coll_option_table},
    COLL_CALL_MAP(PERF_WORD)
#undef PERF_WORD
        {"tune", &tune_option_table},
    {NULL, NULL},
};

static const struct completion programs[] = {
    {"ddprun", &ddprun_option_table, NULL},
    {"ddprund", &ddprund_option_table, NULL},
    {"ddpctl", NULL, ddpctl_words},
    {"ddp-perf", NULL, perf_words},
};

static const char *const shells[] = {"bash", "zsh", "fish"};

int main(int argc, char **argv)
{
    for (size_t i = 0; ddpctl_verbs[i].name != NULL && i < COMPLETION_VERBS_MAX; i++)
        ddpctl_words[i] = (struct completion_verb){ddpctl_verbs[i].name, ddpctl_verbs[i].table};
    for (size_t i = 0; argc == 3 && i < sizeof programs / sizeof *programs; i++)
        for (size_t shell = 0; shell < sizeof shells / sizeof *shells; shell++)
            if (strcmp(argv[1], programs[i].program) == 0 && strcmp(argv[2], shells[shell]) == 0) {
                completion_print(&programs[i], (enum completion_shell)shell, stdout);
                return fflush(stdout) == 0 ? 0 : 1;
            }
    fprintf(stderr, "usage: gen-completion PROGRAM bash|zsh|fish\n");
    return 2;
}
