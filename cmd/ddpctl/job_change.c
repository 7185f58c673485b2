/*
 * job_change.c - the verbs stop, drain, admit and scale: each sets a key that requests a change of
 * a job (round_keys.h), if the job exists, and waits until the change has taken effect. Owns
 * nothing.
 */
#include "ddpctl_job.h"
#include "error.h"
#include "job_json.h"
#include "job_show.h"
#include "round_names.h"

#include <inttypes.h>
#include <string.h>

enum {
    KEY_SIZE = sizeof DDPI_ROUND_PREFIX "/want/drain/" + DDPI_JOB_MAX + DDP_ROUND_NAME_SIZE,
    STATE_SIZE = 320,
    ASK_MS = 1000, /* until the server is asked again */
};

/* A requested change, and how to see that it has taken effect. */
struct change {
    const char *what;  /* "stop", ... */
    const char *value; /* NULL: withdraw the request */
    const char *word;  /* operand of the verb */
    /* NULL: nothing to wait for. */
    bool (*done)(const struct job_view *view, const char *word);
    /* It has taken effect, but not as requested: why. NULL: that cannot be. */
    bool (*failed)(const struct job_view *view, const char *word, struct ddp_error *err);
    bool ends;           /* the end of the job counts as done */
    const char *node[2]; /* printed after the name of the node @word: requested, done; or NULL */
};

/* ---- requests ---- */

static ddp_status fail_with_state(const struct ddpctl_job_call *call, ddp_status status,
                                  struct ddp_error *err)
{
    char state[STATE_SIZE];
    job_show_state(&call->view, state, sizeof state);
    return ddpi_error_set(err, status, "job %s %s", call->view.name, state);
}

static ddp_status try_request(struct ddpctl_job_call *call, const struct change *change,
                              struct ddp_error *err)
{
    char state[KEY_SIZE], key[KEY_SIZE];
    snprintf(state, sizeof state, DDPI_ROUND_PREFIX "%s/state", call->view.name);
    snprintf(key, sizeof key, DDPI_ROUND_PREFIX "%s/want/%s", call->view.name, change->what);
    const struct ddp_store_clause clauses[] = {
        {.kind = DDP_STORE_IF_VERSION, .key = state, .version = call->view.state.version},
        {.kind = change->value != NULL ? DDP_STORE_THEN_SET : DDP_STORE_THEN_DELETE,
         .key = key,
         .value = change->value,
         .value_len = change->value != NULL ? strlen(change->value) : 0}};
    return ddp_store_transact(call->store, clauses, 2, ddpctl_job_left_ms(call), NULL, err);
}

/* If the job has just ended, the request must not reach the next job of the same name. */
static ddp_status request_change(struct ddpctl_job_call *call, const struct change *change,
                                 struct ddp_error *err)
{
    for (;;) {
        ddp_status status = try_request(call, change, err);
        if (status != DDP_E_CONFLICT)
            return status;
        status = ddpctl_job_follow(call, ddpctl_job_left_ms(call), err);
        if (status != DDP_OK)
            return status;
        if (!job_view_there(&call->view))
            return fail_with_state(call, DDP_E_NOT_FOUND, err);
    }
}

/* ---- waiting ---- */

static bool job_ended(const struct job_view *view)
{
    return !job_view_there(view) || job_view_is(view, ROUNDS_CLOSED);
}

static ddp_status ask_server(struct ddpctl_job_call *call, uint32_t timeout_ms,
                             struct ddp_error *err)
{
    char *stats;
    ddp_status status = ddp_store_stats(call->store, timeout_ms, &stats, err);
    if (status == DDP_OK)
        ddp_store_free(stats);
    return status;
}

static bool may_ask_again(const struct ddpctl_job_call *call, ddp_status status)
{
    return !call->options->no_wait && ddpctl_job_left_ms(call) > 0 &&
           (status == DDP_E_TIMEOUT || status == DDP_E_UNREACHABLE || status == DDP_E_CLOSED);
}

/* The server acts on a request before it answers any later one. The store of an agent may end with
 * the job before it is asked: by then it has told the end of the job. */
