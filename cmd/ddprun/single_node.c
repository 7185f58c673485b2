/*
 * single_node.c - steps the round machine, in the next turn of the loop after its member has
 * published something, and passes a seat on when the step is over: neither calls the other from
 * within its own call. Owns the machine. What cannot be shown for lack of memory is left out.
 */
#include "single_node.h"

#include "clock.h"
#include "error.h"
#include "exit_codes.h"
#include "mem.h"
#include "proof.h"
#include "round_names.h"
#include "round_record.h"

#include <stdio.h>
#include <string.h>

enum { THE_MEMBER = 1, KEY_SIZE = sizeof DDPI_ROUND_PREFIX + DDPI_JOB_MAX + sizeof "/member/1" };

/* ---- what users see ---- */

/* Show @what, "state" for example, as @node->record has it, if it is whole. */
static void show_record(struct single_node *node, const char *what, ddp_status status)
{
    char key[KEY_SIZE];
    snprintf(key, sizeof key, DDPI_ROUND_PREFIX "%s/%s", node->job, what);
    if (status == DDP_OK)
        node->show(node->ctx, key, ddpi_buf_head(&node->record), ddpi_buf_len(&node->record));
    ddpi_buf_consume(&node->record, ddpi_buf_len(&node->record));
}

static void show_state(struct single_node *node)
{
    struct ddpi_rounds_summary summary;
    ddpi_rounds_summary(node->rounds, &summary);
    show_record(node, "state", ddpi_round_summary_put(&node->record, &summary, NULL));
}

void single_node_describe(struct single_node *node, const char *text)
{
    if (node->job != NULL && node->membership != NULL &&
        ddpi_buf_append(&node->record, text, strlen(text)))
        show_record(node, "node/1", DDP_OK);
}

static void step_soon(struct single_node *node);

/* ---- what users ask for ---- */

void single_node_asked(struct single_node *node, struct ddpi_bytes key, bool set)
{
    static const char drain[] = "want/drain/";
    char text[KEY_SIZE + sizeof drain + DDP_ROUND_NAME_SIZE], prefix[KEY_SIZE];
    if (node->job == NULL || node->membership == NULL || key.len >= sizeof text)
        return;
    int len = snprintf(prefix, sizeof prefix, DDPI_ROUND_PREFIX "%s/", node->job);
    snprintf(text, sizeof text, "%.*s", (int)key.len, (const char *)key.data);
    if (strncmp(text, prefix, (size_t)len) != 0)
        return;
    const char *what = text + len;
    if (strcmp(what, "want/stop") == 0)
        ddpi_rounds_wish(node->rounds, &(struct ddpi_rounds_wish){.stop = set});
    else if (strncmp(what, drain, sizeof drain - 1) == 0)
        (void)!ddpi_rounds_drain(node->rounds, what + sizeof drain - 1, set);
    step_soon(node);
}

/* ---- the machine ---- */

static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    struct single_node *node = ctx;
    return node->begin(node->ctx, generation, seat, err);
}

static void on_seat(void *ctx, uint64_t member, const struct ddp_round_seat *seat)
{
    struct single_node *node = ctx;
    (void)member;
    node->seat = *seat;
    node->seated = true;
}

static void on_changed(void *ctx)
{
    struct single_node *node = ctx;
    node->changed = true;
}

static void on_later(uv_timer_t *timer)
{
    step_soon(timer->data);
}

static void step_machine(struct single_node *node)
{
    uint64_t now_ms = ddpi_monotonic_ms();
    ddpi_rounds_step(node->rounds, now_ms);
    uint64_t deadline_ms = ddpi_rounds_deadline(node->rounds);
    if (deadline_ms == UINT64_MAX)
        uv_timer_stop(&node->later);
    else
        uv_timer_start(&node->later, on_later, deadline_ms > now_ms ? deadline_ms - now_ms : 0, 0);
}

static void on_soon(uv_idle_t *idle)
{
    struct single_node *node = idle->data;
    uv_idle_stop(idle);
    step_machine(node);
    if (node->changed && node->job != NULL)
        show_state(node);
    if (node->seated && node->job != NULL)
        show_record(node, "seat/1", ddpi_round_seat_put(&node->record, &node->seat, NULL));
    node->changed = false;
    if (!node->seated)
        return;
    node->seated = false;
    const struct ddp_round_seat seat = node->seat;
    membership_seat(node->membership, &seat);
}

static void step_soon(struct single_node *node)
{
    uv_idle_start(&node->soon, on_soon);
}

ddp_status single_node_init(struct single_node *node, uv_loop_t *loop,
                            struct membership *membership, struct ddp_error *err)
{
    const struct ddpi_rounds_hooks hooks = {
        .ctx = node, .begin = on_begin, .seat = on_seat, .changed = on_changed};
    node->membership = membership;
    ddpi_buf_init(&node->record, DDPI_ROUND_RECORD_MAX);
    uv_idle_init(loop, &node->soon);
    uv_timer_init(loop, &node->later);
    node->soon.data = node->later.data = node;
    node->rounds = ddpi_rounds_create(&hooks, 0);
    return node->rounds != NULL ? DDP_OK : ddpi_error_nomem(err, sizeof *node);
}

void single_node_publish(struct single_node *node, const struct ddp_round_member *says)
{
    if (ddpi_rounds_member(node->rounds, THE_MEMBER, says) != DDP_OK) {
        node->seat = (struct ddp_round_seat){
            .order = DDP_ROUND_END, .exit_code = EXIT_CONFIG, .text = "out of memory"};
        node->seated = true;
    }
    if (node->job != NULL)
        show_record(node, "member/1", ddpi_round_member_put(&node->record, says, NULL));
    step_soon(node);
}

void single_node_close(struct single_node *node)
{
    if (node->membership == NULL)
        return; /* never initialised */
    ddpi_rounds_destroy(node->rounds);
    node->rounds = NULL;
    node->membership = NULL;
    ddpi_buf_finish(&node->record);
    uv_close((uv_handle_t *)&node->soon, NULL);
    uv_close((uv_handle_t *)&node->later, NULL);
}
