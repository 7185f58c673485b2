/*
 * facts.c - the round machine's memory: its members, and the facts noted about them until the next
 * step (step.c) draws conclusions; how the machine continues in a server that starts again. Owns
 * the members. Noting a fact costs the same however many members there are.
 */
#include "rounds_impl.h"

#include "mem.h"

#include <string.h>

DDPI_SM_DEFINE(ddpi_rounds, DDPI_ROUNDS_STATES);

/* A member that names a later generation than this is wrong. It leaves room for many more. */
#define GENERATION_MAX (DDPI_GENERATION_MAX / 2)

struct drained_name {
    struct ddpi_table_node node;
    char name[DDP_ROUND_NAME_SIZE];
};

struct ddpi_rounds *ddpi_rounds_create(const struct ddpi_rounds_hooks *hooks,
                                       uint64_t last_generation)
{
    /* The seed need not be secret: the server makes the ids, and authorized users the names. */
    static const uint8_t seed[DDPI_SEED_SIZE];
    struct ddpi_rounds *rounds = ddpi_calloc(1, sizeof(*rounds));
    if (rounds == NULL)
        return NULL;
    ddpi_sm_init(&rounds->sm, &ddpi_rounds_sm);
    ddpi_table_init(&rounds->by_id, seed);
    ddpi_table_init(&rounds->drained, seed);
    ddpi_table_init(&rounds->blamed, seed);
    ddpi_list_init(&rounds->members);
    ddpi_list_init(&rounds->news);
    rounds->hooks = *hooks;
    rounds->last = last_generation;
    rounds->settle_ms = UINT64_MAX;
    ddpi_rounds_summary(rounds, &rounds->summary);
    return rounds;
}

static void member_destroy(struct ddpi_rounds *rounds, struct round_member *member)
{
    for (unsigned trait = 0; trait < ROUND_TRAITS; trait++)
        rounds->count[trait] -= member->traits >> trait & 1;
    ddpi_list_remove(&member->of_job);
    ddpi_list_remove(&member->of_news);
    ddpi_table_remove(&rounds->by_id, &member->node);
    ddpi_free(member);
}

void ddpi_rounds_destroy(struct ddpi_rounds *rounds)
{
    if (rounds == NULL)
        return;
    while (!ddpi_list_empty(&rounds->members))
        member_destroy(rounds, ddpi_rounds_member_of(rounds->members.next));
    ddpi_table_finish_free(&rounds->drained, offsetof(struct drained_name, node));
    ddpi_rounds_forget_all_blame(rounds);
    ddpi_table_finish(&rounds->by_id);
    ddpi_free(rounds->sorted);
    ddpi_free(rounds);
}

/* ---- members ---- */

static struct round_member *member_find(const struct ddpi_rounds *rounds, uint64_t id)
{
    struct ddpi_table_node *node = ddpi_table_find(&rounds->by_id, &id, sizeof id);
    return node != NULL ? ddpi_container_of(node, struct round_member, node) : NULL;
}

static ddp_status reserve_sorted(struct ddpi_rounds *rounds)
{
    if (rounds->by_id.count < rounds->sorted_size)
        return DDP_OK;
    size_t size = rounds->sorted_size != 0 ? 2 * rounds->sorted_size : 8;
    struct round_member **sorted =
        ddpi_realloc(rounds->sorted, size, sizeof(struct round_member *));
    if (sorted == NULL)
        return DDP_E_NOMEM;
    rounds->sorted = sorted;
    rounds->sorted_size = size;
    return DDP_OK;
}

/* Those that wait for it would not learn why it does not come. */
static void tell_of_refused(struct ddpi_rounds *rounds, const struct round_member *member,
                            const struct round_difference *term)
{
    char text[DDP_ROUND_TEXT_SIZE];
    ddpi_rounds_say(text, "node %s came with %s=%s and was refused; this job has %s=%s",
                    member->says.name, term->option, term->own, term->option, term->job);
    ddpi_rounds_hear(rounds, text);
}

/* The first member sets the terms of the job, and all others must agree. If all have left before
 * anything began, the next member is the first again. */
