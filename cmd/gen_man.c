/*
 * gen_man.c - writes ddprun's manual page: a template, with the option table where it says
 * @OPTIONS@. Runs at build time only.
 */
#include "ddprun_options.h"
#include "version.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    char line[1024];
    FILE *template = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (template == NULL) {
        fprintf(stderr, "usage: gen-man TEMPLATE > PAGE\n");
        return 2;
    }
    while (fgets(line, sizeof line, template) != NULL)
        if (strcmp(line, "@OPTIONS@\n") == 0)
            options_print_man(&ddprun_option_table, stdout);
        else if (strncmp(line, ".TH ", 4) == 0)
            printf("%.*s \"ddprun " DDPRUN_VERSION "\" \"User Commands\"\n",
                   (int)strcspn(line, "\n"), line);
        else
            fputs(line, stdout);
    fclose(template);
    return fflush(stdout) == 0 ? 0 : 1;
}
