/*
 * loss_scaler.c - <ddprun/ddp_scaler.h>: when the scale of a loss changes, and its state as bytes.
 * Pure: it knows nothing of gradients or of other ranks. Owns nothing.
 */
#include <ddprun/ddp_scaler.h>

#include "buf.h"
#include "error.h"

#include <endian.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    STATE_MAGIC = 0x53504444, /* "DDPS" */
    STATE_VERSION = 1,
    STATE_STATIC = 1, /* of the flags */
};

static const struct {
    float max_scale;
} presets[] = {
    [DDP_SCALER_TORCH] = {.max_scale = 0},
    [DDP_SCALER_APEX] = {.max_scale = 16777216},
};

static ddp_status check_size(const struct ddp_loss_scaler *scaler, struct ddp_error *err)
{
    if (scaler->size == sizeof *scaler)
        return DDP_OK;
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "the size of the ddp_loss_scaler is %zu, not %zu: set it to sizeof(struct ddp_loss_scaler)",
        scaler->size, sizeof *scaler);
}

ddp_status ddp_loss_scaler_init(struct ddp_loss_scaler *scaler, ddp_scaler_preset preset,
                                struct ddp_error *err)
{
    ddp_status status = check_size(scaler, err);
    if (status != DDP_OK)
        return status;
    if ((size_t)preset >= sizeof presets / sizeof *presets)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not a preset of loss scalers",
                              (int)preset);
    *scaler = (struct ddp_loss_scaler){.size = sizeof *scaler,
                                       .scale = 65536,
                                       .max_scale = presets[preset].max_scale,
                                       .growth_factor = 2,
                                       .backoff_factor = 0.5,
                                       .growth_interval = 2000};
    return DDP_OK;
}

/* ---- what is allowed ---- */

/* NaN is in no range. */
static bool is_positive(double value)
{
    return value > 0 && value < INFINITY;
}

static bool is_limit(double value)
{
    return value == 0 || is_positive(value);
}

static ddp_status check_factors(const struct ddp_loss_scaler *scaler, struct ddp_error *err)
{
    if (!(scaler->growth_factor >= 1 && scaler->growth_factor < INFINITY))
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "growth_factor of the loss scaler is %g: it must be at least 1, and finite",
            scaler->growth_factor);
    if (!(scaler->backoff_factor > 0 && scaler->backoff_factor < 1))
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "backoff_factor of the loss scaler is %g: it must be above 0 and below 1",
            scaler->backoff_factor);
    if (scaler->growth_interval == 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "growth_interval of the loss scaler is 0: it must be at least 1");
    return DDP_OK;
}

static ddp_status check_scale(const struct ddp_loss_scaler *scaler, struct ddp_error *err)
{
    bool is_bounded = scaler->max_scale != 0;
    if (!is_limit(scaler->min_scale) || !is_limit(scaler->max_scale) ||
        (is_bounded && scaler->min_scale > scaler->max_scale))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "min_scale %g and max_scale %g of the loss scaler are no limits: "
                              "they must be finite and in order, or 0",
                              (double)scaler->min_scale, (double)scaler->max_scale);
    if (!is_positive(scaler->scale))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the scale of the loss scaler is %g: it must be above 0, and finite",
                              (double)scaler->scale);
    if (scaler->is_static == 0 &&
        (scaler->scale < scaler->min_scale || (is_bounded && scaler->scale > scaler->max_scale)))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the scale of the loss scaler is %g, outside of its limits %g to %g",
                              (double)scaler->scale, (double)scaler->min_scale,
                              (double)scaler->max_scale);
    return DDP_OK;
}

ddp_status ddp_loss_scaler_check(const struct ddp_loss_scaler *scaler, struct ddp_error *err)
{
    ddp_status status = check_size(scaler, err);
    if (status == DDP_OK)
        status = check_factors(scaler, err);
    if (status == DDP_OK)
        status = check_scale(scaler, err);
    if (status != DDP_OK)
        return status;
    if (scaler->is_static > 1)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "is_static of the loss scaler is %u: it must be 0 or 1",
                              scaler->is_static);
    if (scaler->is_static == 0 && scaler->good_steps >= scaler->growth_interval)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "good_steps of the loss scaler is %llu, but its growth_interval %llu: it must be less",
            (unsigned long long)scaler->good_steps, (unsigned long long)scaler->growth_interval);
    return DDP_OK;
}

/* ---- a step ---- */