static void member_agree(struct ddpi_rounds *rounds, struct round_member *member)
{
    bool alone = rounds->count[ROUND_LIVE] == 0 && !rounds->restored;
    if (member->late)
        return;
    if (rounds->terms.min_nodes == 0 || (alone && ddpi_rounds_state(rounds) == ROUNDS_FORMING))
        rounds->terms = member->says.terms;
    struct round_difference term;
    member->refused = ddpi_rounds_terms_differ(&rounds->terms, &member->says.terms, &term);
    if (member->refused)
        tell_of_refused(rounds, member, &term);
}

static ddp_status member_create(struct ddpi_rounds *rounds, uint64_t id,
                                const struct ddp_round_member *says, struct round_member **ret)
{
    if (reserve_sorted(rounds) != DDP_OK)
        return DDP_E_NOMEM;
    struct round_member *member = ddpi_calloc(1, sizeof(*member));
    if (member == NULL)
        return DDP_E_NOMEM;
    member->id = id;
    member->node.key = &member->id;
    member->node.key_len = sizeof member->id;
    if (!ddpi_table_insert(&rounds->by_id, &member->node)) {
        ddpi_free(member);
        return DDP_E_NOMEM;
    }
    member->arrival = rounds->arrivals++;
    member->says = *says;
    member->late = ddpi_rounds_state(rounds) == ROUNDS_CLOSED;
    member->drained = !member->late && ddpi_table_find(&rounds->drained, member->says.name,
                                                       strlen(member->says.name)) != NULL;
    member->quarantined = !member->late && ddpi_rounds_in_quarantine(rounds, member->says.name);
    member_agree(rounds, member);
    if (!member->refused)
        rounds->resume_ms = 0; /* with this one it may not fail again */
    ddpi_list_append(&rounds->members, &member->of_job);
    ddpi_list_init(&member->of_news);
    *ret = member;
    return DDP_OK;
}

/* @member leaves in order. If that leaves too few, the job does not wait for others. */
static void member_depart(struct ddpi_rounds *rounds, const struct round_member *member,
                          bool drained)
{
    bool left_out = member->traits >> ROUND_LEFT_OUT & 1;
    uint32_t min = ddpi_rounds_min(rounds), willing = rounds->count[ROUND_WILLING];
    uint32_t others = willing - (member->traits >> ROUND_WILLING & 1);
    bool counts = member->seated || (ddpi_rounds_state(rounds) == ROUNDS_FORMING && willing >= min);
    if (!counts || others >= min || left_out || rounds->departed.node[0] != '\0')
        return;
    memcpy(rounds->departed.node, member->says.name, sizeof rounds->departed.node);
    rounds->departed.drained = drained;
}

ddp_status ddpi_rounds_member(struct ddpi_rounds *rounds, uint64_t id,
                              const struct ddp_round_member *says)
{
    struct round_member *member = member_find(rounds, id);
    if (member == NULL) {
        if (member_create(rounds, id, says, &member) != DDP_OK)
            return DDP_E_NOMEM;
    } else {
        if (says->leaving && !member->says.leaving)
            member_depart(rounds, member, false);
        /* Its name and terms stay as they were when it came. */
        struct ddp_round_member before = member->says;
        bool done = (member->traits >> ROUND_DONE & 1) && says->generation == rounds->generation;
        member->says = *says;
        memcpy(member->says.name, before.name, sizeof before.name);
        member->says.terms = before.terms;
        if (done && says->phase == DDP_ROUND_IDLE) /* IDLE after DONE takes nothing back */
            member->says.phase = DDP_ROUND_DONE;
    }
    if (says->generation > rounds->last && says->generation <= GENERATION_MAX) {
        rounds->last = says->generation;
        rounds->forgotten = !rounds->formed;
    }
    ddpi_rounds_recount(rounds, member);
    ddpi_rounds_notice(rounds, member, false);
    if (!member->seated || member->drained)
        ddpi_rounds_look_at(rounds, member);
    return DDP_OK;
}

