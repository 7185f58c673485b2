/*
 * flight_compare.c - see flight_compare.h. Owns the report that it makes, not the logs.
 */
#include "flight_compare.h"

#include "error.h"
#include "mem.h"

#include <stdlib.h>
#include <string.h>

enum { KINDS_MAX = 8 /* different calls with one number that are counted */ };

static const char *const verdict_names[] = {
#define VERDICT_NAME(symbol, name) [symbol] = (name),
    DDPI_FLIGHT_VERDICT_MAP(VERDICT_NAME)
#undef VERDICT_NAME
};

const char *ddpi_flight_verdict_name(enum ddpi_flight_verdict verdict)
{
    return verdict_names[verdict];
}

/* ---- teams ---- */

/* An id tells communicators of one name apart; where it is not known, they are counted. */
static bool is_of_team(const struct ddpi_flight_team *team, const struct ddpi_flight_group *group)
{
    return team->size == group->size && team->id == group->id &&
           (team->id != 0 || team->instance == group->instance) &&
           strcmp(team->name, group->name) == 0;
}

static struct ddpi_flight_team *find_team(struct ddpi_flight_report *report,
                                          const struct ddpi_flight_group *group)
{
    for (size_t i = 0; i < report->count; i++)
        if (is_of_team(&report->teams[i], group))
            return &report->teams[i];
    return NULL;
}

static ddp_status add_team(struct ddpi_flight_report *report, const struct ddpi_flight_group *group,
                           size_t members, struct ddp_error *err)
{
    struct ddpi_flight_team *teams =
        ddpi_realloc(report->teams, report->count + 1, sizeof *report->teams);
    if (teams == NULL)
        return ddpi_error_nomem(err, (report->count + 1) * sizeof *teams);
    report->teams = teams;
    struct ddpi_flight_team *team = &teams[report->count++];
    *team = (struct ddpi_flight_team){
        .name = group->name, .id = group->id, .instance = group->instance, .size = group->size};
    team->members = ddpi_calloc(members, sizeof *team->members);
    return team->members != NULL ? DDP_OK : ddpi_error_nomem(err, members * sizeof *team->members);
}

static ddp_status add_teams(struct ddpi_flight_report *report,
                            const struct ddpi_flight_log *const *logs, size_t count,
                            struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < logs[i]->ngroups && status == DDP_OK; k++) {
            const struct ddpi_flight_group *group = &logs[i]->groups[k];
            struct ddpi_flight_team *team = find_team(report, group);
            if (team == NULL)
                status = add_team(report, group, count, err);
        }
    return status;
}

/* The group of @log that is of @team; NULL: it has made none. */
static const struct ddpi_flight_group *own_group(const struct ddpi_flight_team *team,
                                                 const struct ddpi_flight_log *log)
{
    for (size_t i = 0; i < log->ngroups; i++)
        if (is_of_team(team, &log->groups[i]))
            return &log->groups[i];
    return NULL;
}

/* Whether a rank of the team is the rank of the same number in the job, for all that are known. */
static bool team_is_world(const struct ddpi_flight_team *team,
                          const struct ddpi_flight_log *const *logs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct ddpi_flight_group *group = own_group(team, logs[i]);
        if (team->size != logs[i]->place.world_size ||
            (group != NULL && group->rank != logs[i]->place.rank))
            return false;
    }
    return true;
}

static int compare_members(const void *left, const void *right)
{
    const struct ddpi_flight_member *a = left, *b = right;
    uint32_t ra = a->log->place.rank, rb = b->log->place.rank;
    return ra < rb ? -1 : ra > rb;
}

/* A rank that has not made the communicator of all ranks is behind, too. */
static void take_members(struct ddpi_flight_team *team, const struct ddpi_flight_log *const *logs,
                         size_t count)
{
    team->is_world = team_is_world(team, logs, count);
    for (size_t i = 0; i < count; i++) {
        const struct ddpi_flight_group *group = own_group(team, logs[i]);
        if (group != NULL || team->is_world)
            team->members[team->count++] =
                (struct ddpi_flight_member){.log = logs[i], .group = group};
    }
    qsort(team->members, team->count, sizeof *team->members, compare_members);
    team->missing = team->size > team->count ? team->size - (uint32_t)team->count : 0;
}

/* ---- operations ---- */