static void lower_scale(struct ddp_loss_scaler *scaler)
{
    float lower = (float)((double)scaler->scale * scaler->backoff_factor);
    if (lower < scaler->min_scale)
        lower = scaler->min_scale;
    if (lower > 0)
        scaler->scale = lower;
}

static void raise_scale(struct ddp_loss_scaler *scaler)
{
    float higher = (float)((double)scaler->scale * scaler->growth_factor);
    if (scaler->max_scale != 0 && higher > scaler->max_scale)
        higher = scaler->max_scale;
    if (isfinite(higher))
        scaler->scale = higher;
}

int ddp_loss_scaler_update(struct ddp_loss_scaler *scaler, int found_non_finite)
{
    if (scaler->is_static != 0) {
        scaler->good_steps++;
        return 1;
    }
    if (found_non_finite != 0) {
        lower_scale(scaler);
        scaler->good_steps = 0;
        return 0;
    }
    if (++scaler->good_steps >= scaler->growth_interval) {
        raise_scale(scaler);
        scaler->good_steps = 0;
    }
    return 1;
}

float ddp_loss_scaler_inverse(const struct ddp_loss_scaler *scaler)
{
    return (float)(1.0 / (double)scaler->scale);
}

/* ---- state ---- */

struct wire_state {
    uint32_t magic;
    uint16_t version;
    uint16_t flags;
    uint32_t scale, min_scale, max_scale;
    uint32_t reserved;
    uint64_t growth_factor, backoff_factor;
    uint64_t growth_interval, good_steps;
};
_Static_assert(sizeof(struct wire_state) == DDP_LOSS_SCALER_STATE, "the state has no padding");

static uint32_t wire_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return htole32(bits);
}

static uint64_t wire_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return htole64(bits);
}

static float read_float(struct ddpi_rd *rd)
{
    uint32_t bits = ddpi_rd_u32(rd);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double read_double(struct ddpi_rd *rd)
{
    uint64_t bits = ddpi_rd_u64(rd);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void ddp_loss_scaler_save(const struct ddp_loss_scaler *scaler,
                          uint8_t state[DDP_LOSS_SCALER_STATE])
{
    struct wire_state wire = {.magic = htole32(STATE_MAGIC),
                              .version = htole16(STATE_VERSION),
                              .flags = htole16(scaler->is_static != 0 ? STATE_STATIC : 0),
                              .scale = wire_float(scaler->scale),
                              .min_scale = wire_float(scaler->min_scale),
                              .max_scale = wire_float(scaler->max_scale),
                              .growth_factor = wire_double(scaler->growth_factor),
                              .backoff_factor = wire_double(scaler->backoff_factor),
                              .growth_interval = htole64(scaler->growth_interval),
                              .good_steps = htole64(scaler->good_steps)};
    memcpy(state, &wire, sizeof wire);
}

ddp_status ddp_loss_scaler_load(struct ddp_loss_scaler *scaler, const void *state, size_t len,
                                struct ddp_error *err)
{
    ddp_status status = check_size(scaler, err);
    if (status != DDP_OK)
        return status;
    struct ddpi_rd rd = ddpi_rd_of(state, len);
    uint32_t magic = ddpi_rd_u32(&rd), version = ddpi_rd_u16(&rd), flags = ddpi_rd_u16(&rd);
    if (len != DDP_LOSS_SCALER_STATE || magic != STATE_MAGIC)
        return ddpi_error_set(err, DDP_E_INVALID, "these %zu bytes are no state of a loss scaler",
                              len);
    struct ddp_loss_scaler loaded = {.size = sizeof loaded, .is_static = flags & STATE_STATIC};
    loaded.scale = read_float(&rd);
    loaded.min_scale = read_float(&rd);
    loaded.max_scale = read_float(&rd);
    uint32_t reserved = ddpi_rd_u32(&rd);
    loaded.growth_factor = read_double(&rd);
    loaded.backoff_factor = read_double(&rd);
    loaded.growth_interval = ddpi_rd_u64(&rd);
    loaded.good_steps = ddpi_rd_u64(&rd);
    if (version != STATE_VERSION || flags > STATE_STATIC || reserved != 0)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "the state of the loss scaler has version %u, flags %u: this library reads version %d",
            version, flags, STATE_VERSION);
    status = ddp_loss_scaler_check(&loaded, err);
    if (status == DDP_OK)
        *scaler = loaded;
    return status;
}
