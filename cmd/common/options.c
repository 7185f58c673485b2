/*
 * options.c - parses all command lines of the project from option tables. Owns nothing.
 */
#include "options.h"

#include "error.h"
#include "near_name.h"
#include "parse.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { NAME_MAX_LEN = 64, OPTIONS_MAX = 96, HELP_COLUMN = 34, HELP_WIDTH = 98 };

ddp_status option_text(const struct option *option, const char *text, void *field,
                       struct ddp_error *err)
{
    (void)option;
    (void)err;
    *(const char **)field = text;
    return DDP_OK;
}

ddp_status option_switch(const struct option *option, const char *text, void *field,
                         struct ddp_error *err)
{
    (void)option;
    return ddpi_parse_bool(text, field, err);
}

ddp_status option_show(const struct option *option, const char *text, void *field,
                       struct ddp_error *err)
{
    return option_switch(option, text, field, err);
}

ddp_status option_choice(const struct option *option, const char *text, void *field,
                         struct ddp_error *err)
{
    uint32_t index = 0;
    const char *word;
    size_t len;
    for (const char *cursor = option->arg; ddpi_parse_list_next(&cursor, '|', &word, &len); index++)
        if (strlen(text) == len && memcmp(text, word, len) == 0) {
            *(uint32_t *)field = index;
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not %s", text, option->arg);
}

ddp_status option_u32(const struct option *option, const char *text, void *field,
                      struct ddp_error *err)
{
    int64_t value;
    ddp_status status = ddpi_parse_int(text, option->min, option->max, &value, err);
    if (status == DDP_OK)
        *(uint32_t *)field = (uint32_t)value;
    return status;
}

ddp_status option_u64(const struct option *option, const char *text, void *field,
                      struct ddp_error *err)
{
    int64_t value;
    ddp_status status = ddpi_parse_int(text, option->min, option->max, &value, err);
    if (status == DDP_OK)
        *(uint64_t *)field = (uint64_t)value;
    return status;
}

ddp_status option_size(const struct option *option, const char *text, void *field,
                       struct ddp_error *err)
{
    uint64_t value;
    ddp_status status = ddpi_parse_size(text, (uint64_t)option->max, &value, err);
    if (status != DDP_OK)
        return status;
    if (value < (uint64_t)option->min)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is less than %lld bytes", text,
                              (long long)option->min);
    *(uint64_t *)field = value;
    return DDP_OK;
}

ddp_status option_duration(const struct option *option, const char *text, void *field,
                           struct ddp_error *err)
{
    uint64_t ms;
    ddp_status status = ddpi_parse_duration_ms(text, 1000, (uint64_t)option->max, &ms, err);
    if (status != DDP_OK)
        return status;
    if (ms < (uint64_t)option->min)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is less than %" PRId64 " ms", text,
                              option->min);
    *(uint64_t *)field = ms;
    return DDP_OK;
}

/* ---- names ---- */

static bool value_is_optional(const struct option *option)
{
    return option->arg != NULL && *option->arg == '[';
}

/* What stands between the name of an option and that of its value. */
static const char *value_mark(const struct option *option)
{
    return option->arg == NULL || value_is_optional(option) ? "" : "=";
}

/* The option that may have been meant by @name; NULL: none is like it. */
static const struct option *nearest_option(const struct option_table *table, const char *name,
                                           size_t len)
{
    struct near_name near = near_name_begin(name, len);
    const struct option *best = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const struct option *option = &table->options[i];
        bool refused = option->parse == NULL; /* then it is told what to do instead */
        if ((refused || option_is_listed(option)) && near_name_try(&near, option->name))
            best = option;
    }
    return best;
}

/* The row with exactly the first @len bytes of @word. */
static const struct option_foreign *find_foreign(const struct option_table *table, const char *word,
                                                 size_t len)
{
    for (const struct option_foreign *row = table->foreign; row != NULL && row->word != NULL; row++)
        if (name_begins(row->word, word, len) && row->word[len] == '\0')
            return row;
    return NULL;
}

/* The same for an argument: up to a '=', or a letter followed by its value, as in -n4. */
static const struct option_foreign *find_foreign_word(const struct option_table *table,
                                                      const char *word)
{
    const struct option_foreign *row = find_foreign(table, word, strcspn(word, "="));
    return row != NULL || word[1] == '-' ? row : find_foreign(table, word, 2);
}

/* @name points into @word, after the dashes. */
static ddp_status unknown_option(const struct option_table *table, const char *word,
                                 const char *name, size_t len, struct ddp_error *err)
{
    const struct option_foreign *row = find_foreign_word(table, word);
    if (row != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "there is no option '%.*s' here, unlike in %s; %s",
                              (int)(name - word) + (int)len, word, row->of, row->instead);
    const struct option *near = nearest_option(table, name, len);
    int shown = (int)(name - word) + (int)(len < 200 ? len : 200);
    if (near != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "there is no option '%.*s'; did you mean '--%s'? ('%s --help' lists "
                              "all)",
                              shown, word, near->name, table->program);
    return ddpi_error_set(
        err, DDP_E_INVALID, "there is no option '%.*s'%s ('%s --help' lists all)", shown, word,
        table->runs_program ? "; options of the program go after it" : "", table->program);
}

