/*
 * job_json.c - see job_json.h. All text from the store goes through json_bytes().
 */
#include "job_json.h"

#include "mem.h"

#include <string.h>

static json_t *json_text(const char *text)
{
    return json_bytes(text, strlen(text));
}

/* Null unless @there. */
static json_t *json_maybe(bool there, uint64_t number)
{
    return there ? json_integer((json_int_t)number) : json_null();
}

/* Append @element. On failure, or if either is NULL: release both, set *@array to NULL. */
static bool append_json(json_t **array, json_t *element)
{
    if (*array != NULL && element != NULL && json_array_append_new(*array, element) == 0)
        return true;
    if (*array == NULL)
        json_decref(element);
    json_decref(*array);
    *array = NULL;
    return false;
}

/* ---- nodes ---- */

static json_t *worker_json(const struct worker_status *worker)
{
    bool exited = worker->state == WORKER_STATUS_EXITED,
         killed = worker->state == WORKER_STATUS_KILLED;
    return json_pack("{s:I,s:I,s:i,s:s,s:o,s:o}", "local_rank", (json_int_t)worker->local_rank,
                     "rank", (json_int_t)worker->rank, "pid", (int)worker->pid, "state",
                     worker_status_state_name(worker->state), "exit_code",
                     json_maybe(exited, worker->exit_code), "signal",
                     killed ? json_text(worker->signal) : json_null());
}

static json_t *workers_json(const struct job_node *node)
{
    json_t *array = json_array();
    struct worker_status worker;
    const char *at = node->workers;
    for (size_t left = node->workers_len; worker_status_next(&at, &left, &worker);)
        if (!append_json(&array, worker_json(&worker)))
            break;
    return array;
}

static json_t *failure_json(const struct ddp_round_failure *failure)
{
    if (failure->generation == 0)
        return json_null();
    return json_pack("{s:I,s:I,s:o,s:I,s:b,s:o}", "generation", (json_int_t)failure->generation,
                     "rank", (json_int_t)failure->rank, "exit_code",
                     json_maybe(failure->exit_code >= 0, (uint64_t)failure->exit_code), "ran_ms",
                     (json_int_t)failure->ran_ms, "final", failure->final, "text",
                     json_text(failure->text));
}

/* What the node reports about itself. */
static json_t *member_json(const struct job_node *node)
{
    static const char *const phases[] = {[DDP_ROUND_IDLE] = "idle",
                                         [DDP_ROUND_STARTING] = "starting",
                                         [DDP_ROUND_RUNNING] = "running",
                                         [DDP_ROUND_DONE] = "done"};
    const struct ddp_round_member *says = &node->says;
    if (node->member.bad)
        return json_pack("{s:n,s:n,s:n,s:n,s:n,s:b,s:b,s:n}", "name", "address", "nproc", "phase",
                         "phase_generation", "leaving", false, "checking", false, "failure");
    return json_pack("{s:o,s:o,s:I,s:s,s:I,s:b,s:b,s:o}", "name", json_text(says->name), "address",
                     json_text(says->address), "nproc", (json_int_t)says->nproc, "phase",
                     phases[says->phase], "phase_generation", (json_int_t)says->generation,
                     "leaving", says->leaving, "checking", says->checking, "failure",
                     failure_json(&says->failure));
}

/* What the store tells the node to do. */
static json_t *seat_json(const struct job_view *view, const struct job_node *node)
{
    static const char *const orders[] = {[DDP_ROUND_WAIT] = "wait",
                                         [DDP_ROUND_RUN] = "run",
                                         [DDP_ROUND_STOP] = "stop",
                                         [DDP_ROUND_END] = "end"};
    const struct ddp_round_seat *seat = &node->seat;
    bool seated = job_node_seated(view, node), told = node->order.there && !node->order.bad;
    const char *left_out = job_node_left_out(node);
    return json_pack("{s:s?,s:o,s:o,s:o,s:b,s:b,s:o}", "order", told ? orders[seat->order] : NULL,
                     "order_text", told ? json_text(seat->text) : json_null(), "node_rank",
                     json_maybe(seated, seat->node_rank), "first_rank",
                     json_maybe(seated, seat->first_rank), "spare", job_node_spare(node), "drained",
                     job_view_drains(view, node->says.name), "left_out",
                     left_out != NULL ? json_text(left_out) : json_null());
}

