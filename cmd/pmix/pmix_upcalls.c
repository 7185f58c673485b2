/*
 * pmix_upcalls.c - see pmix_upcalls.h. libpmix passes no context to its host, so what the functions
 * need is in one static object. Owns the operations of groups until they are answered.
 */
#include "pmix_upcalls.h"

#include "bytes.h"
#include "error.h"
#include "mem.h"
#include "pmix_names.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 64, GROUP_VALUES = 2 };

/* How often the ranks of a group have met, as each meeting has a name of its own. */
struct meetings {
    uint64_t group;
    uint32_t count;
};

/* An operation that all ranks of a group have called on this node. */
struct group_call {
    struct pmix_task task;
    uint64_t group; /* hash of the kind of operation and its ranks */
    uint32_t *nodes;
    uint32_t count;
    void *bytes; /* what ranks of this node give; from malloc(), by libpmix */
    size_t len;
    pmix_proc_t *members; /* of a new group; NULL: it is none */
    size_t member_count;
    pmix_modex_cbfunc_t fenced; /* one of these is set, with @cbdata for it */
    pmix_op_cbfunc_t connected;
    pmix_info_cbfunc_t grouped;
    void *cbdata;
};

static struct {
    struct pmix_upcalls hooks;
    _Atomic unsigned *states;  /* enum pmix_rank_state, by local rank */
    _Atomic bool has_told;     /* that one is missing */
    struct meetings *meetings; /* of the loop's thread */
    size_t meeting_count;
    _Atomic uint32_t ids; /* of groups of which this node is the first */
} host;

/* ---- one rank ---- */

uint32_t pmix_upcalls_count(enum pmix_rank_state state, uint32_t *ret_first_rank)
{
    const struct pmix_node *own = &host.hooks.place->own;
    uint32_t count = 0;
    for (uint32_t i = own->nproc; i-- > 0;)
        if (atomic_load(&host.states[i]) == state) {
            *ret_first_rank = own->first_rank + i;
            count++;
        }
    return count;
}

/* A rank that has left without MPI_Finalize() cannot reach the fence in which others may wait:
 * here, or on another node. */
static void check_the_missing(void)
{
    uint32_t missing, other;
    bool counts =
        host.hooks.place->node_count > 1 || pmix_upcalls_count(PMIX_RANK_CONNECTED, &other) > 0;
    if (counts && pmix_upcalls_count(PMIX_RANK_GONE, &missing) > 0 &&
        !atomic_exchange(&host.has_told, true))
        pmix_waiting_missing(host.hooks.waiting, missing);
}

static void set_state(const pmix_proc_t *proc, enum pmix_rank_state state)
{
    uint32_t local = proc->rank - host.hooks.place->own.first_rank;
    if (local < host.hooks.place->own.nproc)
        atomic_store(&host.states[local], state);
    check_the_missing();
}

void pmix_upcalls_rank_gone(uint32_t local_rank)
{
    if (atomic_load(&host.states[local_rank]) != PMIX_RANK_FINALIZED)
        atomic_store(&host.states[local_rank], PMIX_RANK_GONE);
    check_the_missing();
}

static pmix_status_t on_connected(const pmix_proc_t *proc, void *server_object, pmix_info_t info[],
                                  size_t ninfo, pmix_op_cbfunc_t done, void *cbdata)
{
    (void)server_object;
    (void)info;
    (void)ninfo;
    (void)done;
    (void)cbdata;
    set_state(proc, PMIX_RANK_CONNECTED);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *server_object,
                                  pmix_op_cbfunc_t done, void *cbdata)
{
    (void)server_object;
    (void)done;
    (void)cbdata;
    set_state(proc, PMIX_RANK_FINALIZED);
    return PMIX_OPERATION_SUCCEEDED;
}

