/*
 * cluster.c - see cluster.h. Owns nothing.
 */
#include "cluster.h"

#include <stdio.h>
#include <string.h>

void ddpi_cluster_begin(struct ddpi_cluster *cluster, const struct ddpi_cluster_list *list,
                        unsigned self, const char *job, uint64_t life, uint32_t quiet_ms,
                        uint64_t now_ms)
{
    cluster->quiet_ms = quiet_ms;
    cluster->own = (struct ddpi_keeper_status){.self = self, .life = life};
    snprintf(cluster->own.job, sizeof cluster->own.job, "%s", job);
    ddpi_cluster_list_put(list, cluster->own.list);
    cluster->started = cluster->had_quorum = cluster->serves = cluster->replacing = false;
    cluster->stepped_ms = cluster->led_ms = now_ms;
}

void ddpi_cluster_hear(struct ddpi_cluster *cluster, const struct ddpi_keeper_status *status,
                       uint64_t asked_ms)
{
    cluster->heard[status->self].known = true;
    cluster->heard[status->self].asked_ms = asked_ms;
    cluster->heard[status->self].status = *status;
}

const char *ddpi_cluster_job(const struct ddpi_cluster *cluster)
{
    const struct ddpi_keeper_status *own = &cluster->own;
    const char *job = own->job;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE && job[0] == '\0'; i++)
        if (own->number != 0 && cluster->heard[i].status.number == own->number)
            job = cluster->heard[i].status.job;
    return job;
}

/* What a leader before has said is not known to those that it has said it to any more. */
void ddpi_cluster_led(struct ddpi_cluster *cluster, bool had_quorum, bool leads, bool knows_leader,
                      uint64_t now_ms)
{
    struct ddpi_keeper_status *own = &cluster->own;
    if (leads && !own->leads) {
        cluster->leads_ms = now_ms;
        memset(own->admitted, 0, sizeof own->admitted);
    }
    cluster->had_quorum = had_quorum;
    own->leads = leads;
    own->knows_leader = knows_leader;
}

void ddpi_cluster_replaced(struct ddpi_cluster *cluster, const struct ddpi_cluster_step *step,
                           bool done, uint64_t now_ms)
{
    cluster->replacing = false;
    if (done)
        cluster->own.admitted[step->machine] = step->life;
    else
        cluster->again_ms = now_ms + DDPI_CLUSTER_AGAIN_MS;
}

/* What the keeper of machine @i has said in the last @within_ms; NULL: nothing, or it is this
 * one. */
static const struct ddpi_keeper_status *heard_within(const struct ddpi_cluster *cluster, unsigned i,
                                                     uint64_t within_ms, uint64_t now_ms)
{
    if (i == cluster->own.self || !cluster->heard[i].known ||
        now_ms - cluster->heard[i].asked_ms > within_ms)
        return NULL;
    return &cluster->heard[i].status;
}

static const struct ddpi_keeper_status *heard_of(const struct ddpi_cluster *cluster, unsigned i,
                                                 uint64_t now_ms)
{
    return heard_within(cluster, i, DDPI_CLUSTER_FRESH_MS, now_ms);
}

bool ddpi_cluster_hears(const struct ddpi_cluster *cluster, unsigned machine, uint64_t now_ms)
{
    return heard_of(cluster, machine, now_ms) != NULL;
}

unsigned ddpi_cluster_others(const struct ddpi_cluster *cluster, uint64_t within_ms,
                             uint64_t now_ms)
{
    unsigned count = 0;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_within(cluster, i, within_ms, now_ms);
        count += other != NULL && other->number != 0 && other->number == cluster->own.number;
    }
    return count;
}

bool ddpi_cluster_is_of_no_job(const struct ddpi_cluster *cluster, uint64_t now_ms)
{
    unsigned members = 0;
    uint64_t number = 0;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        if (other == NULL || other->phase != KEEPER_MEMBER || other->job[0] != '\0')
            continue;
        members += number == 0 || number == other->number;
        number = other->number;
    }
    return cluster->own.phase == KEEPER_EMPTY && cluster->own.job[0] != '\0' && members > 1;
}

bool ddpi_cluster_may_serve(struct ddpi_cluster *cluster, uint64_t now_ms)
{
    const struct ddpi_keeper_status *own = &cluster->own;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        cluster->serves |= cluster->had_quorum && own->phase == KEEPER_MEMBER && other != NULL &&
                           other->phase == KEEPER_MEMBER && other->number == own->number;
    }
    return cluster->serves;
}

static struct ddpi_cluster_step start(struct ddpi_cluster *cluster, uint64_t number,
                                      enum ddpi_keeper_phase phase, uint64_t now_ms)
{
    cluster->own.number = number;
    cluster->own.phase = phase;
    cluster->started = true;
    cluster->began_ms = now_ms;
    return (struct ddpi_cluster_step){.action = phase == KEEPER_PROMISED ? CLUSTER_START_NEW
                                                                         : CLUSTER_START_EXISTING};
}

static struct ddpi_cluster_step wipe(const char *why)
{
    return (struct ddpi_cluster_step){.action = CLUSTER_WIPE, .why = why};
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
    cluster->began_ms = now_ms;
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
            return start(cluster, other->number, KEEPER_MEMBER, now_ms);
        if (other->knows_leader)
            cluster->led_ms = now_ms;
        if (proposal == NULL && other->founders[own->self] == own->life)
            proposal = other;
    }
    if (proposal != NULL) { /* the proposer's promise and this one are two */
        memcpy(own->founders, proposal->founders, sizeof own->founders);
        return start(cluster, proposal->number, KEEPER_PROMISED, now_ms);
    }
    if (may_propose(cluster, now_ms))
        propose(cluster, random, now_ms);
    return (struct ddpi_cluster_step){CLUSTER_NONE};
}

