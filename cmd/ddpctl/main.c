/*
 * main.c - main() of ddpctl: selects the verb.
 */
#include "near_name.h"
#include "secrecy.h"
#include "verbs.h"
#include "version.h"

#include <string.h>

static void print_verbs(void)
{
    fputs("usage: ddpctl VERB [OPTIONS] ...\n\nVerbs; see also 'ddpctl VERB --help'\n", stdout);
    for (const struct ddpctl_verb_row *verb = ddpctl_verbs; verb->name != NULL; verb++)
        printf("  %-12s %s\n", verb->name, verb->help);
    fputs("\nOptions\n  -h, --help     print help\n      --version  print the version and exit\n",
          stdout);
}

static int refuse(const char *word)
{
    struct near_name near = near_name_begin(word, strlen(word));
    const char *meant = NULL;
    for (const struct ddpctl_verb_row *verb = ddpctl_verbs; verb->name != NULL; verb++)
        if (near_name_try(&near, verb->name))
            meant = verb->name;
    if (meant != NULL)
        fprintf(stderr,
                "ddpctl: unknown verb '%s'; did you mean '%s'? ('ddpctl --help' lists the verbs)\n",
                word, meant);
    else
        fprintf(stderr, "ddpctl: unknown verb '%s'; 'ddpctl --help' lists the verbs\n", word);
    return DDPCTL_USAGE;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    secrecy_hide_memory();
    for (const struct ddpctl_verb_row *verb = ddpctl_verbs; verb->name != NULL; verb++)
        if (strcmp(word, verb->name) == 0)
            return verb->run(argc - 1, argv + 1);
    if (strcmp(word, "--version") == 0) {
        puts("ddpctl " DDPRUN_VERSION);
    } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_verbs();
    } else if (argc > 1) {
        return refuse(word);
    } else {
        fputs("ddpctl: no verb is given, such as in 'ddpctl status'; 'ddpctl --help' lists the "
              "verbs\n",
              stderr);
        return DDPCTL_USAGE;
    }
    return fflush(stdout) == 0 ? DDPCTL_DONE : DDPCTL_FAILED;
}