/* The agent kills the rank, which waits for that. */
static pmix_status_t on_abort(const pmix_proc_t *proc, void *server_object, int status,
                              const char text[], pmix_proc_t procs[], size_t nprocs,
                              pmix_op_cbfunc_t done, void *cbdata)
{
    (void)server_object;
    (void)text; /* the program has printed it */
    (void)procs;
    (void)nprocs;
    (void)done;
    (void)cbdata;
    host.hooks.tell("abort %" PRIu32 " %d", proc->rank - host.hooks.place->own.first_rank, status);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_spawn(const pmix_proc_t *proc, const pmix_info_t job[], size_t njob,
                              const pmix_app_t apps[], size_t napps, pmix_spawn_cbfunc_t done,
                              void *cbdata)
{
    (void)job;
    (void)njob;
    (void)apps;
    (void)napps;
    (void)done;
    (void)cbdata;
    host.hooks.tell("say rank %u has called MPI_Comm_spawn, which ddprun does not serve: the ranks "
                    "of a job are fixed at its start; run the program under Open MPI's mpirun",
                    proc->rank);
    return PMIX_ERR_NOT_SUPPORTED;
}

/* Events of ranks reach the other ranks of this node through libpmix alone. */
static pmix_status_t on_events(pmix_status_t *codes, size_t ncodes, const pmix_info_t info[],
                               size_t ninfo, pmix_op_cbfunc_t done, void *cbdata)
{
    (void)codes;
    (void)ncodes;
    (void)info;
    (void)ninfo;
    (void)done;
    (void)cbdata;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_events_over(pmix_status_t *codes, size_t ncodes, pmix_op_cbfunc_t done,
                                    void *cbdata)
{
    return on_events(codes, ncodes, NULL, 0, done, cbdata);
}

/* Without this function libpmix would refuse what it does itself: to remove files of a rank at its
 * end, such as shared memory. */
static pmix_status_t on_job_control(const pmix_proc_t *proc, const pmix_proc_t targets[],
                                    size_t ntargets, const pmix_info_t directives[],
                                    size_t ndirectives, pmix_info_cbfunc_t done, void *cbdata)
{
    (void)proc;
    (void)targets;
    (void)ntargets;
    (void)directives;
    (void)ndirectives;
    (void)done;
    (void)cbdata;
    return PMIX_ERR_NOT_SUPPORTED;
}

/* ---- groups of ranks ---- */

static bool has_rank_of(const struct pmix_node *node, const pmix_proc_t *procs, size_t nprocs)
{
    for (size_t i = 0; i < nprocs; i++)
        if (strcmp(procs[i].nspace, host.hooks.place->nspace) == 0 &&
            (procs[i].rank == PMIX_RANK_WILDCARD || procs[i].rank - node->first_rank < node->nproc))
            return true;
    return false;
}

static void free_call(struct group_call *call)
{
    ddpi_free(call->nodes);
    ddpi_free(call->members);
    free(call->bytes);
    ddpi_free(call);
}

/* NULL: no memory, or a group of ranks of other jobs. @kind tells apart operations of the same
 * ranks. */
static struct group_call *make_call(const char *kind, const pmix_proc_t *procs, size_t nprocs)
{
    const struct pmix_place *place = host.hooks.place;
    struct group_call *call = ddpi_calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->nodes = ddpi_calloc(place->node_count, sizeof *call->nodes);
    if (call->nodes == NULL) {
        ddpi_free(call);
        return NULL;
    }
    call->group = ddpi_digest64(DDPI_DIGEST64_NONE, kind, strlen(kind));
    for (size_t i = 0; i < nprocs; i++)
        call->group = ddpi_digest64(call->group, &procs[i].rank, sizeof procs[i].rank);
    for (uint32_t i = 0; i < place->node_count; i++)
        if (has_rank_of(&host.hooks.nodes[i], procs, nprocs))
            call->nodes[call->count++] = i;
    if (call->count == 0) {
        free_call(call);
        return NULL;
    }
    return call;
}

static void begin_call(struct group_call *call);

static void run_call(struct pmix_task *task)
{
    begin_call(ddpi_container_of(task, struct group_call, task));
}

/* A group within this node is answered at once: libpmix tells groups apart by their names alone,
 * and ranks give groups of their own the same name. */
static pmix_status_t queue_call(struct group_call *call)
{
    if (call->count == 1) {
        begin_call(call);
        return PMIX_SUCCESS;
    }
    call->task.run = run_call;
    pmix_task_post(host.hooks.tasks, &call->task);
    return PMIX_SUCCESS;
}

static pmix_status_t on_fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                              size_t ninfo, char *data, size_t ndata, pmix_modex_cbfunc_t done,
                              void *cbdata)
{
    struct group_call *call = make_call("fence", procs, nprocs);
    (void)info;
    (void)ninfo;
    if (call == NULL)
        return PMIX_ERR_BAD_PARAM;
    call->bytes = data;
    call->len = ndata;
    call->fenced = done;
    call->cbdata = cbdata;
    return queue_call(call);
}

static pmix_status_t on_connect(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                                size_t ninfo, pmix_op_cbfunc_t done, void *cbdata)
{
    struct group_call *call = make_call("connect", procs, nprocs);
    (void)info;
    (void)ninfo;
    if (call == NULL)
        return PMIX_ERR_BAD_PARAM;
    call->connected = done;
    call->cbdata = cbdata;
    return queue_call(call);
}

static pmix_status_t on_disconnect(const pmix_proc_t procs[], size_t nprocs,
                                   const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t done,
                                   void *cbdata)
{
    return on_connect(procs, nprocs, info, ninfo, done, cbdata);
}

static pmix_status_t on_group(pmix_group_operation_t operation, char name[],
                              const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                              size_t ninfo, pmix_info_cbfunc_t done, void *cbdata)
{
    struct group_call *call = make_call(name, procs, nprocs);
    if (call == NULL)
        return PMIX_ERR_BAD_PARAM;
    (void)info;
    (void)ninfo;
    if (operation == PMIX_GROUP_DESTRUCT && call->count == 1) {
        free_call(call); /* libpmix 5 would go on after any other answer, and call again */
        return PMIX_OPERATION_SUCCEEDED;
    }
    if (operation == PMIX_GROUP_CONSTRUCT) {
        call->members = ddpi_calloc(nprocs, sizeof *call->members);
        if (call->members == NULL) {
            free_call(call);
            return PMIX_ERR_NOMEM;
        }
        memcpy(call->members, procs, nprocs * sizeof *procs);
        call->member_count = nprocs;
    }
    call->grouped = done;
    call->cbdata = cbdata;
    return queue_call(call);
}

/* ---- the answers ---- */

static uint32_t count_meeting(uint64_t group)
{
    for (size_t i = 0; i < host.meeting_count; i++)
        if (host.meetings[i].group == group)
            return ++host.meetings[i].count;
    struct meetings *more =
        ddpi_realloc(host.meetings, host.meeting_count + 1, sizeof *host.meetings);
    if (more == NULL)
        return 0;
    host.meetings = more;
    host.meetings[host.meeting_count++] = (struct meetings){group, 1};
    return 1;
}

static void free_fenced(void *cbdata)
{
    ddpi_free(cbdata);
}

/* Everybody gets what all ranks have given. */
static void answer_fence(struct group_call *call, const struct pmix_text *texts)
{
    size_t len = 0, at = 0;
    for (uint32_t i = 0; i < call->count; i++)
        len += texts[i].len;
    char *all = ddpi_calloc(len + 1, 1);
    for (uint32_t i = 0; i < call->count && all != NULL; i++) {
        memcpy(all + at, texts[i].bytes, texts[i].len);
        at += texts[i].len;
    }
    call->fenced(all != NULL ? PMIX_SUCCESS : PMIX_ERR_NOMEM, all, at, call->cbdata, free_fenced,
                 all);
}

static void free_group_values(void *cbdata)
{
    pmix_info_t *values = cbdata;
    PMIX_INFO_FREE(values, GROUP_VALUES);
}

/* The number of a new group is that of its first node and a count of that node's. */
static void answer_group(struct group_call *call, const struct pmix_text *texts)
{
    pmix_data_array_t members = {
        .type = PMIX_PROC, .size = call->member_count, .array = call->members};
    pmix_info_t *values;
    size_t id;
    if (call->members == NULL || texts[0].len != sizeof id) {
        call->grouped(PMIX_SUCCESS, NULL, 0, call->cbdata, NULL, NULL);
        return;
    }
    memcpy(&id, texts[0].bytes, sizeof id);
    PMIX_INFO_CREATE(values, GROUP_VALUES);
    PMIX_INFO_LOAD(&values[0], PMIX_GROUP_CONTEXT_ID, &id, PMIX_SIZE);
    PMIX_INFO_LOAD(&values[1], PMIX_GROUP_MEMBERSHIP, &members, PMIX_DATA_ARRAY);
    call->grouped(PMIX_SUCCESS, values, GROUP_VALUES, call->cbdata, free_group_values, values);
}

static void refuse_call(struct group_call *call)
{
    if (call->fenced != NULL)
        call->fenced(PMIX_ERROR, NULL, 0, call->cbdata, NULL, NULL);
    else if (call->grouped != NULL)
        call->grouped(PMIX_ERROR, NULL, 0, call->cbdata, NULL, NULL);
    else
        call->connected(PMIX_ERROR, call->cbdata);
}

static void on_gathered(void *ctx, ddp_status status, const struct pmix_text *texts,
                        const char *why)
{
    struct group_call *call = ctx;
    if (status != DDP_OK) {
        host.hooks.tell("say the MPI ranks of this node cannot reach those of other nodes: %s",
                        why);
        refuse_call(call);
    } else if (call->fenced != NULL) {
        answer_fence(call, texts);
    } else if (call->grouped != NULL) {
        answer_group(call, texts);
    } else {
        call->connected(PMIX_SUCCESS, call->cbdata);
    }
    free_call(call);
}

static void begin_call(struct group_call *call)
{
    char name[NAME_SIZE] = "";
    size_t id = ((size_t)host.hooks.place->node_rank << 32) + ++host.ids;
    uint32_t meeting = call->count > 1 ? count_meeting(call->group) : 1;
    if (meeting == 0) { /* no memory */
        refuse_call(call);
        free_call(call);
        return;
    }
    snprintf(name, sizeof name, "%016" PRIx64 "-%" PRIu32, call->group, meeting);
    struct pmix_gather gather = {.name = name,
                                 .nodes = call->nodes,
                                 .count = call->count,
                                 .own = {call->bytes, call->len},
                                 .done = on_gathered,
                                 .ctx = call};
    if (call->members != NULL)
        gather.own = (struct pmix_text){&id, sizeof id};
    pmix_gather_begin(host.hooks.gathering, &gather);
}

pmix_server_module_t pmix_upcalls_module = {
    .client_connected2 = on_connected,
    .client_finalized = on_finalized,
    .abort = on_abort,
    .publish = pmix_names_publish,
    .lookup = pmix_names_lookup,
    .unpublish = pmix_names_unpublish,
    .fence_nb = on_fence,
    .spawn = on_spawn,
    .connect = on_connect,
    .disconnect = on_disconnect,
    .register_events = on_events,
    .deregister_events = on_events_over,
    .job_control = on_job_control,
    .group = on_group,
};

ddp_status pmix_upcalls_open(const struct pmix_upcalls *upcalls, struct ddp_error *err)
{
    host.hooks = *upcalls;
    host.states = ddpi_calloc(upcalls->place->own.nproc, sizeof *host.states);
    return host.states != NULL
               ? DDP_OK
               : ddpi_error_nomem(err, upcalls->place->own.nproc * sizeof *host.states);
}