const char *ddpi_rounds_waiting_node(const struct ddpi_rounds *rounds)
{
    if (ddpi_rounds_state(rounds) != ROUNDS_FORMING || rounds->formed ||
        rounds->count[ROUND_WILLING] >= ddpi_rounds_min(rounds))
        return NULL;
    ddpi_list_for_each (at, &rounds->members)
        if (ddpi_rounds_member_of(at)->traits >> ROUND_WILLING & 1)
            return ddpi_rounds_member_of(at)->says.name;
    return NULL;
}

void ddpi_rounds_hear(struct ddpi_rounds *rounds, const char *notice)
{
    ddpi_rounds_say(rounds->notice, "%s", notice);
    rounds->stale = true;
}

void ddpi_rounds_epoch(struct ddpi_rounds *rounds, uint64_t epoch)
{
    if (epoch > rounds->last)
        rounds->last = epoch;
}

void ddpi_rounds_gone(struct ddpi_rounds *rounds, uint64_t id)
{
    struct round_member *member = member_find(rounds, id);
    if (member == NULL)
        return;
    ddpi_rounds_notice(rounds, member, true);
    member_destroy(rounds, member);
    rounds->stale |= ddpi_rounds_state(rounds) == ROUNDS_FORMING || rounds->count[ROUND_LATE] != 0;
}

/* ---- why a generation cannot go on ---- */

static void notice_failure(struct ddpi_rounds *rounds, const struct round_member *member)
{
    const struct ddp_round_failure *failure = &member->says.failure;
    bool first = ddpi_rounds_state(rounds) == ROUNDS_RUNNING ? rounds->cause == ROUND_NO_CAUSE
                                                             : rounds->judging;
    if (rounds->root.known ? rounds->root.member != member->id : !first)
        return;
    rounds->root.known = true;
    rounds->root.member = member->id;
    rounds->root.record = *failure;
    memcpy(rounds->root.node, member->says.name, sizeof rounds->root.node);
    if (ddpi_rounds_state(rounds) == ROUNDS_RUNNING)
        rounds->cause = ROUND_CAUSE_FAILURE;
    else if (failure->final) /* it counts in any case */
        rounds->judging = true;
    else if (!rounds->judging)
        return;
    rounds->exit_code = failure->exit_code;
    ddpi_rounds_say(rounds->reason, "%s", failure->text);
}

/* Why the generation cannot go on without @member; NULL: it can. */
static const char *departure(const struct ddpi_rounds *rounds, const struct round_member *member,
                             bool gone)
{
    const struct ddp_round_member *says = &member->says;
    bool current = says->generation == rounds->generation;
    if (current && says->phase == DDP_ROUND_DONE)
        return NULL;
    if (says->leaving)
        return gone ? "has left" : "is leaving";
    if (gone)
        return "is lost";
    if (says->sick[0] != '\0')
        return "is left out: ";
    return current && says->phase == DDP_ROUND_IDLE ? "has given up its part" : NULL;
}

/* Whether a failure has been noted, and @member explains it: it is lost, and the workers of its
 * peers may have been connected to its own; or it is not fit. */
static bool explains_failure(const struct ddpi_rounds *rounds, const struct round_member *member,
                             bool gone)
{
    bool judging = ddpi_rounds_state(rounds) == ROUNDS_RUNNING
                       ? rounds->cause == ROUND_CAUSE_FAILURE
                       : rounds->judging;
    bool vanished = gone && (member->traits >> ROUND_ACTIVE & 1) && !member->says.leaving;
    bool unfit = member->says.fenced || member->says.sick[0] != '\0';
    return judging && (vanished || unfit) && !rounds->root.record.final;
}

void ddpi_rounds_notice(struct ddpi_rounds *rounds, const struct round_member *member, bool gone)
{
    const struct ddp_round_member *says = &member->says;
    enum ddpi_rounds_state state = ddpi_rounds_state(rounds);
    if (!member->seated || (state != ROUNDS_RUNNING && state != ROUNDS_STOPPING))
        return;
    if (says->failure.generation == rounds->generation)
        notice_failure(rounds, member);
    const char *what = departure(rounds, member, gone);
    bool first = state == ROUNDS_RUNNING && rounds->cause == ROUND_NO_CAUSE;
    if (what == NULL || (!first && !explains_failure(rounds, member, gone)))
        return;
    rounds->cause = ROUND_CAUSE_MEMBER;
    rounds->judging = false;
    rounds->failed = !says->leaving;
    bool sick = !gone && !says->leaving && says->sick[0] != '\0';
    ddpi_rounds_say(rounds->reason, "node %s %s%s", says->name, what, sick ? says->sick : "");
}

