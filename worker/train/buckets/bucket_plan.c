/*
 * bucket_plan.c - see bucket_plan.h. Works in two passes: the first numbers the buckets, the second
 * lays them out one after the other.
 */
#include "bucket_plan.h"

#include "mem.h"

#include <string.h>

enum { NONE = UINT32_MAX };

/* The first pass: buckets are numbered as they are opened. */
struct assignment {
    const struct ddpi_plan_parameter *parameters;
    const uint64_t *limits;
    uint32_t nlimits;
    uint32_t open[DDPI_PLAN_KEYS];     /* the open bucket, or NONE */
    uint32_t limit_at[DDPI_PLAN_KEYS]; /* place in the list of limits */
    uint64_t weight[DDPI_PLAN_KEYS];   /* of the open bucket */
    uint32_t *opened;                  /* by parameter: its bucket */
    uint32_t *place;                   /* by bucket as opened: where it comes in the plan */
    uint32_t nopened, nclosed;
};

static void assign_parameter(struct assignment *assignment, uint32_t parameter)
{
    uint32_t key = assignment->parameters[parameter].key;
    if (assignment->open[key] == NONE) {
        assignment->weight[key] = 0;
        assignment->place[assignment->nopened] = NONE;
        assignment->open[key] = assignment->nopened++;
    }
    assignment->opened[parameter] = assignment->open[key];
    uint64_t sum = assignment->weight[key] + assignment->parameters[parameter].weight;
    assignment->weight[key] = sum < assignment->weight[key] ? UINT64_MAX : sum;
    if (assignment->weight[key] < assignment->limits[assignment->limit_at[key]])
        return;
    assignment->place[assignment->open[key]] = assignment->nclosed++;
    assignment->open[key] = NONE;
    if (assignment->limit_at[key] + 1 < assignment->nlimits)
        assignment->limit_at[key]++;
}

static void place_buckets(struct assignment *assignment, bool reverse)
{
    for (uint32_t bucket = 0; bucket < assignment->nopened; bucket++)
        if (reverse)
            assignment->place[bucket] = assignment->nopened - 1 - bucket;
        else if (assignment->place[bucket] == NONE)
            assignment->place[bucket] = assignment->nclosed++;
}

/* Parameters keep their order within a bucket. */
static void lay_out(const struct assignment *assignment, const uint32_t *order,
                    struct ddpi_bucket_plan *plan)
{
    uint32_t begin = 0;
    plan->nbuckets = assignment->nopened;
    memset(plan->ends, 0, plan->nparameters * sizeof *plan->ends);
    for (uint32_t i = 0; i < plan->nparameters; i++) {
        plan->bucket_of[i] = assignment->place[assignment->opened[i]];
        plan->ends[plan->bucket_of[i]]++;
    }
    for (uint32_t bucket = 0; bucket < plan->nbuckets; bucket++) {
        uint32_t size = plan->ends[bucket];
        plan->ends[bucket] = begin; /* the second pass moves it to the end */
        begin += size;
    }
    for (uint32_t i = 0; i < plan->nparameters; i++) {
        uint32_t parameter = order != NULL ? order[i] : i;
        plan->order[plan->ends[plan->bucket_of[parameter]]++] = parameter;
    }
}

static bool allocate(struct ddpi_bucket_plan *plan, struct assignment *assignment)
{
    uint32_t count = plan->nparameters != 0 ? plan->nparameters : 1;
    plan->order = ddpi_calloc(count, sizeof *plan->order);
    plan->ends = ddpi_calloc(count, sizeof *plan->ends);
    plan->bucket_of = ddpi_calloc(count, sizeof *plan->bucket_of);
    assignment->opened = ddpi_calloc(count, sizeof *assignment->opened);
    assignment->place = ddpi_calloc(count, sizeof *assignment->place);
    return plan->order != NULL && plan->ends != NULL && plan->bucket_of != NULL &&
           assignment->opened != NULL && assignment->place != NULL;
}

bool ddpi_bucket_plan_make(const struct ddpi_plan_parameter *parameters, const uint32_t *order,
                           uint32_t count, const uint64_t *limits, uint32_t nlimits,
                           struct ddpi_bucket_plan *ret)
{
    struct assignment assignment = {.parameters = parameters, .limits = limits, .nlimits = nlimits};
    struct ddpi_bucket_plan plan = {.nparameters = count};
    for (uint32_t key = 0; key < DDPI_PLAN_KEYS; key++)
        assignment.open[key] = NONE;
    bool made = allocate(&plan, &assignment);
    if (made) {
        for (uint32_t i = 0; i < count; i++)
            assign_parameter(&assignment, order != NULL ? order[i] : i);
        place_buckets(&assignment, order == NULL);
        lay_out(&assignment, order, &plan);
        *ret = plan;
    } else {
        ddpi_bucket_plan_free(&plan);
    }
    ddpi_free(assignment.opened);
    ddpi_free(assignment.place);
    return made;
}

void ddpi_bucket_plan_free(struct ddpi_bucket_plan *plan)
{
    ddpi_free(plan->order);
    ddpi_free(plan->ends);
    ddpi_free(plan->bucket_of);
    *plan = (struct ddpi_bucket_plan){0};
}

bool ddpi_plan_order_is_complete(const uint32_t *order, uint32_t count, uint8_t *seen)
{
    memset(seen, 0, count);
    for (uint32_t i = 0; i < count; i++) {
        if (order[i] >= count || seen[order[i]])
            return false;
        seen[order[i]] = 1;
    }
    return true;
}
