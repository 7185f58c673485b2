/*
 * completion.c - prints completions. What an option takes is told by its parser and by the name of
 * its value: words of a choice, the name of a file, or something that cannot be guessed.
 */
#include "completion.h"

#include <string.h>

static bool takes_choice(const struct option *option)
{
    return option->parse == option_choice;
}

static bool takes_file(const struct option *option)
{
    static const char *const names[] = {"FILE", "DIR", "PROGRAM"};
    for (size_t i = 0; option->arg != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(option->arg, names[i]) == 0)
            return true;
    return false;
}

/* The words of a choice, separated by blanks. */
static void print_choices(const struct option *option, FILE *out)
{
    for (const char *c = option->arg; *c != '\0'; c++)
        putc(*c == '|' ? ' ' : *c, out);
}

/* What an option does, up to where it becomes long; without characters that shells would read. */
static void print_summary(const struct option *option, FILE *out)
{
    size_t len = strcspn(option->help, ";:.");
    for (size_t i = 0; i < len && option->help[i] != '\0'; i++)
        putc(strchr("'\"[]`$\\", option->help[i]) != NULL ? ' ' : option->help[i], out);
}

typedef void print_option_fn(const struct option *option, const char *context, FILE *out);

static void each_option(const struct option_table *table, print_option_fn *print,
                        const char *context, FILE *out)
{
    for (size_t i = 0; i < table->count; i++)
        if (option_is_listed(&table->options[i]))
            print(&table->options[i], context, out);
}

/* ---- bash ---- */

/* bash divides a word at '=', so the option is one or two words before the value. */
static const char bash_begin[] =
    "{\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    [[ $word == = ]] && word=\n"
    "    [[ $option == = ]] && option=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    COMPREPLY=()\n";

static void bash_value(const struct option *option, const char *context, FILE *out)
{
    (void)context;
    if (takes_choice(option)) {
        fprintf(out, "    --%s) COMPREPLY=($(compgen -W '", option->name);
        print_choices(option, out);
        fputs("' -- \"$word\")); return ;;\n", out);
    } else if (takes_file(option)) {
        fprintf(out,
                "    --%s) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); "
                "return ;;\n",
                option->name);
    } else if (option->arg != NULL && *option->arg != '[') {
        fprintf(out, "    --%s) return ;;\n", option->name);
    }
}

static void bash_name(const struct option *option, const char *context, FILE *out)
{
    (void)context;
    fprintf(out, " --%s%s", option->name, option->arg != NULL && *option->arg != '[' ? "=" : "");
}

static void bash_options(const struct option_table *table, FILE *out)
{
    fputs("    case $option in\n", out);
    each_option(table, bash_value, NULL, out);
    fputs("    esac\n    if [[ $word == -* ]]; then\n        COMPREPLY=($(compgen -W '", out);
    each_option(table, bash_name, NULL, out);
    fputs("' -- \"$word\"))\n"
          "        [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace\n"
          "        return\n    fi\n",
          out);
}

static void print_bash(const struct completion *completion, FILE *out)
{
    char name[64];
    snprintf(name, sizeof name, "_%s", completion->program);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    fprintf(out, "# bash completion for %s, made from its table of options\n%s()\n%s",
            completion->program, name, bash_begin);
    if (completion->table != NULL)
        bash_options(completion->table, out);
    if (completion->verbs != NULL) {
        fputs("    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '", out);
        for (const struct completion_verb *verb = completion->verbs; verb->name != NULL; verb++)
            fprintf(out, " %s", verb->name);
        fputs("' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n", out);
        for (const struct completion_verb *verb = completion->verbs; verb->name != NULL; verb++) {
            fprintf(out, "    %s)\n", verb->name);
            bash_options(verb->table, out);
            fputs("    ;;\n", out);
        }
        fputs("    esac\n", out);
    }
    fprintf(out,
            "    compopt -o filenames\n    COMPREPLY=($(compgen -f -- \"$word\"))\n}\n"
            "complete -F %s %s\n",
            name, completion->program);
}

/* ---- zsh ---- */

static void zsh_option(const struct option *option, const char *context, FILE *out)
{
    (void)context;
    fprintf(out, " \\\n    '--%s%s[", option->name,
            option->arg != NULL && *option->arg != '[' ? "=" : "");
    print_summary(option, out);
    putc(']', out);
    if (takes_choice(option)) {
        fputs(":value:(", out);
        print_choices(option, out);
        putc(')', out);
    } else if (option->arg != NULL && *option->arg != '[') {
        fputs(takes_file(option) ? ":file:_files" : ":value: ", out);
    }
    putc('\'', out);
}

static void print_zsh(const struct completion *completion, FILE *out)
{
    fprintf(out, "#compdef %s\n# zsh completion, made from the table of options\n",
            completion->program);
    if (completion->table != NULL) {
        fputs("_arguments -S", out);
        each_option(completion->table, zsh_option, NULL, out);
        fputs(" \\\n    '1:program:_command_names -e' '*::arguments:_files'\n", out);
        return;
    }
    fputs("if ((CURRENT == 2)); then\n    compadd --", out);
    for (const struct completion_verb *verb = completion->verbs; verb->name != NULL; verb++)
        fprintf(out, " %s", verb->name);
    fputs("\n    return\nfi\ncase $words[2] in\n", out);
    for (const struct completion_verb *verb = completion->verbs; verb->name != NULL; verb++) {
        fprintf(out, "%s)\n_arguments -S", verb->name);
        each_option(verb->table, zsh_option, NULL, out);
        fputs(" \\\n    '*:word:_files'\n;;\n", out);
    }
    fputs("esac\n", out);
}

/* ---- fish ---- */

/* @context: the program, and for a verb the condition that it was given. */
static void fish_option(const struct option *option, const char *context, FILE *out)
{
    fprintf(out, "complete -c %s -l %s", context, option->name);
    if (option->letter != 0)
        fprintf(out, " -s %c", option->letter);
    if (option->arg != NULL && *option->arg != '[')
        fputs(takes_file(option) ? " -r -F" : " -x", out);
    if (takes_choice(option)) {
        fputs(" -a '", out);
        print_choices(option, out);
        putc('\'', out);
    }
    fputs(" -d '", out);
    print_summary(option, out);
    fputs("'\n", out);
}

static void print_fish(const struct completion *completion, FILE *out)
{
    char context[160];
    fprintf(out, "# fish completion for %s, made from its table of options\n", completion->program);
    if (completion->table != NULL)
        each_option(completion->table, fish_option, completion->program, out);
    for (const struct completion_verb *verb = completion->verbs; verb != NULL && verb->name != NULL;
         verb++) {
        fprintf(out, "complete -c %s -n __fish_use_subcommand -f -a %s\n", completion->program,
                verb->name);
        snprintf(context, sizeof context, "%s -n '__fish_seen_subcommand_from %s'",
                 completion->program, verb->name);
        each_option(verb->table, fish_option, context, out);
    }
}

void completion_print(const struct completion *completion, enum completion_shell shell, FILE *out)
{
    static void (*const print[])(const struct completion *completion,
                                 FILE *out) = {[COMPLETION_BASH] = print_bash,
                                               [COMPLETION_ZSH] = print_zsh,
                                               [COMPLETION_FISH] = print_fish};
    print[shell](completion, out);
}
