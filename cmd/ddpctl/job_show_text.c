/*
 * job_show_text.c - a job as text. All text from the store goes through ddpctl_print_bytes(), which
 * lets no control sequence reach the terminal. Owns nothing.
 */
#include "ddpctl.h"
#include "job_show.h"
#include "mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_SIZE = 512, WHY_SIZE = 320 };

/* ---- the store ---- */

static void put_machines(const struct ddpi_cluster_summary *kept, bool members, FILE *out)
{
    const char *before = members ? "  members     " : " (";
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        char endpoint[DDPI_CLUSTER_ENDPOINT];
        enum ddpi_machine_state state = kept->machines[i].state;
        if ((state == MACHINE_MEMBER) != members)
            continue;
        ddpi_endpoint_text(&kept->machines[i].at, endpoint, sizeof endpoint);
        fprintf(out, "%s%s", before, endpoint);
        if (!members)
            fprintf(out, " is %s", ddpi_machine_state_name(state));
        before = ", ";
    }
    if (!members && *before == ',')
        putc(')', out);
}

void job_show_kept(const struct ddpi_cluster_summary *kept, FILE *out)
{
    char leader[DDPI_CLUSTER_ENDPOINT], survives[DDPI_CLUSTER_SURVIVES];
    ddpi_endpoint_text(&kept->machines[kept->leader].at, leader, sizeof leader);
    ddpi_cluster_survives(kept, survives);
    fprintf(out, "store led by %s\n", leader);
    put_machines(kept, true, out);
    put_machines(kept, false, out);
    fprintf(out, "\n  survives    %s\n", survives);
}

/* ---- the job ---- */

void job_show_state(const struct job_view *view, char *text, size_t size)
{
    const struct ddpi_rounds_summary *job = &view->summary;
    const char *waiting = job_view_waiting(view);
    if (job_view_is(view, ROUNDS_CLOSED)) {
        snprintf(text, size, "is over, exit code %d: %s", job->exit_code, job->reason);
    } else if (!view->state.there) {
        snprintf(text, size, "no longer exists");
    } else if (view->state.bad) {
        snprintf(text, size, "exists, but its record in the store cannot be read");
    } else if (job->state == ROUNDS_FORMING) {
        snprintf(text, size, "is %s", *waiting != '\0' ? waiting : "waiting for its nodes");
    } else if (job->state == ROUNDS_STOPPING) {
        snprintf(text, size, "is %s generation %" PRIu64 ": %s",
                 job->closing ? "ending with" : "stopping", job->generation, job->reason);
    } else if (job->state == ROUNDS_PAUSING) {
        snprintf(text, size, "pauses before the next restart: %s", waiting);
    } else {
        snprintf(text, size, "is %s generation %" PRIu64,
                 job_view_up(view) ? "running" : "starting", job->generation);
    }
}

static void put_store_text(FILE *out, const char *text)
{
    ddpctl_print_bytes(out, text, strlen(text));
}

static uint32_t count_spares(const struct job_view *view)
{
    uint32_t count = 0;
    for (size_t i = 0; i < view->nnodes; i++)
        count += job_node_spare(view->nodes[i]);
    return count;
}

static void put_recovery(const struct ddpi_rounds_summary *job, FILE *out)
{
    const struct {
        const char *name;
        uint64_t ms;
    } phases[] = {{"idle", job->idle_ms}, {"seated", job->seated_ms}, {"running", job->running_ms}};
    if (job->idle_ms == 0)
        return;
    fputs("  recovery    ", out);
    for (size_t i = 0; i < sizeof phases / sizeof *phases && phases[i].ms != 0; i++)
        fprintf(out, "%s%s after %" PRIu64 " ms", i > 0 ? ", " : "", phases[i].name, phases[i].ms);
    putc('\n', out);
}

static void put_requests(const struct job_view *view, FILE *out)
{
    static const char drain[] = "drain/";
    const char *before = "  wanted      ";
    for (size_t i = 0; i < view->nwants; i++) {
        const struct job_want *want = &view->wants[i];
        bool is_drain = strncmp(want->what, drain, sizeof drain - 1) == 0;
        if (!want->record.there)
            continue;
        fputs(before, out);
        if (is_drain)
            fputs("drain ", out);
        put_store_text(out, is_drain ? want->what + sizeof drain - 1 : want->what);
        if (*want->value != '\0')
            putc(' ', out);
        put_store_text(out, want->value);
        before = ", ";
    }
    if (*before == ',')
        putc('\n', out);
}

static void put_left_out_line(const char *name, const char *why, bool there, FILE *out)
{
    fputs("  left out    ", out);
    put_store_text(out, name);
    fputs(there ? ": " : " (not here): ", out);
    put_store_text(out, why);
    putc('\n', out);
}

static bool is_here(const struct job_view *view, const char *name)
{
    for (size_t i = 0; i < view->nnodes; i++)
        if (job_node_is(view->nodes[i], name))
            return true;
    return false;
}

