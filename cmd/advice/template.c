/*
 * template.c - the verb "template": prints a file to start from, such as a job for Kubernetes. The
 * texts are in templates/; a word between two '@' stands for a value, or alone in its line for
 * another text, which is indented as the line is.
 */
#include "advice.h"
#include "ddpctl.h"
#include "error.h"
#include "mem.h"
#include "template_text.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum template_kind { TEMPLATE_JOB, TEMPLATE_JOBSET, TEMPLATE_DDPRUND };

struct template_options {
    enum template_kind kind;
    const char *name, *image;
    uint32_t nodes, workers, gpus;
    bool replicate;
    bool help;
};

#define FIELD(member) offsetof(struct template_options, member)
#define OPTIONS       "Options"

static const struct option table[] = {
    {"kind", 0, "job|jobset|ddprund", NULL, "job", OPTIONS,
     "an indexed Job with its Service, a JobSet, or a Deployment of ddprund with its Service",
     option_choice, FIELD(kind), 0, 0},
    {"name", 0, "NAME", NULL, "train", OPTIONS, "name of the objects", option_text, FIELD(name), 0,
     0},
    {"image", 0, "IMAGE", NULL, "ddprun", OPTIONS,
     "container image that has ddprun and the program", option_text, FIELD(image), 0, 0},
    {"nnodes", 0, "N", NULL, "2", OPTIONS, "number of pods", option_u32, FIELD(nodes), 1, 100000},
    {"nproc-per-node", 0, "N", NULL, "1", OPTIONS, "number of workers in each pod", option_u32,
     FIELD(workers), 1, 4096},
    {"gpus", 0, "N", NULL, "0", OPTIONS, "number of GPUs of each pod", option_u32, FIELD(gpus), 0,
     1024},
    {"replicate", 0, NULL, NULL, NULL, OPTIONS,
     "keep the store on the first three pods, so that any one of them may die; the image must have "
     "etcd",
     option_switch, FIELD(replicate), 0, 0},
    OPTION_HELP(OPTIONS, FIELD(help)),
};

const struct option_table ddpctl_template_table = {
    .program = "ddpctl template", .options = table, .count = sizeof table / sizeof *table};

/* ---- values ---- */

/* Names of objects and hosts: at most 52 bytes, as that of a pod has an index, too. */
static bool is_label(const char *text)
{
    size_t len = strlen(text);
    bool ok = len > 0 && len <= 52 && isalpha((unsigned char)*text) && text[len - 1] != '-';
    for (size_t i = 0; i < len && ok; i++)
        ok = islower((unsigned char)text[i]) || isdigit((unsigned char)text[i]) || text[i] == '-';
    return ok;
}

static bool is_image(const char *text)
{
    bool ok = *text != '\0' && isalnum((unsigned char)*text);
    for (; ok && *text != '\0'; text++)
        ok = isalnum((unsigned char)*text) || strchr("._-/:@", *text) != NULL;
    return ok;
}

static ddp_status check_options(const struct template_options *options, bool named,
                                struct ddp_error *err)
{
    if (!named)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "what for? 'ddpctl template kubernetes' prints a job for Kubernetes");
    if (!is_label(options->name))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--name: '%.64s' is no name for objects of Kubernetes: use 1 to 52 "
                              "of [a-z0-9-], a letter first, no '-' last",
                              options->name);
    if (!is_image(options->image))
        return ddpi_error_set(err, DDP_E_INVALID, "--image: '%.64s' is no name of an image",
                              options->image);
    if (options->replicate && (options->nodes < 3 || options->kind == TEMPLATE_DDPRUND))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--replicate keeps the store of a job on three of its pods; give "
                              "--nnodes=3 or more, and --kind=job or jobset");
    return DDP_OK;
}

/* The command of the container as a list of YAML, which takes strings of JSON. */
static char *make_command(char *const *words)
{
    static char worker[] = "./worker";
    static char *const standard[] = {worker, NULL};
    json_t *list = json_array();
    int failed = json_array_append_new(list, json_string("ddprun"));
    for (words = *words != NULL ? words : standard; *words != NULL; words++)
        failed |= json_array_append_new(list, json_string(*words));
    char *text = failed == 0 ? json_dumps(list, JSON_ENSURE_ASCII) : NULL;
    json_decref(list);
    return text;
}

/* ---- printing ---- */

struct print {
    const struct template_options *options;
    const char *command;
};

