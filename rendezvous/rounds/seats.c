/*
 * seats.c - the seats of a generation, and what each member is told in each state of the machine. A
 * seat follows from the machine's state and the member alone, so it can be computed again at any
 * time; only changes are told. Owns nothing.
 */
#include "rounds_impl.h"

#include "error.h"
#include "exit_codes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REFRESH_MS = 1000 /* how old the numbers may be in the texts that waiting members are told */
};

/* ---- names ---- */

static size_t digits(const char *text)
{
    size_t count = 0;
    while (isdigit((unsigned char)text[count]))
        count++;
    return count;
}

/* Compares the numbers that *@a and *@b begin with, and moves both past them. */
static int compare_numbers(const char **a, const char **b)
{
    while (**a == '0')
        (*a)++;
    while (**b == '0')
        (*b)++;
    size_t a_len = digits(*a), b_len = digits(*b);
    int order = a_len != b_len ? (a_len < b_len ? -1 : 1) : memcmp(*a, *b, a_len);
    *a += a_len;
    *b += b_len;
    return order;
}

int ddpi_rounds_compare_names(const char *a, const char *b)
{
    const char *x = a, *y = b;
    while (*x != '\0' && *y != '\0') {
        if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
            int order = compare_numbers(&x, &y);
            if (order != 0)
                return order;
        } else if (*x != *y) {
            break;
        } else {
            x++, y++;
        }
    }
    if (*x != *y)
        return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
    return strcmp(a, b); /* node1 and node01 differ */
}

/* ---- orders of members ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Members of the latest generation first, in the order of their seats there. */
static int compare_seated(const struct round_member *a, const struct round_member *b)
{
    if (a->seated != b->seated)
        return a->seated ? -1 : 1;
    return a->seated ? compare_u64(a->seat.node_rank, b->seat.node_rank) : 0;
}

/* The order in which members get seats, if there are too few. */
static int compare_claims(const void *left, const void *right)
{
    const struct round_member *a = *(struct round_member *const *)left;
    const struct round_member *b = *(struct round_member *const *)right;
    int order = compare_seated(a, b);
    return order != 0 ? order : compare_u64(a->arrival, b->arrival);
}

/* The order of the ranks. */
static int compare_ranks(const void *left, const void *right)
{
    const struct round_member *a = *(struct round_member *const *)left;
    const struct round_member *b = *(struct round_member *const *)right;
    bool a_wishes = a->says.node_rank >= 0, b_wishes = b->says.node_rank >= 0;
    if (a_wishes != b_wishes)
        return a_wishes ? -1 : 1;
    if (a_wishes && a->says.node_rank != b->says.node_rank)
        return a->says.node_rank < b->says.node_rank ? -1 : 1;
    int order = compare_seated(a, b);
    if (order == 0 && !a_wishes)
        order = ddpi_rounds_compare_names(a->says.name, b->says.name);
    return order != 0 ? order : compare_u64(a->arrival, b->arrival);
}

/* ---- a generation ---- */

/* Puts the members to be seated into rounds->sorted, in the order of their ranks. */
static uint32_t choose_members(struct ddpi_rounds *rounds)
{
    uint32_t count = 0, max = ddpi_rounds_max(rounds);
    ddpi_list_for_each (at, &rounds->members)
        if (ddpi_rounds_member_of(at)->traits >> ROUND_WILLING & 1)
            rounds->sorted[count++] = ddpi_rounds_member_of(at);
    if (count > max) {
        qsort(rounds->sorted, count, sizeof *rounds->sorted, compare_claims);
        count = max;
    }
    qsort(rounds->sorted, count, sizeof *rounds->sorted, compare_ranks);
    return count;
}

static ddp_status check_generation(uint64_t generation, struct ddp_error *err)
{
    if (generation <= DDPI_GENERATION_MAX)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_LIMIT,
                          "no generation can follow the job's epoch, which was set too high; start "
                          "the job under another name");
}

static ddp_status count_ranks(const struct ddpi_rounds *rounds, uint32_t nodes, uint32_t *ret,
                              struct ddp_error *err)
{
    uint64_t ranks = 0;
    for (uint32_t i = 0; i < nodes; i++)
        ranks += rounds->sorted[i]->says.nproc;
    if (ranks > INT32_MAX)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "its %u nodes would have %llu workers; at most %d can be", nodes,
                              (unsigned long long)ranks, INT32_MAX);
    *ret = (uint32_t)ranks;
    return DDP_OK;
}

/* Where the workers meet: at a port of the first node, if it has one, or at the store. And where
 * its first worker may listen in either case. */
