/*
 * job.c - the verbs for jobs: parses their options and operands, connects to the
 * store, and runs the verb; the verb status itself. Owns the store handle and the job view.
 */
#include "ddpctl_job.h"
#include "verbs.h"

#include "clock.h"
#include "error.h"
#include "flight_file.h"
#include "job_json.h"
#include "job_show.h"
#include "mem.h"

#include <string.h>

extern char **environ;

enum {
    LOOK_MS = 5000,
    WAIT_MS = 60000,
    CONNECT_MIN_MS = 1000,
    WORDS_MAX = 2,
};

#define FIELD(member) offsetof(struct ddpctl_job_options, member)
#define OPTIONS       "Options"
#define CHANGES       "Stop, drain, admit and scale"
#define RECORDS       "Dump"
#define IDENTITY      "Authentication"

static ddp_status parse_wait(const struct option *option, const char *text, void *field,
                             struct ddp_error *err)
{
    (void)option;
    (void)text;
    (void)err;
    *(bool *)field = false;
    return DDP_OK;
}

static const struct option table[] = {
    {"endpoint", 0, "HOST:PORT,...", "DDPRUN_STORE", NULL, OPTIONS,
     "address of the store that has the jobs (--rdzv-endpoint of their nodes); status, top and "
     "dump find that of your workers on this machine",
     option_text, FIELD(endpoint), 0, 0},
    {"timeout", 0, "DURATION", NULL, "5s; 1m if the command waits", OPTIONS,
     "give up after this long: seconds, or with a unit: 500ms, 2m", option_duration,
     FIELD(timeout_ms), 0, INT64_C(24) * 24 * 3600 * 1000},
    {"json", 0, NULL, NULL, NULL, OPTIONS,
     "print one JSON object per line; bytes that are not UTF-8 as {\"base64\": \"...\"}",
     option_switch, FIELD(json), 0, 0},
    OPTION_HELP(OPTIONS, FIELD(help)),
    {"wait", 0, NULL, NULL, NULL, CHANGES,
     "wait until the change has taken effect (the default); the last of --wait and --no-wait "
     "counts",
     parse_wait, FIELD(no_wait), 0, 0},
    {"no-wait", 0, NULL, NULL, NULL, CHANGES, "request the change and exit", option_switch,
     FIELD(no_wait), 0, 0},
    {"undo", 0, NULL, NULL, NULL, CHANGES, "drain: allow nodes of this name to join again",
     option_switch, FIELD(undo), 0, 0},
    {"force", 0, NULL, NULL, NULL, CHANGES,
     "drain: proceed even if too few nodes are left, which ends the job", option_switch,
     FIELD(force), 0, 0},
    {"last", 0, "N", NULL, "256", RECORDS, "look at the last N operations of each rank", option_u32,
     FIELD(last), 1, DDPI_FLIGHT_RECORDS_MAX},
    {"output", 0, "DIR", NULL, NULL, RECORDS,
     "also write the operations of each rank R to DIR/rank_R, for PyTorch's analyser: "
     "'torchfrtrace DIR'",
     option_text, FIELD(output), 0, 0},
    DDPCTL_AUTH_OPTIONS(IDENTITY, FIELD(auth)),
};

const struct option_table ddpctl_job_table = {
    .program = "ddpctl status", .options = table, .count = sizeof table / sizeof *table};

static const struct verb {
    const char *name;
    ddp_status (*run)(struct ddpctl_job_call *call, struct ddp_error *err);
    const char *words; /* operands, as shown in the help */
    size_t min, max;   /* number of operands; above min, the first one is JOB */
    bool changes;
    const char *help;
} verbs[] = {
    {"status", ddpctl_job_status, "[JOB]", 0, 1, false,
     "Show one job, or all jobs of the store: state, nodes and workers."},
    {"top", ddpctl_job_top, "[JOB]", 0, 1, false,
     "Show one job on the whole terminal, and draw it again whenever it changes; q ends it."},
    {"dump", ddpctl_job_dump, "[JOB]", 0, 1, false,
     "Show what the ranks of the job are doing in the collectives of libddpcomm: who is behind\n"
     "whom, and who called something else."},
    {"stop", ddpctl_job_stop, "[JOB]", 0, 1, true,
     "Stop the job's workers gracefully, then end the job."},
    {"drain", ddpctl_job_drain, "[JOB] NODE", 1, 2, true,
     "Stop the workers of the nodes named NODE, and continue without these nodes."},
    {"admit", ddpctl_job_admit, "[JOB] NODE", 1, 2, true,
     "Let the nodes named NODE come back, which the job has left out: after a check that passes,\n"
     "or from quarantine."},
    {"scale", ddpctl_job_scale, "[JOB] MIN:MAX", 1, 2, true,
     "Change how many nodes the job runs with, at least and at most."},
};

