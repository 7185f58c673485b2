/*
 * gradients.c - measures a reducer: how much of the reduction a backward pass hides, what a call
 * costs, and what buckets save. The method is in docs/benchmarks/gradients.md.
 */
#include "gradient_ranks.h"
#include "perf.h"

#include <inttypes.h>

static const uint32_t worlds[] = {2, 4};
static const uint32_t backwards_ms[] = {50, 200, 800};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void show_row(struct perf *perf, const struct gradient_job *job,
                     const struct gradient_times *times)
{
    double exposed = larger(times->step - times->compute, 0);
    printf("| %u | %s | %.1f | %.1f | %.1f | %.2f | %.1f | %.2f | %.2f | %" PRIu64 " |\n",
           job->ranks, job->views ? "the reducer's" : "the program's", times->compute / 1e3,
           times->reduce / 1e3, times->step / 1e3,
           times->step / larger(times->compute, times->reduce), exposed / 1e3,
           exposed / times->reduce, times->mark, times->buckets);
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"gradients\",\"contender\":\"ddprun\",\"ranks\":%u,\"views\":%d,"
                "\"backward_ms\":%u,\"compute_ms\":%.3f,\"reduce_ms\":%.3f,\"step_ms\":%.3f,"
                "\"mark_us\":%.3f}\n",
                job->ranks, job->views, job->backward_ms, times->compute / 1e3, times->reduce / 1e3,
                times->step / 1e3, times->mark);
}

static bool measure_overlap(struct perf *perf, struct ddp_error *err)
{
    printf("# ddp-bench gradients: the 161 gradients of ResNet-50, 102 MB of float32\n\n"
           "| ranks | memory | backward alone, ms | reduction alone, ms | step, ms | x the slower "
           "| exposed, ms | of the reduction | a mark, us | buckets |\n"
           "|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (int views = 0; views < 2; views++)
            for (size_t k = 0; k < sizeof backwards_ms / sizeof *backwards_ms; k++) {
                struct gradient_job job = {.ranks = worlds[i],
                                           .steps = perf->options.runs / 3 + 1,
                                           .backward_ms = backwards_ms[k],
                                           .views = views};
                struct gradient_times times;
                if (gradient_ranks_run(&job, &times, err) != DDP_OK)
                    return false;
                show_row(perf, &job, &times);
            }
    return true;
}

static bool measure_many(struct perf *perf, struct ddp_error *err)
{
    printf("\n| ranks | %d gradients of 1 KiB: a step, ms | an all-reduce for each, ms | x "
           "| a mark, us |\n|---|---|---|---|---|\n",
           MANY_GRADIENTS);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct many_times times;
        if (gradient_ranks_run_many(worlds[i], perf->options.runs, &times, err) != DDP_OK)
            return false;
        printf("| %u | %.2f | %.2f | %.1f | %.2f |\n", worlds[i], times.reducer / 1e3,
               times.calls / 1e3, times.calls / times.reducer, times.mark);
        if (perf->json != NULL)
            fprintf(perf->json,
                    "{\"benchmark\":\"gradients-many\",\"ranks\":%u,\"step_ms\":%.3f,"
                    "\"calls_ms\":%.3f,\"mark_us\":%.3f}\n",
                    worlds[i], times.reducer / 1e3, times.calls / 1e3, times.mark);
    }
    return true;
}

bool perf_gradients(struct perf *perf, struct ddp_error *err)
{
    return measure_overlap(perf, err) && measure_many(perf, err);
}