static ddp_status find_master(const struct ddpi_rounds *rounds, uint64_t generation,
                              struct ddp_round_seat *seat, struct ddp_error *err)
{
    ddp_status status = rounds->hooks.begin(rounds->hooks.ctx, generation, seat, err);
    if (status != DDP_OK)
        return status;
    const struct ddp_round_member *first = &rounds->sorted[0]->says;
    if (first->master_port != 0) {
        ddpi_rounds_say(seat->master_address, "%s", first->address);
        seat->master_port = first->master_port;
    }
    if (first->first_port != 0) {
        ddpi_rounds_say(seat->coordinator_address, "%s", first->address);
        seat->coordinator_port = first->first_port;
    }
    return DDP_OK;
}

static void enter_generation(struct ddpi_rounds *rounds, uint64_t generation, uint32_t nodes,
                             uint32_t world_size)
{
    rounds->generation = rounds->last = generation;
    rounds->nodes = nodes;
    rounds->world_size = world_size;
    rounds->formed = true;
    rounds->forgotten = rounds->finishing = false;
    rounds->cause = ROUND_NO_CAUSE;
    rounds->root.known = false;
    memset(&rounds->departed, 0, sizeof rounds->departed);
    memset(rounds->notice, 0, sizeof rounds->notice);
    ddpi_list_for_each (at, &rounds->members)
        ddpi_rounds_member_of(at)->seated = false;
    for (uint32_t i = 0; i < nodes; i++)
        rounds->sorted[i]->seated = true;
    ddpi_list_for_each (at, &rounds->members)
        ddpi_rounds_recount(rounds, ddpi_rounds_member_of(at));
}

static int compare_roles(const void *left, const void *right)
{
    const struct round_member *a = *(struct round_member *const *)left;
    const struct round_member *b = *(struct round_member *const *)right;
    int order = strcmp(a->says.role, b->says.role);
    return order != 0 ? order : compare_u64(a->seat.node_rank, b->seat.node_rank);
}

static bool commands_differ(const struct round_member *a, const struct round_member *b)
{
    return *a->says.command != '\0' && *b->says.command != '\0' &&
           strcmp(a->says.command, b->says.command) != 0;
}

static void name_command(struct round_member *member, const struct round_member *other)
{
    ddpi_rounds_say(member->seat.text, "node %s runs '%s'", other->says.name, other->says.command);
}

/* Each of the @count nodes of one role is compared with the first, and that with the others. */
static void compare_commands(struct round_member *const *nodes, uint32_t count)
{
    struct round_member *first = nodes[0];
    for (uint32_t i = 1; i < count; i++) {
        if (!commands_differ(first, nodes[i]))
            continue;
        name_command(nodes[i], first);
        if (first->seat.text[0] == '\0')
            name_command(first, nodes[i]);
    }
}

/* Ranks are also counted within each role, in the order of the nodes: sorts the nodes by role. */
static void count_roles(struct ddpi_rounds *rounds, uint32_t nodes)
{
    struct round_member **sorted = rounds->sorted;
    qsort(sorted, nodes, sizeof *sorted, compare_roles);
    for (uint32_t first = 0, end; first < nodes; first = end) {
        uint32_t size = 0;
        for (end = first;
             end < nodes && strcmp(sorted[end]->says.role, sorted[first]->says.role) == 0; end++) {
            sorted[end]->seat.role_first_rank = size;
            size += sorted[end]->says.nproc;
        }
        for (uint32_t i = first; i < end; i++)
            sorted[i]->seat.role_world_size = size;
        compare_commands(sorted + first, end - first);
    }
}

static uint32_t most_workers(const struct ddpi_rounds *rounds, uint32_t nodes)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < nodes; i++)
        if (rounds->sorted[i]->says.nproc > most)
            most = rounds->sorted[i]->says.nproc;
    return most;
}

ddp_status ddpi_rounds_seat_all(struct ddpi_rounds *rounds, struct ddp_error *err)
{
    uint64_t generation = rounds->last + 1;
    uint32_t world_size = 0, nodes = choose_members(rounds);
    struct ddp_round_seat begun = {0}, seat;
    ddp_status status = check_generation(generation, err);
    if (status == DDP_OK)
        status = count_ranks(rounds, nodes, &world_size, err);
    if (status == DDP_OK)
        status = find_master(rounds, generation, &begun, err);
    if (status != DDP_OK)
        return status;
    ddpi_rounds_copy_seat(&seat, &begun);
    seat.order = DDP_ROUND_RUN;
    seat.generation = generation;
    seat.nodes = nodes;
    seat.world_size = world_size;
    seat.restarts = rounds->restarts;
    seat.most_workers = most_workers(rounds, nodes);
    memset(seat.text, 0, sizeof seat.text);
    memset(seat.notice, 0, sizeof seat.notice);
    enter_generation(rounds, generation, nodes, world_size);
    for (uint32_t i = 0; i < nodes; i++) {
        struct round_member *member = rounds->sorted[i];
        seat.node_rank = i;
        memcpy(&member->seat, &seat, sizeof seat);
        seat.first_rank += member->says.nproc;
    }
    count_roles(rounds, nodes);
    for (uint32_t i = 0; i < nodes; i++)
        rounds->hooks.seat(rounds->hooks.ctx, rounds->sorted[i]->id, &rounds->sorted[i]->seat);
    return DDP_OK;
}