enum { VERBS = sizeof verbs / sizeof *verbs };

/* ---- status ---- */

/* Append the job to @jobs; print it as text if @jobs is NULL. */
static ddp_status show_job(const struct ddpctl_job_call *call, json_t *jobs, bool first,
                           struct ddp_error *err)
{
    if (jobs == NULL && !first)
        putchar('\n');
    bool shown = jobs == NULL ? job_show_text(&call->view, stdout)
                              : json_array_append_new(jobs, job_json(&call->view)) == 0;
    return shown ? DDP_OK : ddpi_error_nomem(err, sizeof call->view);
}

static ddp_status show_all(struct ddpctl_job_call *call, json_t *jobs, struct ddp_error *err)
{
    char **names;
    size_t count;
    bool first = true;
    ddp_status status = ddpctl_job_list(call, &names, &count, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        if (status == DDP_OK)
            status = ddpctl_job_read(call, names[i], err);
        if (status == DDP_OK && job_view_there(&call->view)) { /* else it ended just now */
            status = show_job(call, jobs, first, err);
            first = false;
        }
        ddpi_free(names[i]);
    }
    ddpi_free(names);
    if (status == DDP_OK && first && jobs == NULL)
        puts("no jobs");
    return status;
}

static ddp_status show_selected(struct ddpctl_job_call *call, json_t *jobs, struct ddp_error *err)
{
    if (call->job == NULL)
        return show_all(call, jobs, err);
    ddp_status status = ddpctl_job_find(call, err);
    return status == DDP_OK ? show_job(call, jobs, true, err) : status;
}

static ddp_status show_text(struct ddpctl_job_call *call, struct ddp_error *err)
{
    struct ddpi_cluster_summary kept;
    ddp_status status = show_selected(call, NULL, err);
    if (status == DDP_OK && ddpctl_job_read_kept(call, &kept)) {
        putchar('\n');
        job_show_kept(&kept, stdout);
    }
    return status;
}

/* NULL: no keepers keep it. */
static json_t *kept_json(struct ddpctl_job_call *call)
{
    struct ddpi_cluster_summary kept;
    return ddpctl_job_read_kept(call, &kept) ? ddpi_cluster_summary_json(&kept) : NULL;
}

ddp_status ddpctl_job_status(struct ddpctl_job_call *call, struct ddp_error *err)
{
    if (!call->options->json)
        return show_text(call, err);
    json_t *jobs = json_array();
    ddp_status status = jobs != NULL ? show_selected(call, jobs, err) : ddpi_error_nomem(err, 1);
    if (status == DDP_OK)
        status = ddpctl_print_json(json_pack("{s:i,s:O,s:o*}", "schema", JOB_JSON_SCHEMA, "jobs",
                                             jobs, "store", kept_json(call)),
                                   err);
    json_decref(jobs);
    return status;
}

/* ---- the command line ---- */

static ddp_status refuse_job_words(const struct verb *verb, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_INVALID, "usage: ddpctl %s %s; see 'ddpctl %s --help'",
                          verb->name, verb->words, verb->name);
}

/* Options may stand before, between and after the operands. */
static ddp_status parse_job_words(const struct verb *verb, int argc, char **argv,
                                  struct ddpctl_job_options *options, const char *words[WORDS_MAX],
                                  size_t *ret_count, struct ddp_error *err)
{
    char name[32], *const no_envp[] = {NULL};
    struct option_table named = ddpctl_job_table;
    size_t count = 0;
    int at = 0;
    snprintf(name, sizeof name, "ddpctl %s", verb->name);
    named.program = name;
    for (bool literal = false;; count++) { /* no options after "--" */
        int skip = 1;
        if (!literal) {
            ddp_status status = options_parse(&named, argc - at, argv + at,
                                              count == 0 ? environ : no_envp, options, &skip, err);
            if (status != DDP_OK || options->help)
                return status;
            literal = skip > 1 && strcmp(argv[at + skip - 1], "--") == 0;
        }
        at += skip;
        if (at >= argc)
            break;
        if (count == verb->max)
            return refuse_job_words(verb, err);
        words[count] = argv[at];
    }
    *ret_count = count;
    return DDP_OK;
}

static ddp_status check_job_call(const struct verb *verb, const struct ddpctl_job_options *options,
                                 size_t nwords, struct ddp_error *err)
{
    if (nwords < verb->min)
        return refuse_job_words(verb, err);
    if (options->no_wait && !verb->changes)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--no-wait is for stop, drain, admit and scale only");
    if ((options->undo || options->force) && verb->run != ddpctl_job_drain)
        return ddpi_error_set(err, DDP_E_INVALID, "--undo and --force are for drain only");
    if ((options->last != 0 || options->output != NULL) && verb->run != ddpctl_job_dump)
        return ddpi_error_set(err, DDP_E_INVALID, "--last and --output are for dump only");
    if (options->json && verb->run == ddpctl_job_top)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--json is not for top; 'ddpctl status --json' prints the same once");
    if (verb->changes && (options->endpoint == NULL || *options->endpoint == '\0'))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no store address: give --endpoint=HOST:PORT or set DDPRUN_STORE");
    return DDP_OK;
}