static ddp_status catch_up(struct ddpctl_job_call *call, struct ddp_error *err)
{
    for (;;) {
        struct ddp_error why;
        uint32_t left = ddpctl_job_left_ms(call);
        ddp_status asked = ask_server(call, left < ASK_MS ? left : ASK_MS, &why);
        ddp_status status = ddpctl_job_follow(call, 0, err);
        if (status != DDP_OK && status != DDP_E_TIMEOUT)
            return status;
        if (asked == DDP_OK || job_ended(&call->view))
            return DDP_OK;
        if (!may_ask_again(call, asked)) {
            *err = why;
            return asked;
        }
    }
}

static ddp_status change_timed_out(const struct ddpctl_job_call *call, struct ddp_error *err)
{
    char state[STATE_SIZE];
    job_show_state(&call->view, state, sizeof state);
    return ddpi_error_set(err, DDP_E_TIMEOUT,
                          "requested, but not in effect before --timeout ended: job %s %s",
                          call->view.name, state);
}

static ddp_status await_change(struct ddpctl_job_call *call, const struct change *change,
                               struct ddp_error *err)
{
    ddp_status status = catch_up(call, err);
    while (status == DDP_OK && !change->done(&call->view, change->word)) {
        if (job_ended(&call->view))
            return change->ends ? DDP_OK : fail_with_state(call, DDP_E_CONFLICT, err);
        status = ddpctl_job_follow(call, ddpctl_job_left_ms(call), err);
    }
    return status == DDP_E_TIMEOUT ? change_timed_out(call, err) : status;
}

static ddp_status print_change(const struct ddpctl_job_call *call, const struct change *change,
                               bool done, struct ddp_error *err)
{
    char state[STATE_SIZE];
    if (call->options->json)
        return ddpctl_print_json(json_pack("{s:i,s:b,s:[o]}", "schema", JOB_JSON_SCHEMA, "done",
                                           done, "jobs", job_json(&call->view)),
                                 err);
    job_show_state(&call->view, state, sizeof state);
    if (change->node[done] != NULL)
        printf("node %s %s; ", change->word, change->node[done]);
    printf("job %s ", call->view.name);
    ddpctl_print_bytes(stdout, state, strlen(state));
    putchar('\n');
    return DDP_OK;
}

static ddp_status make_change(struct ddpctl_job_call *call, const struct change *change,
                              struct ddp_error *err)
{
    bool waits = !call->options->no_wait && change->done != NULL;
    ddp_status status = request_change(call, change, err);
    if (status == DDP_OK)
        status = waits ? await_change(call, change, err) : catch_up(call, err);
    if (status == DDP_OK && waits && change->failed != NULL &&
        change->failed(&call->view, change->word, err))
        status = DDP_E_CONFLICT;
    return status == DDP_OK ? print_change(call, change, waits || change->done == NULL, err)
                            : status;
}

/* ---- verbs ---- */

static bool has_stopped(const struct job_view *view, const char *word)
{
    (void)word;
    return job_ended(view);
}

ddp_status ddpctl_job_stop(struct ddpctl_job_call *call, struct ddp_error *err)
{
    const struct change change = {.what = "stop", .value = "", .done = has_stopped};
    ddp_status status = ddpctl_job_watch(call, err);
    return status == DDP_OK ? make_change(call, &change, err) : status;
}

static bool node_drained(const struct job_view *view, const char *name)
{
    for (size_t i = 0; i < view->nnodes; i++)
        if (job_node_is(view->nodes[i], name) && job_node_busy(view->nodes[i]))
            return false;
    return true;
}

static bool has_node(const struct job_view *view, const char *name)
{
    for (size_t i = 0; i < view->nnodes; i++)
        if (job_node_is(view->nodes[i], name))
            return true;
    return false;
}

static ddp_status check_drain(const struct ddpctl_job_call *call, const char *name,
                              struct ddp_error *err)
{
    const struct job_view *view = &call->view;
    uint32_t min, max, left = job_view_count_without(view, name);
    if (!has_node(view, name))
        return ddpi_error_set(err, DDP_E_NOT_FOUND,
                              "job %s has no node '%s'; 'ddpctl status %s' lists its nodes",
                              view->name, name, view->name);
    job_view_size(view, &min, &max);
    if (left >= min || call->options->force)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_CONFLICT,
                          "without node '%s' job %s would have %u of at least %u nodes, and end; "
                          "lower the minimum with 'ddpctl scale', or drain with --force",
                          name, view->name, left, min);
}

