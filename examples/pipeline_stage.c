/*
 * pipeline_stage.c - see pipeline_stage.h.
 *
 * Messages are sent by requests: two stages may send to each other at the same time, and a blocking
 * ddp_send() on both sides could wait for ever. A request moves while its stage waits to receive.
 */
#include "pipeline_stage.h"

#include <stdlib.h>

enum { FIRST = 0, LAST = STAGES - 1 };

/* The number of hidden units of this rank. */
static size_t stage_units(const struct stage *stage)
{
    return stage->units.end - stage->units.begin;
}

/* ---- messages ---- */

static void slot_start_send(struct stage *stage, struct slot *slot, const float *values,
                            uint32_t peer)
{
    struct ddp_error err;
    struct ddp_operation send = {.size = sizeof send,
                                 .kind = DDP_KIND_SEND,
                                 .send = values,
                                 .count = slot->images * stage_units(stage),
                                 .dtype = DDP_FLOAT32,
                                 .peer = peer};
    trainer_check(stage->trainer, ddp_start(stage->pipeline, &send, &slot->sent, &err), &err);
}

static void slot_finish_send(struct stage *stage, struct slot *slot)
{
    struct ddp_error err;
    if (slot->sent == NULL)
        return;
    trainer_check(stage->trainer, ddp_request_wait(slot->sent, 0, NULL, &err), &err);
    ddp_request_free(slot->sent);
    slot->sent = NULL;
}

static void slot_receive(struct stage *stage, struct slot *slot, float *values, uint32_t peer)
{
    struct ddp_error err;
    trainer_check(stage->trainer,
                  ddp_recv(stage->pipeline, values, slot->images * stage_units(stage), DDP_FLOAT32,
                           peer, NULL, &err),
                  &err);
}

/* ---- a micro-batch ---- */

static void hidden_forward(struct stage *stage, struct slot *slot, struct span span)
{
    span_pixels(stage->trainer, span, slot->pixels);
    linear_multiply(&stage->layer, slot->pixels, slot->images, slot->units);
    linear_add_bias(&stage->layer, slot->images, slot->units);
    relu_forward(slot->units, slot->images * stage_units(stage));
    slot_start_send(stage, slot, slot->units, LAST);
}

static void hidden_backward(struct stage *stage, struct slot *slot)
{
    slot_receive(stage, slot, slot->unit_grads, LAST);
    relu_backward(slot->units, slot->unit_grads, slot->images * stage_units(stage));
    linear_backward(&stage->layer, slot->pixels, slot->unit_grads, slot->images, NULL);
}

static void classes_forward(struct stage *stage, struct slot *slot, struct span span)
{
    struct ddp_error err;
    span_labels(stage->trainer, span, slot->labels);
    slot_receive(stage, slot, slot->units, FIRST);
    linear_multiply(&stage->layer, slot->units, slot->images, slot->scores);
    if (stage->tensor != NULL) /* each rank has the share of its units: see tensor_parallel.c */
        trainer_check(stage->trainer,
                      ddp_all_reduce(stage->tensor, slot->scores, slot->scores,
                                     slot->images * MLP_CLASSES, DDP_FLOAT32, DDP_SUM, NULL, &err),
                      &err);
    linear_add_bias(&stage->layer, slot->images, slot->scores);
    softmax_loss(slot->scores, slot->labels, slot->images, &stage->outcome);
}

static void classes_backward(struct stage *stage, struct slot *slot)
{
    linear_backward(&stage->layer, slot->units, slot->scores, slot->images, slot->unit_grads);
    slot_start_send(stage, slot, slot->unit_grads, FIRST);
}

/* ---- the schedule ---- */

static void forward(struct stage *stage, size_t number, struct span span)
{
    struct slot *slot = &stage->slots[number % STAGES];
    slot_finish_send(stage, slot); /* of the micro-batch that had the slot before */
    slot->images = span.end - span.begin;
    if (stage->index == FIRST)
        hidden_forward(stage, slot, span);
    else
        classes_forward(stage, slot, span);
}

static void backward(struct stage *stage, size_t number)
{
    struct slot *slot = &stage->slots[number % STAGES];
    if (stage->index == FIRST)
        hidden_backward(stage, slot);
    else
        classes_backward(stage, slot);
}

void stage_run(struct stage *stage, struct span span)
{
    size_t ahead = LAST - stage->index; /* forward passes before the first backward pass */
    stage->outcome = (struct outcome){0};
    for (size_t i = 0; i < MICRO_BATCHES + ahead; i++) {
        if (i < MICRO_BATCHES)
            forward(stage, i, span_part(span, i, MICRO_BATCHES));
        if (i >= ahead)
            backward(stage, i - ahead);
    }
    for (size_t i = 0; i < STAGES; i++)
        slot_finish_send(stage, &stage->slots[i]);
}

/* ---- beginning and end ---- */

static void slot_open(struct slot *slot, size_t images, size_t units)
{
    *slot = (struct slot){.pixels = allocate(images * MLP_INPUTS, sizeof(float)),
                          .units = allocate(images * units, sizeof(float)),
                          .unit_grads = allocate(images * units, sizeof(float)),
                          .scores = allocate(images * MLP_CLASSES, sizeof(float)),
                          .labels = allocate(images, 1)};
}

static void slot_close(struct slot *slot)
{
    free(slot->pixels);
    free(slot->units);
    free(slot->unit_grads);
    free(slot->scores);
    free(slot->labels);
}

void stage_open(struct stage *stage, struct trainer *trainer, ddp_comm *pipeline, ddp_comm *tensor,
                size_t most_images)
{
    struct span all = {0, MLP_HIDDEN};
    *stage = (struct stage){.trainer = trainer,
                            .pipeline = pipeline,
                            .tensor = tensor,
                            .index = ddp_comm_rank(pipeline),
                            .units = all};
    if (tensor != NULL)
        stage->units = span_part(all, ddp_comm_rank(tensor), ddp_comm_world_size(tensor));
    if (stage->index == FIRST)
        hidden_open(&stage->layer, trainer->model, stage->units);
    else
        classes_open(&stage->layer, trainer->model, stage->units);
    for (size_t i = 0; i < STAGES; i++)
        slot_open(&stage->slots[i], (most_images + MICRO_BATCHES - 1) / MICRO_BATCHES,
                  stage_units(stage));
}

void stage_close(struct stage *stage)
{
    for (size_t i = 0; i < STAGES; i++)
        slot_close(&stage->slots[i]);
    linear_close(&stage->layer);
}

void stage_assemble(struct stage *stage, bool contributes)
{
    struct ddp_error err;
    struct mlp *model = stage->trainer->model;
    *model = (struct mlp){0};
    if (contributes && stage->index == FIRST)
        hidden_store(&stage->layer, model, stage->units);
    else if (contributes)
        classes_store(&stage->layer, model, stage->units);
    if (stage->units.begin != 0) /* all ranks that divide the class layer have its bias */
        for (size_t c = 0; c < MLP_CLASSES; c++)
            model->class_bias[c] = 0.0F;
    trainer_check(stage->trainer,
                  ddp_all_reduce(stage->trainer->comm, model, model, MLP_FLOATS, DDP_FLOAT32,
                                 DDP_SUM, NULL, &err),
                  &err);
}