static const char *text_of(const char *name)
{
    size_t i = 0;
    while (template_texts[i].name != NULL && strcmp(template_texts[i].name, name) != 0)
        i++;
    return template_texts[i].text;
}

static void print_number(const struct print *print, uint32_t number)
{
    (void)print;
    printf("%u", number);
}

static bool is_word(const char *at, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(at, name, len) == 0;
}

static void print_value(const struct print *print, const char *word, size_t len)
{
    const struct template_options *options = print->options;
    if (is_word(word, len, "NAME"))
        fputs(options->name, stdout);
    else if (is_word(word, len, "IMAGE"))
        fputs(options->image, stdout);
    else if (is_word(word, len, "COMMAND"))
        fputs(print->command, stdout);
    else if (is_word(word, len, "POD")) /* the name of each, without its index */
        printf(options->kind == TEMPLATE_JOBSET ? "%s-node-0" : "%s", options->name);
    else if (is_word(word, len, "NODES"))
        print_number(print, options->nodes);
    else if (is_word(word, len, "WORKERS"))
        print_number(print, options->workers);
    else if (is_word(word, len, "GPUS"))
        print_number(print, options->gpus);
    else
        assert(!"a template has a word without a value");
}

static void print_text(const struct print *print, const char *name, int indent);

/* The depth of a Job's spec below the object that has it. */
static void print_line(const struct print *print, const char *line, size_t len, int indent)
{
    size_t blanks = strspn(line, " ");
    if (is_word(line, len, "@JOB_SPEC@")) {
        print_text(print, "job_spec",
                   print->options->kind == TEMPLATE_JOBSET ? indent + 8 : indent + 2);
        return;
    }
    if (is_word(line, len, "@REPLICATE@")) {
        if (print->options->replicate)
            print_text(print, "replicate", indent + 6);
        return;
    }
    if (is_word(line, len, "@RESOURCES@")) {
        if (print->options->gpus > 0)
            print_text(print, "resources", indent + 6);
        return;
    }
    printf("%*s%.*s", indent, "", (int)blanks, line);
    for (const char *at = line + blanks, *end = line + len; at < end;) {
        const char *open = memchr(at, '@', (size_t)(end - at));
        const char *close = open != NULL ? memchr(open + 1, '@', (size_t)(end - open - 1)) : NULL;
        if (close == NULL) {
            printf("%.*s", (int)(end - at), at);
            break;
        }
        printf("%.*s", (int)(open - at), at);
        print_value(print, open + 1, (size_t)(close - open - 1));
        at = close + 1;
    }
    putchar('\n');
}

static void print_text(const struct print *print, const char *name, int indent)
{
    for (const char *line = text_of(name); *line != '\0';) {
        size_t len = strcspn(line, "\n");
        print_line(print, line, len, indent);
        line += len + 1;
    }
}

static int fail_with(const struct ddp_error *err)
{
    fprintf(stderr, "ddpctl template: %s\n", err->msg);
    return DDPCTL_USAGE;
}

static int print_help(void)
{
    fputs("usage: ddpctl template kubernetes [OPTIONS] [--] [OPTIONS OF DDPRUN] [PROGRAM ...]\n\n"
          "Print a manifest to start from: ddprun with the program in each pod of a job.\n",
          stdout);
    options_print_help(&ddpctl_template_table, stdout);
    return fflush(stdout) == 0 ? DDPCTL_DONE : DDPCTL_FAILED;
}

int ddpctl_template(int argc, char **argv)
{
    static const char *const texts[] = {"job", "jobset", "ddprund"};
    struct template_options options = {
        .name = "train", .image = "ddprun", .nodes = 2, .workers = 1};
    struct ddp_error err;
    int operand;
    bool named = argc > 1 && strcmp(argv[1], "kubernetes") == 0;
    if (options_parse(&ddpctl_template_table, argc - named, argv + named, environ, &options,
                      &operand, &err) != DDP_OK)
        return fail_with(&err);
    if (options.help)
        return print_help();
    if (check_options(&options, named, &err) != DDP_OK)
        return fail_with(&err);
    char *command = make_command(argv + named + operand);
    if (command == NULL) {
        ddpi_error_set(&err, DDP_E_INVALID, "a word of the program's command is not UTF-8");
        return fail_with(&err);
    }
    const struct print print = {&options, command};
    print_text(&print, texts[options.kind], 0);
    free(command);
    return fflush(stdout) == 0 ? DDPCTL_DONE : DDPCTL_FAILED;
}