/* ---- what members are told ---- */

/* Whether a member is not ready for the next generation; puts into @text which. */
static bool say_unready(const struct ddpi_rounds *rounds, char *text)
{
    ddpi_list_for_each (at, &rounds->members) {
        const struct round_member *member = ddpi_rounds_member_of(at);
        bool busy = member->traits >> ROUND_BUSY & 1;
        if (busy)
            ddpi_rounds_say(text, "waiting for node %s to end its workers of generation %llu",
                            member->says.name, (unsigned long long)member->says.generation);
        else if (member->traits >> ROUND_CHECKING & 1)
            ddpi_rounds_say(text, "waiting for node %s to end its node check", member->says.name);
        else
            continue;
        return true;
    }
    return false;
}

static void say_forming(const struct ddpi_rounds *rounds, char *text)
{
    uint32_t here = rounds->count[ROUND_WILLING];
    uint32_t min = ddpi_rounds_min(rounds), max = ddpi_rounds_max(rounds);
    if (here < min) {
        ddpi_rounds_say(text, "waiting for %u more node%s: %u of at least %u %s here", min - here,
                        min - here == 1 ? "" : "s", here, min, here == 1 ? "is" : "are");
        ddpi_rounds_say_left_out(rounds, text);
        return;
    }
    if (say_unready(rounds, text))
        return;
    if (rounds->forgotten && here >= max) {
        ddpi_rounds_say(text,
                        "the store does not know what became of generation %llu; waiting up to "
                        "%.1f s, until all nodes that it has forgotten have ended their workers",
                        (unsigned long long)rounds->last, (double)rounds->terms.lease_ms / 1000);
        return;
    }
    ddpi_rounds_say(text, "waiting up to %.12g s for more nodes: %u of at most %u are here",
                    (double)rounds->terms.settle_ms / 1000, here, max);
}

static void say_running(const struct ddpi_rounds *rounds, char *text)
{
    uint32_t max = ddpi_rounds_max(rounds);
    if (rounds->nodes >= max)
        ddpi_rounds_say(text, "all %u seats are taken; this node is a spare", max);
    else if (rounds->finishing || rounds->terms.join == DDP_ROUND_JOIN_NEVER)
        ddpi_rounds_say(text, "there is a seat when generation %llu is stopped for another reason",
                        (unsigned long long)rounds->generation);
    else
        ddpi_rounds_say(text, "there is a seat when the workers have saved their state");
}

static void say_closed(const struct ddpi_rounds *rounds, char *text)
{
    uint32_t left = (uint32_t)rounds->by_id.count - rounds->count[ROUND_LATE];
    ddpi_rounds_say(text, "waiting for the last %u node%s of the job before this one to leave",
                    left, left == 1 ? "" : "s");
}

static void say_pausing(const struct ddpi_rounds *rounds, char *text)
{
    char what_follows[64];
    (void)snprintf(what_follows, sizeof what_follows, "the next restart follows in %.3g s",
                   (double)rounds->pause_ms / 1000);
    ddpi_rounds_say_loop(rounds, text, what_follows);
}

/* What members without a seat are waiting for. */
static void say_waiting(const struct ddpi_rounds *rounds, char *text)
{
    switch (ddpi_rounds_state(rounds)) {
    case ROUNDS_FORMING:
        say_forming(rounds, text);
        break;
    case ROUNDS_RUNNING:
        say_running(rounds, text);
        break;
    case ROUNDS_STOPPING:
        ddpi_rounds_say(text, "generation %llu is being stopped",
                        (unsigned long long)rounds->generation);
        break;
    case ROUNDS_PAUSING:
        say_pausing(rounds, text);
        break;
    case ROUNDS_CLOSED:
        say_closed(rounds, text);
        break;
    }
}

static void order_end(struct ddp_round_seat *seat, int32_t exit_code, const char *text)
{
    seat->order = DDP_ROUND_END;
    seat->spare = false;
    seat->exit_code = exit_code;
    ddpi_rounds_say(seat->text, "%s", text);
}

static void order_stop(struct ddp_round_seat *seat, uint64_t generation, bool failed,
                       const char *why)
{
    seat->order = DDP_ROUND_STOP;
    seat->generation = generation;
    seat->failed = failed;
    ddpi_rounds_say(seat->text, "%s", why);
}