/* The nodes that are left out, and names that will be if they come. */
static void put_left_out(const struct job_view *view, FILE *out)
{
    char why[WHY_SIZE];
    for (size_t i = 0; i < view->nnodes; i++) {
        const char *reason = job_node_left_out(view->nodes[i]);
        if (reason != NULL)
            put_left_out_line(view->nodes[i]->says.name, reason, true, out);
    }
    for (size_t i = 0; i < view->nblames; i++) {
        const char *name = view->blames[i].name;
        if (!is_here(view, name) && job_view_left_out(view, name, why, sizeof why))
            put_left_out_line(name, why, false, out);
    }
}

static void put_job(const struct job_view *view, FILE *out)
{
    const struct ddpi_rounds_summary *job = &view->summary;
    char state[STATE_SIZE];
    uint32_t min, max, spares = count_spares(view);
    job_show_state(view, state, sizeof state);
    fprintf(out, "job %s ", view->name);
    put_store_text(out, state);
    putc('\n', out);
    if (view->state.bad)
        return;
    job_view_size(view, &min, &max);
    fprintf(out, "  nodes       %u (%u to %u)", job->seated, min, max);
    if (spares > 0)
        fprintf(out, ", %u spare%s", spares, spares == 1 ? "" : "s");
    fprintf(out, "\n  world size  %u\n  restarts    %u of %u\n", job->world_size, job->restarts,
            job->terms.max_restarts);
    if (job->reason[0] != '\0' && job->state != ROUNDS_CLOSED && job->state != ROUNDS_STOPPING) {
        fputs("  last stop   ", out);
        put_store_text(out, job->reason);
        putc('\n', out);
    }
    put_recovery(job, out);
    put_left_out(view, out);
    put_requests(view, out);
}

/* ---- its nodes ---- */

static void put_rank(const struct job_view *view, const struct job_node *node, FILE *out)
{
    if (job_node_seated(view, node))
        fprintf(out, "%u", node->seat.node_rank);
    else
        putc('-', out);
}

static void put_node_name(const struct job_view *view, const struct job_node *node, FILE *out)
{
    (void)view;
    put_store_text(out, node->member.bad ? "(cannot be read)" : node->says.name);
}

static void put_node_address(const struct job_view *view, const struct job_node *node, FILE *out)
{
    (void)view;
    put_store_text(out, node->says.address[0] != '\0' ? node->says.address : "-");
}

static void put_phase(const struct job_view *view, const struct job_node *node, FILE *out)
{
    static const char *const names[] = {[DDP_ROUND_IDLE] = "idle",
                                        [DDP_ROUND_STARTING] = "starting",
                                        [DDP_ROUND_RUNNING] = "running",
                                        [DDP_ROUND_DONE] = "done"};
    (void)view;
    fputs(node->says.leaving ? "leaving, " : "", out);
    fputs(node->says.checking ? "checking, " : "", out);
    fputs(names[node->says.phase], out);
    if (node->says.generation != 0)
        fprintf(out, " %" PRIu64, node->says.generation);
}

static void put_order(const struct job_view *view, const struct job_node *node, FILE *out)
{
    static const char *const names[] = {[DDP_ROUND_WAIT] = "wait",
                                        [DDP_ROUND_RUN] = "run",
                                        [DDP_ROUND_STOP] = "stop",
                                        [DDP_ROUND_END] = "end"};
    (void)view;
    if (!node->order.there || node->order.bad)
        putc('-', out);
    else
        fputs(job_node_left_out(node) != NULL ? "left out"
              : job_node_spare(node)          ? "spare"
                                              : names[node->seat.order],
              out);
}

static void put_ranks(const struct job_view *view, const struct job_node *node, FILE *out)
{
    uint32_t first = node->seat.first_rank;
    if (!job_node_seated(view, node) || node->says.nproc == 0)
        putc('-', out);
    else if (node->says.nproc == 1)
        fprintf(out, "%u", first);
    else
        fprintf(out, "%u-%u", first, first + node->says.nproc - 1);
}

/* "3359 running", "3360 exited 3". */
static void put_worker(const struct worker_status *worker, FILE *out)
{
    fprintf(out, "%d %s", worker->pid, worker_status_state_name(worker->state));
    if (worker->state == WORKER_STATUS_EXITED)
        fprintf(out, " %u", worker->exit_code);
    else if (worker->state == WORKER_STATUS_KILLED)
        fprintf(out, " %s", worker->signal);
}

static void put_workers(const struct job_view *view, const struct job_node *node, FILE *out)
{
    struct worker_status worker;
    const char *at = node->workers, *before = "";
    (void)view;
    for (size_t left = node->workers_len; worker_status_next(&at, &left, &worker); before = ", ") {
        fputs(before, out);
        put_worker(&worker, out);
    }
    if (*before == '\0')
        putc('-', out);
}

