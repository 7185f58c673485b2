/*
 * bucket_pass.c - see bucket_pass.h.
 */
#include "bucket_pass.h"

#include "mem.h"

#include <string.h>

bool ddpi_bucket_pass_init(struct ddpi_bucket_pass *pass, const struct ddpi_bucket_plan *plan)
{
    uint32_t count = plan->nparameters != 0 ? plan->nparameters : 1;
    *pass = (struct ddpi_bucket_pass){
        .pending = ddpi_calloc(count, sizeof *pass->pending),
        .ready = ddpi_calloc(count, sizeof *pass->ready),
        .arrival = ddpi_calloc(count, sizeof *pass->arrival),
    };
    if (pass->pending == NULL || pass->ready == NULL || pass->arrival == NULL) {
        ddpi_bucket_pass_free(pass);
        return false;
    }
    ddpi_bucket_pass_begin(pass, plan);
    return true;
}

void ddpi_bucket_pass_free(struct ddpi_bucket_pass *pass)
{
    ddpi_free(pass->pending);
    ddpi_free(pass->ready);
    ddpi_free(pass->arrival);
    *pass = (struct ddpi_bucket_pass){0};
}

void ddpi_bucket_pass_begin(struct ddpi_bucket_pass *pass, const struct ddpi_bucket_plan *plan)
{
    pass->plan = plan;
    pass->arrived = pass->next = 0;
    memset(pass->ready, 0, plan->nparameters);
    for (uint32_t bucket = 0; bucket < plan->nbuckets; bucket++)
        pass->pending[bucket] = ddpi_bucket_size(plan, bucket);
}

void ddpi_bucket_pass_mark(struct ddpi_bucket_pass *pass, uint32_t parameter)
{
    pass->ready[parameter] = 1;
    pass->arrival[pass->arrived++] = parameter;
    pass->pending[pass->plan->bucket_of[parameter]]--;
}

bool ddpi_bucket_pass_take(struct ddpi_bucket_pass *pass, uint32_t *ret_bucket)
{
    if (pass->next == pass->plan->nbuckets || pass->pending[pass->next] != 0)
        return false;
    *ret_bucket = pass->next++;
    return true;
}