/* A call that was refused has done nothing, and its number is the next call's. */
static bool is_of_member(const struct ddpi_flight_member *member, const struct ddpi_flight_op *op)
{
    bool refused = op->state == DDPI_FLIGHT_FAILED && op->status == DDP_E_INVALID;
    return !refused && member->group != NULL &&
           ddpi_flight_group_of(member->log, op) == member->group;
}

static void take_ops(struct ddpi_flight_member *member)
{
    const struct ddpi_flight_log *log = member->log;
    for (size_t i = 0; i < log->count; i++) {
        const struct ddpi_flight_op *op = &log->ops[i];
        if (!is_of_member(member, op))
            continue;
        if (op->is_message) {
            if (member->message == NULL && ddpi_flight_is_pending(op))
                member->message = op;
            continue;
        }
        if (member->last == NULL || op->seq >= member->last->seq)
            member->last = op;
        if (op->state != DDPI_FLIGHT_COMPLETED) {
            if (member->current == NULL)
                member->current = op;
        } else if (member->done == NULL || op->seq >= member->done->seq) {
            member->done = op;
        }
    }
}

/* A collective, for all members in one list. */
struct call {
    const struct ddpi_flight_op *op;
    size_t member;
};

static int compare_calls(const void *left, const void *right)
{
    const struct call *a = left, *b = right;
    if (a->op->seq != b->op->seq)
        return a->op->seq < b->op->seq ? -1 : 1;
    return a->member < b->member ? -1 : a->member > b->member;
}

bool ddpi_flight_same_call(const struct ddpi_flight_log *la, const struct ddpi_flight_op *a,
                           const struct ddpi_flight_log *lb, const struct ddpi_flight_op *b)
{
    if (strcmp(ddpi_flight_operation(la, a), ddpi_flight_operation(lb, b)) != 0 ||
        a->has_elements != b->has_elements || a->reduces != b->reduces ||
        a->has_root != b->has_root)
        return false;
    if (a->has_elements &&
        (a->count != b->count || strcmp(ddpi_flight_dtype(la, a), ddpi_flight_dtype(lb, b)) != 0))
        return false;
    if (a->is_uneven != b->is_uneven || a->in_pairs != b->in_pairs ||
        (!a->in_pairs && a->parts != b->parts))
        return false;
    if (a->reduces && strcmp(ddpi_flight_reduction(la, a), ddpi_flight_reduction(lb, b)) != 0)
        return false;
    return !a->has_root || a->peer == b->peer;
}

/* All collectives of @team, by number; the caller frees them. */
static ddp_status list_calls(const struct ddpi_flight_team *team, struct call **ret_calls,
                             size_t *ret_count, struct ddp_error *err)
{
    size_t room = 1, count = 0;
    for (size_t i = 0; i < team->count; i++)
        room += team->members[i].log->count;
    struct call *calls = ddpi_calloc(room, sizeof *calls);
    if (calls == NULL)
        return ddpi_error_nomem(err, room * sizeof *calls);
    for (size_t i = 0; i < team->count; i++) {
        const struct ddpi_flight_member *member = &team->members[i];
        for (size_t k = 0; k < member->log->count; k++)
            if (!member->log->ops[k].is_message && is_of_member(member, &member->log->ops[k]))
                calls[count++] = (struct call){&member->log->ops[k], i};
    }
    qsort(calls, count, sizeof *calls, compare_calls);
    *ret_calls = calls;
    *ret_count = count;
    return DDP_OK;
}

/* Which of the @count calls with one number most members made. */
static const struct call *most_common(const struct ddpi_flight_team *team, const struct call *calls,
                                      size_t count)
{
    const struct call *kinds[KINDS_MAX];
    size_t votes[KINDS_MAX] = {0}, nkinds = 0, best = 0;
    for (size_t i = 0; i < count; i++) {
        size_t kind = 0;
        while (kind < nkinds &&
               !ddpi_flight_same_call(team->members[kinds[kind]->member].log, kinds[kind]->op,
                                      team->members[calls[i].member].log, calls[i].op))
            kind++;
        if (kind == KINDS_MAX)
            continue;
        if (kind == nkinds)
            kinds[nkinds++] = &calls[i];
        votes[kind]++;
    }
    for (size_t kind = 1; kind < nkinds; kind++)
        if (votes[kind] > votes[best])
            best = kind;
    return kinds[best];
}

/* Mark those of the @count calls with one number that differ from what most members called; false:
 * none does. */