ddp_status ddpctl_job_drain(struct ddpctl_job_call *call, struct ddp_error *err)
{
    const char *name = call->word;
    char what[sizeof "drain/" + DDP_ROUND_NAME_SIZE];
    bool undo = call->options->undo;
    ddp_status status = ddpctl_job_watch(call, err);
    if (status == DDP_OK && undo && !job_view_drains(&call->view, name))
        status = ddpi_error_set(err, DDP_E_NOT_FOUND, "job %s has no request to drain node '%s'",
                                call->view.name, name);
    else if (status == DDP_OK && !undo)
        status = check_drain(call, name, err);
    if (status != DDP_OK)
        return status;
    snprintf(what, sizeof what, "drain/%s", name);
    const struct change change = {
        .what = what,
        .value = undo ? NULL : "",
        .done = undo ? NULL : node_drained,
        .word = name,
        .ends = true,
        .node = {"will be drained", undo ? "may join again" : "is drained"}};
    return make_change(call, &change, err);
}

/* A sick node has checked itself again, as it was asked to. */
static bool node_decided(const struct job_view *view, const char *name)
{
    for (size_t i = 0; i < view->nnodes; i++) {
        const struct job_node *node = view->nodes[i];
        bool asked = node->seat.check > node->says.checks || node->says.checking;
        if (job_node_is(node, name) && job_node_left_out(node) != NULL && asked)
            return false;
    }
    return true;
}

static bool still_left_out(const struct job_view *view, const char *name, struct ddp_error *err)
{
    char why[STATE_SIZE];
    bool left_out = job_view_left_out(view, name, why, sizeof why);
    if (left_out)
        ddpi_error_set(err, DDP_E_CONFLICT, "node '%s' is still left out: %s", name, why);
    return left_out;
}

ddp_status ddpctl_job_admit(struct ddpctl_job_call *call, struct ddp_error *err)
{
    const char *name = call->word;
    char what[sizeof "admit/" + DDP_ROUND_NAME_SIZE];
    ddp_status status = ddpctl_job_watch(call, err);
    if (status == DDP_OK && !job_view_left_out(&call->view, name, NULL, 0))
        status = ddpi_error_set(err, DDP_E_NOT_FOUND,
                                "job %s does not leave out a node '%s'; 'ddpctl status %s' lists "
                                "its nodes",
                                call->view.name, name, call->view.name);
    if (status != DDP_OK)
        return status;
    snprintf(what, sizeof what, "admit/%s", name);
    const struct change change = {.what = what,
                                  .value = "",
                                  .done = node_decided,
                                  .failed = still_left_out,
                                  .word = name,
                                  .node = {"may come back", "may come back"}};
    return make_change(call, &change, err);
}

static bool has_size(const struct job_view *view, const char *size)
{
    uint32_t min, max;
    return job_parse_size(size, &min, &max) && job_view_up(view) && view->summary.seated >= min &&
           view->summary.seated <= max;
}

/* The agent of such a job decides alone, and knows no other number. */
static ddp_status check_several(const struct ddpctl_job_call *call, struct ddp_error *err)
{
    const struct ddp_round_terms *terms = &call->view.summary.terms;
    if (terms->max_nodes != 1 || terms->lease_ms != 0)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                          "job %s is one of a single node, which cannot be scaled; start it with "
                          "--nnodes=MIN:MAX",
                          call->view.name);
}

ddp_status ddpctl_job_scale(struct ddpctl_job_call *call, struct ddp_error *err)
{
    const char *size = call->word;
    uint32_t min, max;
    if (!job_parse_size(size, &min, &max))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not MIN:MAX, two whole numbers with 1 <= MIN <= MAX", size);
    const struct change change = {.what = "size", .value = size, .done = has_size, .word = size};
    ddp_status status = ddpctl_job_watch(call, err);
    if (status == DDP_OK)
        status = check_several(call, err);
    return status == DDP_OK ? make_change(call, &change, err) : status;
}