/* ---- what users want ---- */

void ddpi_rounds_wish(struct ddpi_rounds *rounds, const struct ddpi_rounds_wish *wish)
{
    rounds->wish = *wish;
    rounds->stale = true;
}

static ddp_status remember_drained(struct ddpi_rounds *rounds, const char *name, size_t len)
{
    if (len >= DDP_ROUND_NAME_SIZE || ddpi_table_find(&rounds->drained, name, len) != NULL)
        return DDP_OK; /* no member has a longer name */
    struct drained_name *drained = ddpi_calloc(1, sizeof(*drained));
    if (drained == NULL)
        return DDP_E_NOMEM;
    memcpy(drained->name, name, len);
    drained->node.key = drained->name;
    drained->node.key_len = len;
    if (ddpi_table_insert(&rounds->drained, &drained->node))
        return DDP_OK;
    ddpi_free(drained);
    return DDP_E_NOMEM;
}

static void forget_drained(struct ddpi_rounds *rounds, const char *name, size_t len)
{
    struct ddpi_table_node *node = ddpi_table_find(&rounds->drained, name, len);
    if (node == NULL)
        return;
    ddpi_table_remove(&rounds->drained, node);
    ddpi_free(ddpi_container_of(node, struct drained_name, node));
    if (rounds->departed.drained && strcmp(rounds->departed.node, name) == 0)
        memset(&rounds->departed, 0, sizeof rounds->departed);
}

ddp_status ddpi_rounds_drain(struct ddpi_rounds *rounds, const char *name, bool drain)
{
    if (!drain)
        forget_drained(rounds, name, strlen(name));
    else if (remember_drained(rounds, name, strlen(name)) != DDP_OK)
        return DDP_E_NOMEM;
    ddpi_list_for_each (at, &rounds->members) {
        struct round_member *member = ddpi_rounds_member_of(at);
        if (member->late || member->drained == drain || strcmp(member->says.name, name) != 0)
            continue;
        if (drain)
            member_depart(rounds, member, true);
        member->drained = drain;
        ddpi_rounds_recount(rounds, member);
        ddpi_rounds_look_at(rounds, member);
    }
    return DDP_OK;
}

void ddpi_rounds_checkpoint(struct ddpi_rounds *rounds)
{
    if (ddpi_rounds_state(rounds) == ROUNDS_RUNNING)
        rounds->checkpoint = true;
}

/* ---- the next job ---- */

static void forget_verdict(struct ddpi_rounds *rounds)
{
    rounds->cause = ROUND_NO_CAUSE;
    rounds->failed = rounds->judging = rounds->closing = false;
    rounds->exit_code = 0;
    ddpi_rounds_say(rounds->reason, "%s", "");
    ddpi_rounds_say(rounds->notice, "%s", "");
    rounds->root = rounds->before = (struct round_failure){0};
    memset(rounds->streaks, 0, sizeof rounds->streaks);
    memset(&rounds->departed, 0, sizeof rounds->departed);
    rounds->recovering = false;
    rounds->idle_ms = rounds->seated_ms = rounds->running_ms = 0;
}

static void admit_late(struct ddpi_rounds *rounds)
{
    rounds->terms = ddpi_rounds_member_of(rounds->members.next)->says.terms;
    ddpi_list_for_each (at, &rounds->members) {
        struct round_member *member = ddpi_rounds_member_of(at);
        member->late = false;
        member_agree(rounds, member);
        ddpi_rounds_recount(rounds, member);
    }
}

void ddpi_rounds_renew(struct ddpi_rounds *rounds)
{
    ddpi_sm_move(&rounds->sm, ROUNDS_FORMING);
    rounds->generation = 0;
    rounds->nodes = rounds->world_size = rounds->restarts = 0;
    rounds->wish = (struct ddpi_rounds_wish){0};
    rounds->formed = rounds->finishing = rounds->checkpoint = false;
    rounds->restored_seated = 0;
    rounds->settle_ms = UINT64_MAX;
    rounds->retell = true;
    ddpi_table_finish_free(&rounds->drained, offsetof(struct drained_name, node));
    ddpi_rounds_forgive_all(rounds);
    forget_verdict(rounds);
    admit_late(rounds);
}