static size_t dashes(const char *word)
{
    return word[1] == '-' ? 2 : 1;
}

/* Two dashes, or the whole name after one, as in mpirun's -np. */
static bool is_long_name(const struct option_table *table, const char *word)
{
    size_t len = strcspn(word + 1, "=");
    if (word[1] == '-')
        return true;
    for (size_t i = 0; i < table->count && len > 1; i++)
        if (name_begins(table->options[i].name, word + 1, len) &&
            table->options[i].name[len] == '\0')
            return true;
    return false;
}

static ddp_status find_long(const struct option_table *table, const char *word, size_t len,
                            const struct option **ret, struct ddp_error *err)
{
    const char *name = word + dashes(word);
    const struct option *found = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const struct option *option = &table->options[i];
        if (!name_begins(option->name, name, len))
            continue;
        if (option->name[len] == '\0') {
            *ret = option;
            return DDP_OK;
        }
        if (found != NULL)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "'--%.*s' could mean --%s or --%s: write more of it", (int)len,
                                  name, found->name, option->name);
        found = option;
    }
    if (found == NULL || find_foreign(table, word, len + 2) != NULL) /* --time is srun's */
        return unknown_option(table, word, name, len, err);
    *ret = found;
    return DDP_OK;
}

static ddp_status find_letter(const struct option_table *table, const char *word,
                              const struct option **ret, struct ddp_error *err)
{
    size_t len = strcspn(word, "=");
    bool other = len > 2 && find_foreign(table, word, len) != NULL; /* -host is not -h */
    for (size_t i = 0; i < table->count && !other; i++)
        if (table->options[i].letter == word[1]) {
            *ret = &table->options[i];
            return DDP_OK;
        }
    return unknown_option(table, word, word + 1, len - 1, err);
}

/* ---- values ---- */

static ddp_status refuse_option(const struct option *option, const char *written,
                                struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_UNSUPPORTED, "%s is not supported: %s", written, option->help);
}

static ddp_status apply_value(const struct option *option, const char *written, const char *text,
                              void *config, struct ddp_error *err)
{
    if (option->parse == NULL)
        return refuse_option(option, written, err);
    ddp_status status = option->parse(option, text, (char *)config + option->offset, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "%s", written);
}

/* The value and name of the first variable of @option that is set; NULL: none is. */
static const char *env_value(const struct option *option, char *const *envp, const char **ret_name,
                             size_t *ret_len)
{
    const char *text = NULL;
    for (const char *cursor = option->env;
         text == NULL && ddpi_parse_list_next(&cursor, ' ', ret_name, ret_len);)
        text = ddpi_parse_env(envp, *ret_name, *ret_len);
    return text;
}

/* Set the options that the command line does not give. */
static ddp_status apply_env(const struct option_table *table, char *const *envp,
                            const bool given[OPTIONS_MAX], void *config, struct ddp_error *err)
{
    for (size_t i = 0; i < table->count; i++) {
        const char *name;
        size_t len;
        const char *text = env_value(&table->options[i], envp, &name, &len);
        if (text == NULL || given[i])
            continue;
        char written[NAME_MAX_LEN + 32];
        snprintf(written, sizeof written, "the environment variable %.*s", (int)len, name);
        ddp_status status = apply_value(&table->options[i], written, text, config, err);
        if (status != DDP_OK)
            return status;
        if (table->taken != NULL)
            table->taken(config, &table->options[i], name, len, text);
    }
    return DDP_OK;
}

/* Parse the option at argv[*at], whose value may be the next argument; advances *@at to the last
 * one used. *@ret_last: ignore the arguments after it. */
static ddp_status parse_word(const struct option_table *table, int argc, char **argv, int *at,
                             bool given[OPTIONS_MAX], bool *ret_last, void *config,
                             struct ddp_error *err)
{
    const char *word = argv[*at];
    bool is_long = is_long_name(table, word);
    size_t len = is_long ? strcspn(word + dashes(word), "=") : 1;
    const struct option *option = NULL;
    ddp_status status = is_long ? find_long(table, word, len, &option, err)
                                : find_letter(table, word, &option, err);
    if (status != DDP_OK)
        return status;
    given[option - table->options] = true;
    *ret_last = option->parse == option_show;
    const char *name_end = word + dashes(word) + len;
    const char *text = *name_end == '\0' ? NULL : name_end + (*name_end == '=');
    char written[NAME_MAX_LEN + 8];
    snprintf(written, sizeof written, is_long ? "--%s" : "-%.1s",
             is_long ? option->name : word + 1);
    if (option->parse == NULL)
        return refuse_option(option, written, err);
    if (option->arg == NULL && text != NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "%s takes no value, but '%s' was given; omit it",
                              written, text);
    if (option->arg == NULL || (value_is_optional(option) && text == NULL))
        text = "1";
    if (text == NULL && *at + 1 < argc)
        text = argv[++*at];
    if (text == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "%s needs a value: %s=%s", written, written,
                              option->arg);
    status = apply_value(option, written, text, config, err);
    if (status == DDP_OK && table->taken != NULL)
        table->taken(config, option, NULL, 0, text);
    return status;
}

