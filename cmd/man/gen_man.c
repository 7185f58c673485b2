/*
 * gen_man.c - writes a program's manual page: a template, in which an option table of the program
 * takes the place of a line such as "@OPTIONS@". Runs at build time only.
 */
#include "ddprun_options.h"
#include "ddprund_options.h"
#include "perf_coll.h"
#include "tune.h"
#include "verbs.h"
#include "version.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *page;
    const char *section;
    const char *line; /* that the table replaces */
    const struct option_table *table;
} pages[] = {
    {"ddp-perf.1", "User Commands", "@COLLECTIVE_OPTIONS@\n", &coll_option_table},
    {"ddp-perf.1", "User Commands", "@TUNE_OPTIONS@\n", &tune_option_table},
    {"ddpctl.1", "User Commands", "@OPTIONS@\n", &ddpctl_store_table},
    {"ddpctl.1", "User Commands", "@JOB_OPTIONS@\n", &ddpctl_job_table},
    {"ddpctl.1", "User Commands", "@TOKEN_OPTIONS@\n", &ddpctl_token_table},
    {"ddpctl.1", "User Commands", "@TEMPLATE_OPTIONS@\n", &ddpctl_template_table},
    {"ddprun.1", "User Commands", "@OPTIONS@\n", &ddprun_option_table},
    {"ddprund.8", "System Administration", "@OPTIONS@\n", &ddprund_option_table},
    {"libddpcomm.3", "Library Functions", "", NULL}, /* libraries have no options */
    {"libddpstore.3", "Library Functions", "", NULL},
};

enum { PAGES = sizeof pages / sizeof *pages };

/* The table whose place in the page @line is, or NULL. */
static const struct option_table *table_at(const char *page, const char *line)
{
    for (size_t i = 0; i < PAGES; i++)
        if (strcmp(pages[i].page, page) == 0 && strcmp(pages[i].line, line) == 0)
            return pages[i].table;
    return NULL;
}

static int write_page(size_t page, FILE *template)
{
    char line[1024];
    while (fgets(line, sizeof line, template) != NULL) {
        const struct option_table *table = table_at(pages[page].page, line);
        if (table != NULL)
            options_print_man(table, stdout);
        else if (strncmp(line, ".TH ", 4) == 0)
            printf("%.*s \"ddprun " DDPRUN_VERSION "\" \"%s\"\n", (int)strcspn(line, "\n"), line,
                   pages[page].section);
        else
            fputs(line, stdout);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    FILE *template = argc == 3 ? fopen(argv[2], "r") : NULL;
    for (size_t i = 0; template != NULL && i < PAGES; i++)
        if (strcmp(argv[1], pages[i].page) == 0)
            return write_page(i, template);
    fprintf(stderr, "usage: gen-man PAGE TEMPLATE, where PAGE is such as ddprun.1\n");
    return 2;
}