static ddp_status choose_store(struct ddpctl_job_options *options, char found[DDPCTL_ENDPOINT_MAX],
                               struct ddp_error *err)
{
    if (options->endpoint != NULL && *options->endpoint != '\0')
        return DDP_OK;
    options->endpoint = found;
    return ddpctl_job_here(found, err);
}

/* ---- the verbs ---- */

static ddp_status run_job_verb(const struct verb *verb, struct ddpctl_job_call *call,
                               struct ddp_error *err)
{
    const struct ddpctl_job_options *given = call->options;
    bool waits = verb->changes && !given->no_wait;
    uint64_t timeout_ms =
        given->timeout_ms != UINT64_MAX ? given->timeout_ms : (waits ? WAIT_MS : LOOK_MS);
    char *home_token = NULL;
    struct ddp_store_options options = {
        .size = sizeof options,
        .endpoint = given->endpoint,
        .connect_timeout_ms = LOOK_MS,
        .auth = given->auth.none ? DDP_STORE_AUTH_NONE : DDP_STORE_AUTH_DEFAULT,
        .token_file = given->auth.token_file,
        .token_fd = (int)given->auth.token_fd,
        /* An interactive command reports a lost connection at once. */
        .flags = (waits ? 0 : DDP_STORE_NO_RECONNECT) | (given->auth.tls ? DDP_STORE_TLS : 0),
    };
    if (timeout_ms < LOOK_MS)
        options.connect_timeout_ms =
            timeout_ms > CONNECT_MIN_MS ? (uint32_t)timeout_ms : CONNECT_MIN_MS;
    ddpctl_choose_token(&options, &home_token);
    ddp_status status =
        ddpctl_advise_token(&options, ddp_store_connect(&options, &call->store, err), err);
    if (status == DDP_OK) {
        call->deadline_ms = ddpi_deadline(ddpi_monotonic_ms(), timeout_ms);
        status = verb->run(call, err);
        ddp_store_close(call->store);
    }
    job_view_finish(&call->view);
    ddpi_free(home_token);
    return status;
}

static bool takes(const struct verb *verb, const struct option *option)
{
    bool is_drains = strcmp(option->name, "undo") == 0 || strcmp(option->name, "force") == 0;
    if (is_drains)
        return verb->run == ddpctl_job_drain;
    if (strcmp(option->group, CHANGES) == 0)
        return verb->changes;
    if (strcmp(option->group, RECORDS) == 0)
        return verb->run == ddpctl_job_dump;
    return verb->run != ddpctl_job_top || strcmp(option->name, "json") != 0;
}

static void print_job_help(const struct verb *verb)
{
    struct option taken[sizeof table / sizeof *table];
    struct option_table own = ddpctl_job_table;
    own.options = taken;
    own.count = 0;
    for (size_t i = 0; i < ddpctl_job_table.count; i++)
        if (takes(verb, &table[i]))
            taken[own.count++] = table[i];
    printf("usage: ddpctl %s [OPTIONS] %s\n\n%s\n", verb->name, verb->words, verb->help);
    if (verb->changes)
        puts("JOB may be omitted if the store has only one job.");
    options_print_help(&own, stdout);
}

int ddpctl_job(int argc, char **argv)
{
    struct ddp_error err;
    struct ddpctl_job_options options = {.timeout_ms = UINT64_MAX};
    const char *words[WORDS_MAX] = {NULL};
    char found[DDPCTL_ENDPOINT_MAX];
    size_t nwords = 0;
    const struct verb *verb = verbs;
    while (verb < verbs + VERBS - 1 && strcmp(verb->name, argv[0]) != 0)
        verb++;
    ddp_status status = parse_job_words(verb, argc, argv, &options, words, &nwords, &err);
    if (status == DDP_OK && options.help) {
        print_job_help(verb);
    } else if (status == DDP_OK) {
        bool named = nwords > verb->min;
        struct ddpctl_job_call call = {
            .options = &options, .job = named ? words[0] : NULL, .word = words[named]};
        status = check_job_call(verb, &options, nwords, &err);
        if (status == DDP_OK)
            status = choose_store(&options, found, &err);
        if (status == DDP_OK)
            status = run_job_verb(verb, &call, &err);
    }
    return ddpctl_finish(status, &err);
}