/* As exit codes of Python's subprocess are written; no option begins with a digit. */
static bool is_negative_number(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && word[1 + strspn(word + 1, "0123456789")] == '\0';
}

const struct option *options_find(const struct option_table *table, const char *word)
{
    size_t len = strncmp(word, "--", 2) == 0 ? strcspn(word + 2, "=") : 0;
    for (size_t i = 0; i < table->count && len > 0; i++)
        if (name_begins(table->options[i].name, word + 2, len) &&
            table->options[i].name[len] == '\0')
            return &table->options[i];
    return NULL;
}

ddp_status options_parse(const struct option_table *table, int argc, char **argv, char *const *envp,
                         void *config, int *ret_operand, struct ddp_error *err)
{
    bool given[OPTIONS_MAX] = {false}, last = false;
    ddp_status status = DDP_OK;
    int at = 1;
    assert(table->count <= OPTIONS_MAX);
    for (; status == DDP_OK && !last && at < argc; at++) {
        if (argv[at][0] != '-' || argv[at][1] == '\0' || is_negative_number(argv[at]))
            break;
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        status = parse_word(table, argc, argv, &at, given, &last, config, err);
    }
    if (status == DDP_OK && !last)
        status = apply_env(table, envp, given, config, err);
    if (status == DDP_OK)
        *ret_operand = last ? argc : at;
    return status;
}

/* ---- help ---- */

/* Print @text from column HELP_COLUMN on, wrapped at blanks. */
static void print_wrapped(const char *text, FILE *out)
{
    int column = HELP_COLUMN;
    const char *gap = "";
    for (; *text != '\0'; text += *text == ' ') {
        int word = (int)strcspn(text, " ");
        if (column + word + 1 > HELP_WIDTH && *gap != '\0') {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            gap = "";
        }
        fprintf(out, "%s%.*s", gap, word, text);
        column += word + (*gap != '\0');
        gap = " ";
        text += word;
    }
}

static void print_option(const struct option *option, FILE *out)
{
    char head[NAME_MAX_LEN + 32], help[1024];
    int len = snprintf(head, sizeof head, "  %c%c%s --%s%s%s", option->letter ? '-' : ' ',
                       option->letter ? option->letter : ' ', option->letter ? "," : " ",
                       option->name, value_mark(option), option->arg ? option->arg : "");
    snprintf(help, sizeof help, "%s%s%s%s", option->help, option->standard ? " (default: " : "",
             option->standard ? option->standard : "", option->standard ? ")" : "");
    if (len >= HELP_COLUMN - 1)
        fprintf(out, "%s\n%*s", head, HELP_COLUMN, "");
    else
        fprintf(out, "%-*s", HELP_COLUMN, head);
    print_wrapped(help, out);
    putc('\n', out);
}

/* Print each supported option, and the heading of a group before its first one. */
static void print_grouped(const struct option_table *table, const char *heading,
                          void (*print)(const struct option *option, FILE *out), FILE *out)
{
    const char *group = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const struct option *option = &table->options[i];
        if (!option_is_listed(option))
            continue;
        if (group == NULL || strcmp(group, option->group) != 0) {
            group = option->group;
            fprintf(out, "%s%s\n", heading, group);
        }
        print(option, out);
    }
}

void options_print_help(const struct option_table *table, FILE *out)
{
    print_grouped(table, "\n", print_option, out);
    if (table->refused_heading == NULL)
        return;
    fprintf(out, "\n%s\n ", table->refused_heading);
    for (size_t i = 0; i < table->count; i++)
        if (table->options[i].parse == NULL)
            fprintf(out, " --%s", table->options[i].name);
    fprintf(out, "\n");
}

/* roff treats '-' as a hyphen, and a line that begins with '.' or '\'' as a request. */
static void print_roff(const char *text, FILE *out)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text != '\0'; text++) {
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            putc(*text, out);
    }
}

static void print_man_option(const struct option *option, FILE *out)
{
    fputs(".TP\n\\fB", out);
    if (option->letter != 0)
        fprintf(out, "\\-%c\\fR, \\fB", option->letter);
    fputs("\\-\\-", out);
    print_roff(option->name, out);
    fprintf(out, "\\fR%s\\fI%s\\fR\n", value_mark(option), option->arg ? option->arg : "");
    print_roff(option->help, out);
    if (option->standard != NULL) {
        fputs(" (default: ", out);
        print_roff(option->standard, out);
        putc(')', out);
    }
    if (option->env != NULL)
        fprintf(out, ".\n.br\nEnvironment: \\fB%s\\fR", option->env);
    putc('\n', out);
}

void options_print_man(const struct option_table *table, FILE *out)
{
    print_grouped(table, ".SS ", print_man_option, out);
}
