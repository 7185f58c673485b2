/*
 * cluster.c - see cluster.h. Owns nothing.
 */
#include "cluster.h"

#include <string.h>

void ddpi_cluster_begin(struct ddpi_cluster *cluster, const struct ddpi_cluster_list *list,
                        unsigned self, uint64_t life, uint32_t quiet_ms, uint64_t now_ms)
{
    cluster->list = list;
    cluster->quiet_ms = quiet_ms;
    cluster->own = (struct ddpi_keeper_status){.self = self, .life = life};
    ddpi_cluster_list_put(list, cluster->own.list);
    cluster->started = cluster->replacing = false;
    cluster->led_ms = now_ms;
}

void ddpi_cluster_hear(struct ddpi_cluster *cluster, const struct ddpi_keeper_status *status,
                       uint64_t now_ms)
{
    cluster->heard[status->self].known = true;
    cluster->heard[status->self].at_ms = now_ms;
    cluster->heard[status->self].status = *status;
}

void ddpi_cluster_led(struct ddpi_cluster *cluster, bool leads, bool knows_leader, uint64_t now_ms)
{
    if (leads && !cluster->own.leads)
        cluster->leads_ms = now_ms;
    cluster->own.leads = leads;
    cluster->own.knows_leader = knows_leader;
}

void ddpi_cluster_replaced(struct ddpi_cluster *cluster, const struct ddpi_cluster_step *step,
                           unsigned members)
{
    cluster->replacing = false;
    if (members == 0)
        return;
    cluster->own.admitted[step->machine] = step->life;
    cluster->own.members[step->machine] = members;
}

/* What the keeper of machine @i said in the last second; NULL: nothing, or it is this one. */
static const struct ddpi_keeper_status *heard_of(const struct ddpi_cluster *cluster, unsigned i,
                                                 uint64_t now_ms)
{
    if (i == cluster->own.self || !cluster->heard[i].known ||
        now_ms - cluster->heard[i].at_ms > DDPI_CLUSTER_FRESH_MS)
        return NULL;
    return &cluster->heard[i].status;
}

bool ddpi_cluster_hears(const struct ddpi_cluster *cluster, unsigned machine, uint64_t now_ms)
{
    return heard_of(cluster, machine, now_ms) != NULL;
}

static struct ddpi_cluster_step start(struct ddpi_cluster *cluster, uint64_t number,
                                      enum ddpi_keeper_phase phase, unsigned members)
{
    cluster->own.number = number;
    cluster->own.phase = phase;
    cluster->started = true;
    return (struct ddpi_cluster_step){.action = phase == KEEPER_PROMISED ? CLUSTER_START_NEW
                                                                         : CLUSTER_START_EXISTING,
                                      .members = members};
}

/* ---- without data ---- */

/* Propose a cluster for the lives that are seen to be empty. Its etcd starts when another one
 * promises. */
static void propose(struct ddpi_cluster *cluster, uint64_t number, uint64_t now_ms)
{
    struct ddpi_keeper_status *own = &cluster->own;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        own->founders[i] = other != NULL && other->phase == KEEPER_EMPTY ? other->life : 0;
    }
    own->founders[own->self] = own->life;
    own->number = number;
    own->phase = KEEPER_PROMISED;
    cluster->promised_ms = now_ms;
}

/* Whether it is this keeper's turn to propose. */
static bool may_propose(const struct ddpi_cluster *cluster, uint64_t now_ms)
{
    unsigned empty = 1, first = cluster->own.self;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        if (other == NULL || other->phase != KEEPER_EMPTY)
            continue;
        empty++;
        if (i < first)
            first = i;
    }
    bool quiet = now_ms - cluster->led_ms >= cluster->quiet_ms;
    return first == cluster->own.self && (empty == DDPI_CLUSTER_SIZE || (empty > 1 && quiet));
}

static struct ddpi_cluster_step step_empty(struct ddpi_cluster *cluster, uint64_t random,
                                           uint64_t now_ms)
{
    struct ddpi_keeper_status *own = &cluster->own;
    const struct ddpi_keeper_status *proposal = NULL;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        if (other == NULL)
            continue;
        if (other->leads && other->admitted[own->self] == own->life)
            return start(cluster, other->number, KEEPER_MEMBER, other->members[own->self]);
        if (other->knows_leader)
            cluster->led_ms = now_ms;
        if (proposal == NULL && other->founders[own->self] == own->life)
            proposal = other;
    }
    if (proposal != NULL) { /* the proposer's promise and this one are two */
        memcpy(own->founders, proposal->founders, sizeof own->founders);
        cluster->promised_ms = now_ms;
        return start(cluster, proposal->number, KEEPER_PROMISED, (1U << DDPI_CLUSTER_SIZE) - 1);
    }
    if (may_propose(cluster, now_ms))
        propose(cluster, random, now_ms);
    return (struct ddpi_cluster_step){CLUSTER_NONE};
}

/* ---- with data, or a promise ---- */

static struct ddpi_cluster_step wipe(const char *why)
{
    return (struct ddpi_cluster_step){.action = CLUSTER_WIPE, .why = why};
}

static struct ddpi_cluster_step step_promised(struct ddpi_cluster *cluster, uint64_t now_ms)
{
    struct ddpi_keeper_status *own = &cluster->own;
    if (own->knows_leader) {
        own->phase = KEEPER_MEMBER;
        return (struct ddpi_cluster_step){CLUSTER_NONE};
    }
    if (now_ms - cluster->promised_ms >= DDPI_CLUSTER_PROMISE_MS)
        return wipe("no leader was elected within 10 s");
    for (unsigned i = 0; !cluster->started && i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        if (other != NULL && other->number == own->number)
            return start(cluster, own->number, KEEPER_PROMISED, (1U << DDPI_CLUSTER_SIZE) - 1);
    }
    return (struct ddpi_cluster_step){CLUSTER_NONE};
}

static struct ddpi_cluster_step step_member(struct ddpi_cluster *cluster, uint64_t now_ms)
{
    struct ddpi_keeper_status *own = &cluster->own;
    bool may_replace = own->leads && own->knows_leader && !cluster->replacing &&
                       now_ms - cluster->leads_ms >= 2 * DDPI_CLUSTER_FRESH_MS;
    unsigned elsewhere = 0;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        if (other == NULL)
            continue;
        if (may_replace && other->phase == KEEPER_EMPTY && own->admitted[i] != other->life) {
            cluster->replacing = true;
            return (struct ddpi_cluster_step){
                .action = CLUSTER_REPLACE, .machine = i, .life = other->life};
        }
        if (other->number != 0 && other->number != own->number)
            elsewhere += other->knows_leader ? 2 : 1;
    }
    if (!own->knows_leader && elsewhere > 1)
        return wipe("the other machines have founded another cluster");
    return (struct ddpi_cluster_step){CLUSTER_NONE};
}

struct ddpi_cluster_step ddpi_cluster_step(struct ddpi_cluster *cluster, uint64_t random,
                                           uint64_t now_ms)
{
    if (cluster->own.phase == KEEPER_EMPTY)
        return step_empty(cluster, random, now_ms);
    if (cluster->own.phase == KEEPER_PROMISED)
        return step_promised(cluster, now_ms);
    return step_member(cluster, now_ms);
}