static bool mark_different(struct ddpi_flight_team *team, const struct call *calls, size_t count)
{
    const struct call *common = most_common(team, calls, count);
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        struct ddpi_flight_member *member = &team->members[calls[i].member];
        member->odd = !ddpi_flight_same_call(team->members[common->member].log, common->op,
                                             member->log, calls[i].op);
        any = any || member->odd;
    }
    return any;
}

/* Whether the @count calls with one number, which are alike, have parts of which some rank sends
 * others than are expected of it. Only all ranks together show that. */
static bool counts_differ(const struct ddpi_flight_team *team, const struct call *calls,
                          size_t count)
{
    uint16_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum = (uint16_t)(sum + calls[i].op->parts);
    return count == team->size && calls[0].op->in_pairs && sum != 0;
}

/* How many of the @count calls have the number of the first. */
static size_t count_same_number(const struct call *calls, size_t count)
{
    size_t same = 1;
    while (same < count && calls[same].op->seq == calls[0].op->seq)
        same++;
    return same;
}

static bool find_difference(struct ddpi_flight_team *team, const struct call *calls, size_t count)
{
    for (size_t from = 0, same; from < count; from += same) {
        same = count_same_number(calls + from, count - from);
        team->seq = calls[from].op->seq;
        team->verdict = DDPI_FLIGHT_DIFFER;
        if (mark_different(team, calls + from, same))
            return true;
        team->verdict = DDPI_FLIGHT_COUNTS;
        if (counts_differ(team, calls + from, same))
            return true;
    }
    return false;
}

/* The latest collective that a member has called is where the others should be. */
static void judge_progress(struct ddpi_flight_team *team)
{
    for (size_t i = 0; i < team->count; i++) {
        const struct ddpi_flight_op *last = team->members[i].last;
        if (last != NULL && (!team->any || last->seq > team->seq))
            team->seq = last->seq;
        team->any = team->any || last != NULL;
    }
    bool behind = false, inside = false;
    for (size_t i = 0; i < team->count; i++) {
        const struct ddpi_flight_op *last = team->members[i].last;
        behind = behind || (team->any && (last == NULL || last->seq < team->seq));
        inside = inside || (last != NULL && last->state != DDPI_FLIGHT_COMPLETED);
    }
    team->verdict = behind   ? DDPI_FLIGHT_BEHIND
                    : inside ? DDPI_FLIGHT_UNFINISHED
                             : DDPI_FLIGHT_TOGETHER;
    for (size_t i = 0; i < team->count; i++) {
        struct ddpi_flight_member *member = &team->members[i];
        bool is_behind = member->last == NULL || member->last->seq < team->seq;
        member->odd = behind ? is_behind : inside && member->last->state != DDPI_FLIGHT_COMPLETED;
    }
}

static ddp_status judge_team(struct ddpi_flight_team *team, struct ddp_error *err)
{
    struct call *calls = NULL;
    size_t count = 0;
    for (size_t i = 0; i < team->count; i++)
        take_ops(&team->members[i]);
    ddp_status status = list_calls(team, &calls, &count, err);
    if (status != DDP_OK)
        return status;
    team->any = find_difference(team, calls, count);
    if (!team->any)
        judge_progress(team);
    for (size_t i = 0; i < count && team->any; i++)
        if (calls[i].op->seq == team->seq)
            team->members[calls[i].member].at_seq = calls[i].op;
    ddpi_free(calls);
    return DDP_OK;
}

ddp_status ddpi_flight_compare(const struct ddpi_flight_log *const *logs, size_t count,
                               struct ddpi_flight_report **ret_report, struct ddp_error *err)
{
    struct ddpi_flight_report *report = ddpi_calloc(1, sizeof *report);
    if (report == NULL)
        return ddpi_error_nomem(err, sizeof *report);
    ddp_status status = add_teams(report, logs, count, err);
    for (size_t i = 0; i < report->count && status == DDP_OK; i++) {
        take_members(&report->teams[i], logs, count);
        status = judge_team(&report->teams[i], err);
    }
    if (status == DDP_OK)
        *ret_report = report;
    else
        ddpi_flight_report_destroy(report);
    return status;
}

void ddpi_flight_report_destroy(struct ddpi_flight_report *report)
{
    if (report == NULL)
        return;
    for (size_t i = 0; i < report->count; i++)
        ddpi_free(report->teams[i].members);
    ddpi_free(report->teams);
    ddpi_free(report);
}