static json_t *node_json(const struct job_view *view, const struct job_node *node)
{
    json_t *object =
        json_pack("{s:I,s:o}", "id", (json_int_t)node->id, "workers", workers_json(node));
    json_t *member = member_json(node), *seat = seat_json(view, node);
    if (object == NULL || member == NULL || seat == NULL ||
        json_object_update(object, member) != 0 || json_object_update(object, seat) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(member);
    json_decref(seat);
    return object;
}

static json_t *nodes_json(const struct job_view *view)
{
    size_t count;
    struct job_node **nodes = job_view_order(view, &count);
    json_t *array = nodes != NULL ? json_array() : NULL;
    for (size_t i = 0; i < count; i++)
        if (!append_json(&array, node_json(view, nodes[i])))
            break;
    ddpi_free(nodes);
    return array;
}

/* ---- the job ---- */

static json_t *recovery_json(const struct ddpi_rounds_summary *job)
{
    return json_pack("{s:o,s:o,s:o}", "idle_ms", json_maybe(job->idle_ms != 0, job->idle_ms),
                     "seated_ms", json_maybe(job->seated_ms != 0, job->seated_ms), "running_ms",
                     json_maybe(job->running_ms != 0, job->running_ms));
}

static json_t *wanted_json(const struct job_view *view)
{
    static const char drain[] = "drain/";
    const char *size = NULL;
    json_t *names = json_array();
    for (size_t i = 0; i < view->nwants; i++) {
        const struct job_want *want = &view->wants[i];
        if (want->record.there && strncmp(want->what, drain, sizeof drain - 1) == 0 &&
            !append_json(&names, json_text(want->what + sizeof drain - 1)))
            break;
    }
    (void)job_view_wants(view, "size", &size);
    return json_pack("{s:b,s:o,s:o}", "stop", job_view_wants(view, "stop", NULL), "size",
                     size != NULL ? json_text(size) : json_null(), "drain", names);
}

/* What is held against nodes, by name. */
static json_t *blames_json(const struct job_view *view)
{
    json_t *array = json_array();
    for (size_t i = 0; i < view->nblames; i++) {
        const struct job_blame *blame = &view->blames[i];
        if (blame->record.there && !blame->record.bad &&
            !append_json(&array,
                         json_pack("{s:o,s:I,s:b,s:o}", "node", json_text(blame->name), "failures",
                                   (json_int_t)blame->blame.failures, "left_out",
                                   blame->blame.left_out, "last", json_text(blame->blame.text))))
            break;
    }
    return array;
}

/* If the record cannot be read, only the state says so. */
static json_t *summary_json(const struct job_view *view)
{
    static const char *const states[] = {[ROUNDS_FORMING] = "forming",
                                         [ROUNDS_RUNNING] = "running",
                                         [ROUNDS_STOPPING] = "stopping",
                                         [ROUNDS_PAUSING] = "pausing",
                                         [ROUNDS_CLOSED] = "closed"};
    const struct ddpi_rounds_summary *job = &view->summary;
    uint32_t min, max;
    if (view->state.bad || (!view->state.there && !job_view_is(view, ROUNDS_CLOSED)))
        return json_pack("{s:s}", "state", view->state.bad ? "unreadable" : "gone");
    job_view_size(view, &min, &max);
    return json_pack(
        "{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:I,s:I}", "state", states[job->state],
        "generation", (json_int_t)job->generation, "members", (json_int_t)job->members, "seated",
        (json_int_t)job->seated, "min_nodes", (json_int_t)min, "max_nodes", (json_int_t)max,
        "world_size", (json_int_t)job->world_size, "restarts", (json_int_t)job->restarts,
        "max_restarts", (json_int_t)job->terms.max_restarts, "reason", json_text(job->reason),
        "exit_code", json_maybe(job->closing && job->exit_code >= 0, (uint64_t)job->exit_code),
        "recovery", recovery_json(job), "left_out", (json_int_t)job->left_out, "quarantine",
        (json_int_t)job->terms.quarantine);
}

json_t *job_json(const struct job_view *view)
{
    json_t *object = json_pack("{s:s,s:o,s:o,s:o}", "job", view->name, "wanted", wanted_json(view),
                               "nodes", nodes_json(view), "blamed", blames_json(view));
    json_t *summary = summary_json(view);
    if (object == NULL || summary == NULL || json_object_update(object, summary) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(summary);
    return object;
}