static bool is_exception(const struct worker_status *worker)
{
    return worker->state == WORKER_STATUS_KILLED || worker->state == WORKER_STATUS_STOPPED ||
           (worker->state == WORKER_STATUS_EXITED && worker->exit_code != 0);
}

/* How many there are in each state that is no exception. */
static void put_worker_counts(const struct job_view *view, const struct job_node *node, FILE *out)
{
    static const enum worker_status_state ordinary[] = {
        WORKER_STATUS_RUNNING, WORKER_STATUS_STOPPING, WORKER_STATUS_EXITED};
    unsigned counts[WORKER_STATUS_KILLED + 1] = {0};
    struct worker_status worker;
    const char *at = node->workers, *before = "";
    (void)view;
    for (size_t left = node->workers_len; worker_status_next(&at, &left, &worker);)
        counts[worker.state] += !is_exception(&worker);
    for (size_t i = 0; i < sizeof ordinary / sizeof *ordinary; i++) {
        if (counts[ordinary[i]] == 0)
            continue;
        fprintf(out, "%s%u %s", before, counts[ordinary[i]], worker_status_state_name(ordinary[i]));
        before = ", ";
    }
    if (*before == '\0')
        putc('-', out);
}

/* A line for each exception of a node. */
static void put_exceptions(const struct job_node *node, FILE *out)
{
    struct worker_status worker;
    const char *at = node->workers;
    for (size_t left = node->workers_len; worker_status_next(&at, &left, &worker);)
        if (is_exception(&worker)) {
            fprintf(out, "        rank %u: ", worker.rank);
            put_worker(&worker, out);
            putc('\n', out);
        }
}

struct column {
    const char *heading;
    void (*put)(const struct job_view *view, const struct job_node *node, FILE *out);
};

static const struct column full[] = {
    {"NODE", put_rank},      {"NAME", put_node_name}, {"ADDRESS", put_node_address},
    {"PHASE", put_phase},    {"ORDER", put_order},    {"RANKS", put_ranks},
    {"WORKERS", put_workers}};
/* Those that fit into 80 columns. */
static const struct column brief[] = {{"NODE", put_rank},   {"NAME", put_node_name},
                                      {"PHASE", put_phase}, {"ORDER", put_order},
                                      {"RANKS", put_ranks}, {"WORKERS", put_worker_counts}};
enum { COLUMNS_MAX = sizeof full / sizeof *full };

/* Columns, and how wide they are. */
struct table {
    const struct column *columns;
    size_t count;
    int width[COLUMNS_MAX];
};

/* The text of a cell, which the caller frees; NULL: out of memory. */
static char *cell_of(const struct job_view *view, const struct job_node *node,
                     const struct column *column)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    column->put(view, node, out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* The number of characters of UTF-8 text. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static bool measure_columns(const struct job_view *view, struct job_node *const *nodes,
                            size_t count, struct table *table)
{
    for (size_t c = 0; c < table->count; c++)
        table->width[c] = width_of(table->columns[c].heading);
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < table->count - 1; c++) {
            char *cell = cell_of(view, nodes[i], &table->columns[c]);
            if (cell == NULL)
                return false;
            int needs = width_of(cell);
            table->width[c] = needs > table->width[c] ? needs : table->width[c];
            free(cell);
        }
    return true;
}

static void put_cell(FILE *out, const struct table *table, size_t column, const char *text)
{
    bool last = column == table->count - 1;
    fprintf(out, "  %s%*s", text, last ? 0 : table->width[column] - width_of(text), "");
    if (last)
        putc('\n', out);
}

static bool put_node(const struct job_view *view, const struct job_node *node,
                     const struct table *table, FILE *out)
{
    for (size_t c = 0; c < table->count; c++) {
        char *cell = cell_of(view, node, &table->columns[c]);
        if (cell == NULL)
            return false;
        put_cell(out, table, c, cell);
        free(cell);
    }
    if (table->columns == brief)
        put_exceptions(node, out);
    return true;
}

static bool show_job_table(const struct job_view *view, struct table *table, FILE *out)
{
    size_t count;
    struct job_node **nodes = job_view_order(view, &count);
    bool done = nodes != NULL && measure_columns(view, nodes, count, table);
    if (done)
        put_job(view, out);
    for (size_t c = 0; done && count > 0 && c < table->count; c++)
        put_cell(out, table, c, table->columns[c].heading);
    for (size_t i = 0; i < count && done; i++)
        done = put_node(view, nodes[i], table, out);
    ddpi_free(nodes);
    return done;
}

bool job_show_text(const struct job_view *view, FILE *out)
{
    struct table table = {.columns = full, .count = sizeof full / sizeof *full};
    return show_job_table(view, &table, out);
}

bool job_show_brief(const struct job_view *view, FILE *out)
{
    struct table table = {.columns = brief, .count = sizeof brief / sizeof *brief};
    return show_job_table(view, &table, out);
}