static void order_refused(const struct ddpi_rounds *rounds, const struct round_member *member,
                          struct ddp_round_seat *seat)
{
    struct round_difference term;
    char which[DDP_ROUND_TEXT_SIZE];
    (void)ddpi_rounds_terms_differ(&rounds->terms, &member->says.terms, &term);
    ddpi_rounds_say(
        which, "%s is %s on this node and %s in the job; start all nodes with the same settings",
        term.option, term.own, term.job);
    order_end(seat, EXIT_CONFIG, which);
}

/* A member that is left out does not wait for what the others wait for. */
static void say_own_reason(const struct ddpi_rounds *rounds, const struct round_member *member,
                           struct ddp_round_seat *seat)
{
    char why[DDP_ROUND_TEXT_SIZE];
    seat->left_out = ddpi_rounds_why_left_out(rounds, member, why);
    if (seat->left_out)
        ddpi_rounds_say(seat->text, "left out: %s", why);
}

/* Computes @member's seat as it should be now. The seat keeps the numbers of the latest generation
 * that the member was seated in: they are its claim on the next one, also for a server that starts
 * again. */
static void compute_seat(const struct ddpi_rounds *rounds, const struct round_member *member,
                         const char *waiting, struct ddp_round_seat *seat)
{
    enum ddpi_rounds_state state = ddpi_rounds_state(rounds);
    bool busy = member->traits >> ROUND_BUSY & 1;
    ddpi_rounds_copy_seat(seat, &member->seat);
    if (seat->order == DDP_ROUND_END)
        return;
    seat->left_out = seat->pausing = false;
    if (member->refused) {
        order_refused(rounds, member, seat);
    } else if (member->drained && !busy) {
        order_end(seat, 0, "drained");
        seat->spare = true;
    } else if (state == ROUNDS_CLOSED && !member->late) {
        order_end(seat, rounds->exit_code, rounds->reason);
        if (!member->seated)
            ddpi_rounds_say(seat->text, "the job is over: %s", rounds->reason);
    } else if (member->seated && state == ROUNDS_STOPPING) {
        order_stop(seat, rounds->generation, rounds->failed, rounds->reason);
    } else if (!member->seated) {
        bool kept = state == ROUNDS_STOPPING || state == ROUNDS_PAUSING;
        bool spare = state == ROUNDS_RUNNING || (kept && member->seat.spare);
        memset(seat, 0, sizeof *seat);
        seat->spare = spare;
        ddpi_rounds_say(seat->text, "%s", waiting);
        if (busy) /* with workers of a generation that this job does not know */
            order_stop(seat, member->says.generation, true, "this node has no seat");
    } else if (state == ROUNDS_FORMING || state == ROUNDS_PAUSING) {
        seat->order = DDP_ROUND_WAIT;
        seat->failed = seat->spare = false;
        ddpi_rounds_say(seat->text, "%s", waiting);
    }
    seat->check = member->check;
    bool is_told = seat->order == DDP_ROUND_WAIT && state == ROUNDS_FORMING;
    ddpi_rounds_say(seat->notice, "%s", is_told ? rounds->notice : "");
    seat->pausing = seat->order == DDP_ROUND_WAIT && state == ROUNDS_PAUSING;
    if (seat->order == DDP_ROUND_WAIT)
        say_own_reason(rounds, member, seat);
}

static void tell_member(struct ddpi_rounds *rounds, struct round_member *member,
                        const char *waiting)
{
    struct ddp_round_seat seat;
    compute_seat(rounds, member, waiting, &seat);
    ddpi_list_remove(&member->of_news);
    if (memcmp(&seat, &member->seat, sizeof seat) == 0)
        return;
    memcpy(&member->seat, &seat, sizeof seat);
    ddpi_rounds_recount(rounds, member);
    rounds->hooks.seat(rounds->hooks.ctx, member->id, &member->seat);
}

void ddpi_rounds_tell(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    bool all = rounds->retell || (rounds->stale && now_ms >= rounds->refresh_ms);
    if (!all && ddpi_list_empty(&rounds->news))
        return;
    char waiting[DDP_ROUND_TEXT_SIZE] = "";
    say_waiting(rounds, waiting);
    if (all) {
        ddpi_list_for_each (at, &rounds->members)
            tell_member(rounds, ddpi_rounds_member_of(at), waiting);
        rounds->retell = rounds->stale = false;
        rounds->refresh_ms = now_ms + REFRESH_MS;
    } else {
        ddpi_list_for_each_safe (at, &rounds->news)
            tell_member(rounds, ddpi_container_of(at, struct round_member, of_news), waiting);
    }
}