/* ---- with data, or a promise ---- */

void ddpi_cluster_over(struct ddpi_cluster *cluster, uint64_t now_ms)
{
    if (cluster->own.phase == KEEPER_EMPTY || cluster->own.phase == KEEPER_ENDING)
        return;
    cluster->own.phase = KEEPER_ENDING;
    cluster->began_ms = now_ms;
}

/* Another keeper of this cluster is ENDING, or was: it may be gone. */
static bool hears_the_end(const struct ddpi_cluster *cluster)
{
    bool ends = false;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        ends |= cluster->heard[i].status.phase == KEEPER_ENDING &&
                cluster->heard[i].status.number == cluster->own.number;
    return ends;
}

static struct ddpi_cluster_step step_ending(const struct ddpi_cluster *cluster, uint64_t now_ms)
{
    bool alone = true; /* nobody is left who must hear it */
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        alone &=
            other == NULL || other->phase == KEEPER_ENDING || other->number != cluster->own.number;
    }
    uint64_t since_ms = now_ms - cluster->began_ms;
    bool ends = since_ms >= (alone ? DDPI_CLUSTER_LINGER_MS : DDPI_CLUSTER_END_MS);
    return (struct ddpi_cluster_step){.action = ends ? CLUSTER_END : CLUSTER_NONE};
}

static struct ddpi_cluster_step step_promised(struct ddpi_cluster *cluster, uint64_t now_ms)
{
    struct ddpi_keeper_status *own = &cluster->own;
    bool heard = false;
    if (cluster->had_quorum)
        own->phase = KEEPER_MEMBER;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        if (other == NULL)
            continue;
        heard = true;
        if (other->number != own->number)
            continue;
        if (!cluster->started)
            return start(cluster, own->number, KEEPER_PROMISED, now_ms);
        if (other->phase == KEEPER_MEMBER) /* it has a quorum, of which this one may be half */
            cluster->began_ms = now_ms;
    }
    if (heard && own->phase == KEEPER_PROMISED &&
        now_ms - cluster->began_ms >= DDPI_CLUSTER_PROMISE_MS)
        return wipe("its etcd had no quorum within 10 s");
    return (struct ddpi_cluster_step){CLUSTER_NONE};
}

/* Whether the keeper of machine @i is one that etcd is to take in. One of another job would make
 * the store that job's. */
static bool is_missed(const struct ddpi_cluster *cluster, unsigned i,
                      const struct ddpi_keeper_status *other)
{
    return other->phase == KEEPER_EMPTY && cluster->own.admitted[i] != other->life &&
           (other->job[0] == '\0' || strcmp(other->job, ddpi_cluster_job(cluster)) == 0);
}

static struct ddpi_cluster_step step_member(struct ddpi_cluster *cluster, uint64_t now_ms)
{
    struct ddpi_keeper_status *own = &cluster->own;
    bool may_replace = own->leads && !cluster->replacing && now_ms >= cluster->again_ms &&
                       now_ms - cluster->leads_ms >= 2 * DDPI_CLUSTER_FRESH_MS;
    unsigned elsewhere = 0, empty = 0; /* other machines that are not of this cluster any more */
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *other = heard_of(cluster, i, now_ms);
        if (other == NULL)
            continue;
        if (may_replace && is_missed(cluster, i, other)) {
            cluster->replacing = true;
            return (struct ddpi_cluster_step){
                .action = CLUSTER_REPLACE, .machine = i, .life = other->life};
        }
        empty += other->phase == KEEPER_EMPTY;
        if (other->number != 0 && other->number != own->number)
            elsewhere += other->knows_leader ? 2 : 1;
        if (other->leads && other->number != own->number && !own->leads)
            return wipe("another cluster has a leader"); /* etcd may have joined that one */
    }
    /* Two that are empty found another one soon. */
    if (!own->knows_leader && elsewhere > 0 && elsewhere + empty > 1)
        return wipe("the other machines are not of its cluster any more");
    if (!cluster->had_quorum && now_ms - cluster->began_ms >= DDPI_CLUSTER_JOIN_MS)
        return wipe("its etcd, a new member, had no quorum within 60 s");
    return (struct ddpi_cluster_step){CLUSTER_NONE};
}

struct ddpi_cluster_step ddpi_cluster_step(struct ddpi_cluster *cluster, uint64_t random,
                                           uint64_t now_ms)
{
    if (now_ms - cluster->stepped_ms > DDPI_CLUSTER_FRESH_MS) /* this keeper was stopped */
        cluster->began_ms = cluster->led_ms = now_ms;
    cluster->stepped_ms = now_ms;
    if (cluster->own.phase == KEEPER_EMPTY)
        return step_empty(cluster, random, now_ms);
    if (hears_the_end(cluster))
        ddpi_cluster_over(cluster, now_ms);
    if (cluster->own.phase == KEEPER_ENDING)
        return step_ending(cluster, now_ms);
    if (cluster->own.phase == KEEPER_PROMISED)
        return step_promised(cluster, now_ms);
    return step_member(cluster, now_ms);
}
