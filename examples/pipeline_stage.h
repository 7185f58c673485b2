/*
 * pipeline_stage.h - one stage of a pipeline: the hidden layer (stage 0) or the class layer (stage
 * 1) of the network, on a rank of its own. pipeline.c and hybrid.c use it.
 *
 * A batch is cut into micro-batches, so that both stages work at the same time. Stage 0 sends the
 * hidden units of a micro-batch forward, stage 1 sends their gradients back. The schedule is 1F1B
 * (one forward, one backward; PipeDream, Narayanan and others, 2019), shown with 4 micro-batches:
 *
 *     stage 0   F0 F1    B0 F2 B1 F3 B2    B3
 *     stage 1      F0 B0 F1 B1 F2 B2 F3 B3
 *
 * A micro-batch that has gone forward goes backward as soon as it can, so a stage keeps the values
 * of at most STAGES micro-batches, however many there are. The gradients are added up over all of
 * them, then the weights change: the result is that of the whole batch.
 */
#ifndef EXAMPLES_PIPELINE_STAGE_H
#define EXAMPLES_PIPELINE_STAGE_H

#include "mlp_layers.h"

enum { STAGES = 2, MICRO_BATCHES = 4 };

/* What a stage keeps of a micro-batch between its forward and its backward pass. */
struct slot {
    size_t images;
    float *pixels;             /* input of stage 0 */
    float *units, *unit_grads; /* hidden units: output of stage 0, input of stage 1 */
    float *scores;             /* output of stage 1 */
    uint8_t *labels;
    ddp_request *sent; /* the message of this micro-batch that is under way, or NULL */
};

struct stage {
    struct trainer *trainer; /* not owned */
    ddp_comm *pipeline;      /* not owned; its ranks are the stages */
    ddp_comm *tensor;        /* not owned; the ranks that divide this layer. NULL: it is whole */
    uint32_t index;          /* of this stage */
    struct span units;       /* the hidden units of this rank */
    struct linear layer;
    struct slot slots[STAGES];
    struct outcome outcome; /* of the last stage_run(), on the last stage; else 0 */
};

/* The weights are this stage's part of the trainer's model. Each call of stage_run() has at most
 * @most_images. */
void stage_open(struct stage *stage, struct trainer *trainer, ddp_comm *pipeline, ddp_comm *tensor,
                size_t most_images);
void stage_close(struct stage *stage);

/* Add the gradients of the images in @span to the layer's. All stages call it with the same. */
void stage_run(struct stage *stage, struct span span);

/* Put the parts of all ranks together in the trainer's model, on each rank. Where several ranks
 * have the same part, one of them says that it @contributes. */
void stage_assemble(struct stage *stage, bool contributes);

#endif
