/*
 * single_node.c - steps the round machine of this process's own job, never from within what it or
 * its member calls: a seat is told when the machine has finished its step, and the machine steps in
 * the next turn of the loop after its member has said something. Owns the machine.
 */
#include "single_node.h"

#include "clock.h"
#include "error.h"
#include "outcome.h"

enum { THE_MEMBER = 1 };

static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    struct local_job *job = ctx;
    return job->begin(job->ctx, generation, seat, err);
}

static void on_seat(void *ctx, uint64_t member, const struct ddp_round_seat *seat)
{
    struct local_job *job = ctx;
    (void)member;
    job->seat = *seat;
    job->seated = true;
}

static void on_changed(void *ctx)
{
    (void)ctx; /* nobody looks */
}

static void on_soon(uv_idle_t *idle)
{
    struct local_job *job = idle->data;
    uv_idle_stop(idle);
    ddpi_rounds_step(job->rounds, ddpi_now_ms(&ddpi_clock_monotonic));
    if (!job->seated)
        return;
    job->seated = false;
    const struct ddp_round_seat seat = job->seat;
    membership_seat(job->membership, &seat);
}

ddp_status local_job_init(struct local_job *job, uv_loop_t *loop, struct membership *membership,
                          struct ddp_error *err)
{
    const struct ddpi_rounds_hooks hooks = {
        .ctx = job, .begin = on_begin, .seat = on_seat, .changed = on_changed};
    job->membership = membership;
    uv_idle_init(loop, &job->soon);
    job->soon.data = job;
    job->rounds = ddpi_rounds_create(&hooks, 0);
    return job->rounds != NULL ? DDP_OK : ddpi_error_nomem(err, sizeof *job);
}

void local_job_publish(struct local_job *job, const struct ddp_round_member *says)
{
    if (ddpi_rounds_member(job->rounds, THE_MEMBER, says) != DDP_OK) {
        job->seat = (struct ddp_round_seat){
            .order = DDP_ROUND_END, .exit_code = EXIT_CONFIG, .text = "no memory for the job"};
        job->seated = true;
    }
    uv_idle_start(&job->soon, on_soon);
}

void local_job_close(struct local_job *job)
{
    if (job->membership == NULL)
        return; /* it was never begun */
    ddpi_rounds_destroy(job->rounds);
    job->rounds = NULL;
    job->membership = NULL;
    uv_close((uv_handle_t *)&job->soon, NULL);
}