/* ---- the state, and how to continue from it ---- */

void ddpi_rounds_summary(const struct ddpi_rounds *rounds, struct ddpi_rounds_summary *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->state = ddpi_rounds_state(rounds);
    ret->generation = rounds->generation;
    ret->members = (uint32_t)rounds->by_id.count;
    ret->seated = rounds->count[ROUND_SEATED];
    ret->world_size = rounds->world_size;
    ret->restarts = rounds->restarts;
    ret->terms = rounds->terms;
    memcpy(ret->reason, rounds->reason, sizeof ret->reason);
    ret->judging = rounds->judging;
    ret->closing = rounds->closing;
    ret->exit_code = rounds->exit_code;
    ret->idle_ms = rounds->idle_ms;
    ret->seated_ms = rounds->seated_ms;
    ret->running_ms = rounds->running_ms;
    ret->left_out = rounds->count[ROUND_LEFT_OUT];
}

void ddpi_rounds_restore(struct ddpi_rounds *rounds, const struct ddpi_rounds_summary *summary)
{
    static const enum ddpi_rounds_state way[] = {ROUNDS_RUNNING, ROUNDS_STOPPING, ROUNDS_PAUSING,
                                                 ROUNDS_CLOSED};
    for (size_t i = 0; i < sizeof way / sizeof *way && way[i] <= summary->state; i++)
        ddpi_sm_move(&rounds->sm, way[i]);
    rounds->generation = summary->generation;
    if (summary->generation > rounds->last)
        rounds->last = summary->generation;
    rounds->formed = summary->generation != 0;
    rounds->restored_seated = summary->seated;
    rounds->world_size = summary->world_size;
    rounds->restarts = summary->restarts;
    rounds->terms = summary->terms;
    ddpi_rounds_say(rounds->reason, "%s", summary->reason);
    rounds->judging = summary->judging;
    rounds->closing = summary->closing;
    rounds->exit_code = summary->exit_code;
    rounds->idle_ms = summary->idle_ms;
    rounds->seated_ms = summary->seated_ms;
    rounds->running_ms = summary->running_ms;
    rounds->restored = true;
}

/* The seat is of a later generation than the summary: the server ended before storing that one. */
static void follow_seat(struct ddpi_rounds *rounds, const struct ddp_round_seat *seat)
{
    if (seat->order != DDP_ROUND_RUN || seat->generation <= rounds->generation ||
        seat->generation > GENERATION_MAX)
        return;
    if (ddpi_rounds_state(rounds) == ROUNDS_CLOSED)
        ddpi_rounds_renew(rounds);
    rounds->generation = seat->generation;
    rounds->last = rounds->last > seat->generation ? rounds->last : seat->generation;
    rounds->formed = true;
    rounds->world_size = seat->world_size;
    rounds->restored_seated = seat->nodes;
    ddpi_list_for_each (at, &rounds->members) {
        struct round_member *member = ddpi_rounds_member_of(at);
        member->seated = false;
        ddpi_rounds_recount(rounds, member);
    }
}

void ddpi_rounds_restore_seat(struct ddpi_rounds *rounds, uint64_t id,
                              const struct ddp_round_seat *seat)
{
    struct round_member *member = member_find(rounds, id);
    if (member == NULL)
        return;
    follow_seat(rounds, seat);
    ddpi_rounds_copy_seat(&member->seat, seat);
    member->check = seat->check;
    /* A job is not closed before it has told its members to end. */
    member->late &= seat->order == DDP_ROUND_WAIT || seat->order == DDP_ROUND_STOP;
    member->seated =
        !member->late && seat->generation != 0 && seat->generation == rounds->generation;
    if (member->seated) {
        rounds->nodes = seat->nodes;
        rounds->failed |= seat->order == DDP_ROUND_STOP && seat->failed;
    }
    ddpi_rounds_recount(rounds, member);
}
