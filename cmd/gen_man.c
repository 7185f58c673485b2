/*
 * gen_man.c - writes a program's manual page: a template, with the program's option table where it
 * says @OPTIONS@. Runs at build time only.
 */
#include "ddpctl.h"
#include "ddprun_options.h"
#include "ddprund_options.h"
#include "version.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *page;
    const struct option_table *table;
    const char *section;
} pages[] = {
    {"ddpctl.1", &ddpctl_store_table, "User Commands"},
    {"ddprun.1", &ddprun_option_table, "User Commands"},
    {"ddprund.8", &ddprund_option_table, "System Administration"},
    {"libddpstore.3", NULL, "Library Functions"}, /* has no options */
};

static int write_page(size_t page, FILE *template)
{
    char line[1024];
    while (fgets(line, sizeof line, template) != NULL)
        if (strcmp(line, "@OPTIONS@\n") == 0)
            options_print_man(pages[page].table, stdout);
        else if (strncmp(line, ".TH ", 4) == 0)
            printf("%.*s \"ddprun " DDPRUN_VERSION "\" \"%s\"\n", (int)strcspn(line, "\n"), line,
                   pages[page].section);
        else
            fputs(line, stdout);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    FILE *template = argc == 3 ? fopen(argv[2], "r") : NULL;
    for (size_t i = 0; template != NULL && i < sizeof pages / sizeof *pages; i++)
        if (strcmp(argv[1], pages[i].page) == 0)
            return write_page(i, template);
    fprintf(stderr, "usage: gen-man PAGE TEMPLATE, where PAGE is such as ddprun.1\n");
    return 2;
}
