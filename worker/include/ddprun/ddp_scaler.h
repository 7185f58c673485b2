/*
 * ddprun/ddp_scaler.h - the loss scaler of training in mixed precision. Part of <ddprun/ddp.h>.
 *
 * Small gradients are lost in float16. So the loss is multiplied by a scale before the backward
 * pass, and the gradients by its inverse before the optimizer uses them. The scaler seeks a large
 * scale that does not overflow: an overflow lowers it and skips the optimizer's step; many good
 * steps in a row raise it. A step of a program:
 *
 *   1. the loss times scaler.scale, backward pass
 *   2. the gradients of all ranks are reduced; @non_finite of struct ddp_operation tells whether
 *      the result has an inf or a NaN. These travel through sums, so all ranks get the same answer.
 *   3. float unscale = ddp_loss_scaler_inverse(&scaler);
 *   4. if (ddp_loss_scaler_update(&scaler, non_finite)) the optimizer's step, with gradients times
 *      @unscale
 *
 * If ranks check gradients before they are reduced, or check only a part of them each, they must
 * combine the answers first, or their scales, and then their weights, go apart: ddp_all_reduce() of
 * DDP_UINT8 with DDP_MAX.
 *
 * With gradients accumulated over several passes the scale must stay the same for all passes of a
 * step: update it once, after the last one. One scaler for each loss; if several optimizers share
 * a loss, pass whether the gradients of any of them overflowed.
 *
 * A scaler is memory of the caller: it allocates nothing, needs no call at its end, may be copied,
 * and belongs to one thread at a time. The calls do not block. The rules are those of
 * torch.amp.GradScaler and of Apex's amp.LossScaler.
 */
#ifndef DDPRUN_DDP_SCALER_H
#define DDPRUN_DDP_SCALER_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Set @size to sizeof(struct ddp_loss_scaler), and call ddp_loss_scaler_init(). Then change what
 * should differ from the preset, before the first step.
 */
struct ddp_loss_scaler {
    size_t size;
    float scale;              /* the loss is multiplied by it */
    float min_scale;          /* an overflow does not lower the scale below it; 0: no limit */
    float max_scale;          /* good steps do not raise the scale above it; 0: no limit */
    uint32_t is_static;       /* 1: the scale never changes, and no step is skipped */
    double growth_factor;     /* at least 1 */
    double backoff_factor;    /* above 0, below 1 */
    uint64_t growth_interval; /* so many good steps in a row raise the scale; at least 1 */
    uint64_t good_steps;      /* since the last change of the scale, or the last overflow */
};

typedef enum ddp_scaler_preset {
    DDP_SCALER_TORCH, /* torch.amp.GradScaler: no limits */
    DDP_SCALER_APEX   /* apex.amp: at most 2^24; a program may add a min_scale */
} ddp_scaler_preset;

/**
 * Set all members of @scaler but @size: the scale is 2^16, doubled after 2,000 good steps in a row,
 * halved by an overflow; the limits are those of @preset.
 *
 * DDP_E_INVALID: @size is not sizeof(struct ddp_loss_scaler), or the preset is unknown; @scaler is
 * unchanged.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_loss_scaler_init(struct ddp_loss_scaler *scaler,
                                                       ddp_scaler_preset preset,
                                                       struct ddp_error *err);

/**
 * Check what a program has set: numbers in the ranges that struct ddp_loss_scaler gives them, a
 * scale within its limits, unless it is static, and fewer good steps than raise it. Call it once
 * after changes of members.
 *
 * DDP_E_INVALID: the sentence names the member and its value.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_loss_scaler_check(const struct ddp_loss_scaler *scaler,
                                                        struct ddp_error *err);

/**
 * The end of a step: @found_non_finite (not 0) tells whether the scaled gradients had an inf or a
 * NaN. Changes the scale if it is time. Returns 1 if the optimizer should step, 0 if this step is
 * skipped.
 *
 * - Overflow: the scale times @backoff_factor, but not below @min_scale; the good steps count from
 *   0 again; returns 0. As one difference from PyTorch, the scale never becomes 0, where it would
 *   stay: at the smallest float32 it remains.
 * - Good step number @growth_interval: the scale times @growth_factor, but not above @max_scale;
 *   what would not be finite in float32 is left out; the good steps count from 0 again.
 * - Static: counts good steps, as Apex does, and returns 1 even after an overflow: a program that
 *   wants to skip such a step looks at its flag.
 *
 * Products are computed in float64 and rounded to float32, as PyTorch does.
 */
DDP_API int ddp_loss_scaler_update(struct ddp_loss_scaler *scaler, int found_non_finite);

/**
 * What gradients are multiplied by: 1 / scale, in float64, rounded to float32. Take it before
 * ddp_loss_scaler_update(), which may change the scale. Infinite for a scale below 2^-128.
 */
DDP_API float ddp_loss_scaler_inverse(const struct ddp_loss_scaler *scaler);

/* Bytes of a saved scaler. */
enum { DDP_LOSS_SCALER_STATE = 56 };

/**
 * Write all members but @size to the DDP_LOSS_SCALER_STATE bytes at @state, for a checkpoint. They
 * are the same on all machines.
 */
DDP_API void ddp_loss_scaler_save(const struct ddp_loss_scaler *scaler,
                                  uint8_t state[DDP_LOSS_SCALER_STATE]);

/**
 * Set @scaler, whose @size is set, to what was saved in the @len bytes at @state. These may come
 * from anywhere: they are checked as ddp_loss_scaler_check() does.
 *
 * DDP_E_INVALID: they are no state of a loss scaler, or one that no scaler can have, or @size is
 * not sizeof(struct ddp_loss_scaler); @scaler is unchanged.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_loss_scaler_load(struct ddp_loss_scaler *scaler,
                                                       const void *state, size_t len,
                                                       struct ddp_error *err);

#ifdef __cplusplus
}
#endif

#endif
