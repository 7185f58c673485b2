/*
 * test_loss_scaler.c - the loss scaler: every short sequence of overflows against the rules of
 * PyTorch and of Apex, written down here a second time; a table of Apex's decisions; the limits of
 * float32; and hostile states. tests/interop runs it beside PyTorch's own.
 */
#include "check_main.h"
#include "sample.h"

#include <ddprun/ddp.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { STEPS = 11, SEQUENCES = 1 << STEPS };

static struct ddp_loss_scaler scaler_of(ddp_scaler_preset preset)
{
    struct ddp_loss_scaler scaler = {.size = sizeof scaler};
    ck_assert_int_eq(ddp_loss_scaler_init(&scaler, preset, NULL), DDP_OK);
    ck_assert_int_eq(ddp_loss_scaler_check(&scaler, NULL), DDP_OK);
    return scaler;
}

START_TEST(presets_are_the_defaults_of_the_originals)
{
    struct ddp_loss_scaler torch = scaler_of(DDP_SCALER_TORCH), apex = scaler_of(DDP_SCALER_APEX);
    ck_assert_float_eq(torch.scale, 65536);
    ck_assert_float_eq(torch.min_scale, 0);
    ck_assert_float_eq(torch.max_scale, 0);
    ck_assert_double_eq(torch.growth_factor, 2);
    ck_assert_double_eq(torch.backoff_factor, 0.5);
    ck_assert_uint_eq(torch.growth_interval, 2000);
    ck_assert_uint_eq(torch.good_steps, 0);
    ck_assert_uint_eq(torch.is_static, 0);
    ck_assert_float_eq(apex.max_scale, 16777216);
    apex.max_scale = 0;
    ck_assert_mem_eq(&apex, &torch, sizeof torch);
}
END_TEST

/* ---- the rules of the originals ---- */

/* apex/amp/scaler.py, LossScaler.update_scale(). Python's numbers are float64. */
struct apex {
    double scale, min_scale, max_scale;
    int unskipped, window, dynamic;
};

static int apex_steps(struct apex *apex, int has_overflow)
{
    int should_skip = has_overflow && apex->dynamic;
    if (should_skip) {
        apex->scale /= 2;
        if (apex->min_scale != 0 && apex->scale < apex->min_scale)
            apex->scale = apex->min_scale;
        apex->unskipped = 0;
    } else {
        apex->unskipped++;
    }
    if (apex->unskipped == apex->window && apex->dynamic) {
        apex->scale = fmin(apex->max_scale, apex->scale * 2);
        apex->unskipped = 0;
    }
    return !should_skip;
}

/* aten/src/ATen/native/AmpKernels.cpp, _amp_update_scale_(). */
struct torch {
    float scale;
    double growth, backoff;
    int tracker, interval;
};

static int torch_steps(struct torch *torch, int found_inf)
{
    if (found_inf) {
        torch->scale = (float)(torch->scale * torch->backoff);
        torch->tracker = 0;
        return 0;
    }
    if (torch->tracker + 1 == torch->interval) {
        float scale = (float)(torch->scale * torch->growth);
        if (isfinite(scale))
            torch->scale = scale;
        torch->tracker = 0;
    } else {
        torch->tracker++;
    }
    return 1;
}

/* Bit k of @sequence: step k overflows. */
static void compare_with_torch(struct torch torch, int sequence)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_TORCH);
    scaler.scale = torch.scale;
    scaler.growth_factor = torch.growth;
    scaler.backoff_factor = torch.backoff;
    scaler.growth_interval = (uint64_t)torch.interval;
    for (int step = 0; step < STEPS; step++) {
        int overflow = sequence >> step & 1;
        bool same = ddp_loss_scaler_update(&scaler, overflow) == torch_steps(&torch, overflow);
        if (torch.scale == 0) /* there it would stay */
            return;
        same = same && scaler.scale == torch.scale && scaler.good_steps == (uint64_t)torch.tracker;
        if (!same)
            ck_abort_msg("sequence %x, step %d: scale %g instead of %g", (unsigned)sequence, step,
                         (double)scaler.scale, (double)torch.scale);
    }
}

static void compare_with_apex(struct apex apex, int sequence)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_APEX);
    scaler.scale = (float)apex.scale;
    scaler.min_scale = (float)apex.min_scale;
    scaler.growth_interval = (uint64_t)apex.window;
    scaler.is_static = !apex.dynamic;
    for (int step = 0; step < STEPS; step++) {
        int overflow = sequence >> step & 1;
        bool same = ddp_loss_scaler_update(&scaler, overflow) == apex_steps(&apex, overflow);
        same = same && (double)scaler.scale == apex.scale &&
               scaler.good_steps == (uint64_t)apex.unskipped;
        if (!same)
            ck_abort_msg("sequence %x, step %d: scale %g instead of %g", (unsigned)sequence, step,
                         (double)scaler.scale, apex.scale);
    }
}

/* _i: the interval. */
START_TEST(every_short_sequence_is_decided_as_by_torch)
{
    static const float scales[] = {65536, 1, FLT_MAX, FLT_MAX / 2, 3, 0x1p-130F};
    static const double factors[][2] = {{2, 0.5}, {1.5, 0.3}, {1, 0.9}, {1e30, 1e-2}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (size_t k = 0; k < sizeof factors / sizeof *factors; k++)
            for (int sequence = 0; sequence < SEQUENCES; sequence++)
                compare_with_torch((struct torch){scales[i], factors[k][0], factors[k][1], 0, _i},
                                   sequence);
}
END_TEST

START_TEST(every_short_sequence_is_decided_as_by_apex)
{
    static const double scales[] = {65536, 16777216, 4, 0.5}, least[] = {0, 0.25, 4, 65536};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (size_t k = 0; k < sizeof least / sizeof *least && least[k] <= scales[i]; k++)
            for (int sequence = 0; sequence < 2 * SEQUENCES; sequence++)
                compare_with_apex(
                    (struct apex){scales[i], least[k], 16777216, 0, _i, sequence < SEQUENCES},
                    sequence);
}
END_TEST

/* ---- Apex, worked out by hand ---- */

/* From @scale with @good_steps of 2,000: after @overflows of them, @then good steps follow. */
static const struct {
    float scale, min_scale;
    uint64_t good_steps;
    int overflows, then;
    float ret_scale;
    uint64_t ret_good_steps;
} apex_table[] = {
    {65536, 0, 0, 0, 1999, 65536, 1999},          /* one step short of growth */
    {65536, 0, 0, 0, 2000, 131072, 0},            /* growth, and the count from 0 */
    {65536, 0, 1999, 0, 1, 131072, 0},            /* the same after a resume */
    {65536, 0, 1999, 1, 0, 32768, 0},             /* an overflow instead of the last good step */
    {65536, 0, 1999, 1, 1999, 32768, 1999},       /* it cost all good steps */
    {65536, 0, 0, 16, 0, 1, 0},                   /* no minimum */
    {65536, 0, 0, 18, 0, 0.25F, 0},               /* not even 1 */
    {65536, 128, 0, 9, 0, 128, 0},                /* reaches the minimum */
    {65536, 128, 0, 12, 0, 128, 0},               /* stays there, and skips */
    {96, 64, 0, 1, 0, 64, 0},                     /* the minimum between scale and half of it */
    {8388608, 0, 0, 0, 2000, 16777216, 0},        /* reaches the maximum */
    {16777216, 0, 0, 0, 2000, 16777216, 0},       /* stays there; the count begins again */
    {16777216, 0, 0, 0, 3999, 16777216, 1999},    /* the same */
    {12582912, 0, 0, 0, 2000, 16777216, 0},       /* the maximum between scale and twice it */
    {65536, 0, 0, 0, 8 * 2000, 16777216, 0},      /* from the start to the maximum */
    {65536, 0, 0, 0, 20 * 2000 + 1, 16777216, 1}, /* and longer */
    {65536, 32768, 0, 3, 2000, 65536, 0},         /* up again from the minimum */
};

START_TEST(apex_decides_so)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_APEX);
    scaler.scale = apex_table[_i].scale;
    scaler.min_scale = apex_table[_i].min_scale;
    scaler.good_steps = apex_table[_i].good_steps;
    for (int step = 0; step < apex_table[_i].overflows; step++)
        ck_assert_int_eq(ddp_loss_scaler_update(&scaler, 1), 0);
    for (int step = 0; step < apex_table[_i].then; step++)
        ck_assert_int_eq(ddp_loss_scaler_update(&scaler, 0), 1);
    ck_assert_float_eq(scaler.scale, apex_table[_i].ret_scale);
    ck_assert_uint_eq(scaler.good_steps, apex_table[_i].ret_good_steps);
}
END_TEST

/* Apex's older FP16_Optimizer: from 2^32, not below 1, doubled after 1,000 good steps. */
START_TEST(the_older_rules_of_apex_can_be_set)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_TORCH);
    scaler.scale = 0x1p32F;
    scaler.min_scale = 1;
    scaler.growth_interval = 1000;
    ck_assert_int_eq(ddp_loss_scaler_check(&scaler, NULL), DDP_OK);
    for (int step = 0; step < 40; step++)
        (void)ddp_loss_scaler_update(&scaler, 1);
    ck_assert_float_eq(scaler.scale, 1);
    for (int step = 0; step < 1000; step++)
        (void)ddp_loss_scaler_update(&scaler, 0);
    ck_assert_float_eq(scaler.scale, 2);
}
END_TEST

START_TEST(a_static_scale_stays_and_every_step_is_made)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_APEX);
    scaler.is_static = 1;
    scaler.scale = 0x1p40F; /* beyond the limit, which is for changes */
    ck_assert_int_eq(ddp_loss_scaler_check(&scaler, NULL), DDP_OK);
    for (int step = 0; step < 5000; step++)
        ck_assert_int_eq(ddp_loss_scaler_update(&scaler, step % 3 == 0), 1);
    ck_assert_float_eq(scaler.scale, 0x1p40F);
    ck_assert_uint_eq(scaler.good_steps, 5000);
    ck_assert_int_eq(ddp_loss_scaler_check(&scaler, NULL), DDP_OK);
}
END_TEST

START_TEST(the_scale_stays_in_float32)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_TORCH);
    scaler.growth_interval = 1;
    for (int step = 0; step < 300; step++)
        ck_assert_int_eq(ddp_loss_scaler_update(&scaler, 0), 1);
    ck_assert_float_eq(scaler.scale, 0x1p127F);
    for (int step = 0; step < 600; step++)
        ck_assert_int_eq(ddp_loss_scaler_update(&scaler, 1), 0);
    ck_assert_float_eq(scaler.scale, 0x1p-149F);
    ck_assert_int_eq(ddp_loss_scaler_check(&scaler, NULL), DDP_OK);
    (void)ddp_loss_scaler_update(&scaler, 0);
    ck_assert_float_eq(scaler.scale, 0x1p-148F);
}
END_TEST

START_TEST(the_inverse_is_rounded_once)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_TORCH);
    ck_assert_float_eq(ddp_loss_scaler_inverse(&scaler), 0x1p-16F);
    scaler.scale = 3;
    ck_assert_float_eq(ddp_loss_scaler_inverse(&scaler), (float)(1.0 / 3.0));
    scaler.scale = FLT_MAX;
    ck_assert_float_eq(ddp_loss_scaler_inverse(&scaler), (float)(1.0 / (double)FLT_MAX));
    scaler.scale = 0x1p-149F;
    ck_assert(isinf(ddp_loss_scaler_inverse(&scaler)));
}
END_TEST

/* ---- bad input ---- */

static const struct {
    struct ddp_loss_scaler change; /* members that are not 0 */
    const char *sentence;
} faults[] = {
    {{.scale = -1}, "the scale of the loss scaler is -1: it must be above 0, and finite"},
    {{.scale = INFINITY}, "the scale of the loss scaler is inf: it must be above 0, and finite"},
    {{.scale = 0x1p25F},
     "the scale of the loss scaler is 3.35544e+07, outside of its limits 0 to 1.67772e+07"},
    {{.min_scale = 131072},
     "the scale of the loss scaler is 65536, outside of its limits 131072 to 1.67772e+07"},
    {{.min_scale = -1},
     "min_scale -1 and max_scale 1.67772e+07 of the loss scaler are no limits: they must be finite "
     "and in order, or 0"},
    {{.min_scale = 0x1p30F},
     "min_scale 1.07374e+09 and max_scale 1.67772e+07 of the loss scaler are no limits: they must "
     "be finite and in order, or 0"},
    {{.max_scale = INFINITY},
     "min_scale 0 and max_scale inf of the loss scaler are no limits: they must be finite and in "
     "order, or 0"},
    {{.growth_factor = 0.5},
     "growth_factor of the loss scaler is 0.5: it must be at least 1, and finite"},
    {{.growth_factor = INFINITY},
     "growth_factor of the loss scaler is inf: it must be at least 1, and finite"},
    {{.backoff_factor = 1},
     "backoff_factor of the loss scaler is 1: it must be above 0 and below 1"},
    {{.backoff_factor = -0.5},
     "backoff_factor of the loss scaler is -0.5: it must be above 0 and below 1"},
    {{.good_steps = 2000},
     "good_steps of the loss scaler is 2000, but its growth_interval 2000: it must be less"},
    {{.growth_interval = UINT64_MAX, .good_steps = UINT64_MAX},
     "good_steps of the loss scaler is 18446744073709551615, but its growth_interval "
     "18446744073709551615: it must be less"},
    {{.is_static = 2}, "is_static of the loss scaler is 2: it must be 0 or 1"},
};

static struct ddp_loss_scaler faulty(const struct ddp_loss_scaler *change)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_APEX);
#define CHANGE(member)       \
    if (change->member != 0) \
    scaler.member = change->member
    CHANGE(scale);
    CHANGE(min_scale);
    CHANGE(max_scale);
    CHANGE(is_static);
    CHANGE(growth_factor);
    CHANGE(backoff_factor);
    CHANGE(growth_interval);
    CHANGE(good_steps);
#undef CHANGE
    return scaler;
}

START_TEST(a_faulty_member_is_named)
{
    struct ddp_loss_scaler scaler = faulty(&faults[_i].change);
    struct ddp_error err = {0};
    ck_assert_int_eq(ddp_loss_scaler_check(&scaler, &err), DDP_E_INVALID);
    ck_assert_str_eq(err.msg, faults[_i].sentence);
}
END_TEST

START_TEST(nan_and_zero_are_refused)
{
    struct ddp_loss_scaler good = scaler_of(DDP_SCALER_APEX), bad;
#define REFUSED(member, value) \
    bad = good;                \
    bad.member = (value);      \
    ck_assert_int_eq(ddp_loss_scaler_check(&bad, NULL), DDP_E_INVALID)
    REFUSED(scale, NAN);
    REFUSED(scale, 0);
    REFUSED(min_scale, NAN);
    REFUSED(max_scale, NAN);
    REFUSED(growth_factor, (double)NAN);
    REFUSED(backoff_factor, (double)NAN);
    REFUSED(backoff_factor, 0);
    REFUSED(growth_interval, 0);
    REFUSED(size, 8);
#undef REFUSED
}
END_TEST

START_TEST(an_unknown_size_or_preset_is_refused)
{
    struct ddp_loss_scaler scaler = {.size = 7}, before = scaler;
    struct ddp_error err = {0};
    uint8_t state[DDP_LOSS_SCALER_STATE] = {0};
    ck_assert_int_eq(ddp_loss_scaler_init(&scaler, DDP_SCALER_APEX, &err), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "the size of the ddp_loss_scaler is 7, not "));
    ck_assert_int_eq(ddp_loss_scaler_load(&scaler, state, sizeof state, NULL), DDP_E_INVALID);
    ck_assert_mem_eq(&scaler, &before, sizeof scaler);
    scaler.size = sizeof scaler;
    ck_assert_int_eq(ddp_loss_scaler_init(&scaler, (ddp_scaler_preset)2, &err), DDP_E_INVALID);
    ck_assert_str_eq(err.msg, "2 is not a preset of loss scalers");
    ck_assert_float_eq(scaler.scale, 0);
}
END_TEST

/* ---- state ---- */

START_TEST(a_saved_scaler_goes_on_as_it_was)
{
    struct ddp_loss_scaler scaler = scaler_of(_i % 2 ? DDP_SCALER_APEX : DDP_SCALER_TORCH);
    struct ddp_loss_scaler loaded = {.size = sizeof loaded};
    uint8_t state[DDP_LOSS_SCALER_STATE], again[DDP_LOSS_SCALER_STATE];
    scaler.min_scale = 0.5F;
    scaler.growth_factor = 1.25;
    scaler.backoff_factor = 0.75;
    scaler.growth_interval = 5;
    scaler.is_static = _i == 2;
    for (int step = 0; step < 23; step++)
        (void)ddp_loss_scaler_update(&scaler, step % 7 == 3);
    ddp_loss_scaler_save(&scaler, state);
    ck_assert_int_eq(ddp_loss_scaler_load(&loaded, state, sizeof state, NULL), DDP_OK);
    ck_assert_mem_eq(&loaded, &scaler, sizeof scaler);
    ddp_loss_scaler_save(&loaded, again);
    ck_assert_mem_eq(again, state, sizeof state);
}
END_TEST

START_TEST(a_state_has_the_same_bytes_everywhere)
{
    static const uint8_t expected[DDP_LOSS_SCALER_STATE] = {
        'D',  'D', 'P',  'S',  1, 0, 0,    0,                            /* magic, version, flags */
        0,    0,   0x80, 0x47, 0, 0, 0,    0,                            /* scale 2^16, min 0 */
        0,    0,   0x80, 0x4b, 0, 0, 0,    0,                            /* max 2^24, reserved */
        0,    0,   0,    0,    0, 0, 0,    0x40,                         /* growth 2 */
        0,    0,   0,    0,    0, 0, 0xe0, 0x3f,                         /* backoff 0.5 */
        0xd0, 7,   0,    0,    0, 0, 0,    0,    3, 0, 0, 0, 0, 0, 0, 0, /* 2,000; 3 good steps */
    };
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_APEX);
    uint8_t state[DDP_LOSS_SCALER_STATE];
    scaler.good_steps = 3;
    ddp_loss_scaler_save(&scaler, state);
    ck_assert_mem_eq(state, expected, sizeof state);
}
END_TEST

/* Whatever the bytes are: refused with @scaler as it was, or a scaler that can be used. */
static void check_load(const uint8_t *state, size_t len)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_TORCH), before = scaler;
    struct ddp_error err = {0};
    if (ddp_loss_scaler_load(&scaler, state, len, &err) == DDP_OK) {
        ck_assert_int_eq(ddp_loss_scaler_check(&scaler, NULL), DDP_OK);
        return;
    }
    ck_assert_int_eq(err.status, DDP_E_INVALID);
    ck_assert_uint_gt(strlen(err.msg), 0);
    ck_assert_mem_eq(&scaler, &before, sizeof scaler);
}

START_TEST(hostile_states_are_refused_or_harmless)
{
    struct ddp_loss_scaler scaler = scaler_of(DDP_SCALER_APEX);
    uint8_t good[DDP_LOSS_SCALER_STATE + 1] = {0}, state[sizeof good];
    ddp_loss_scaler_save(&scaler, good);
    for (size_t len = 0; len <= sizeof good; len++) {
        if (len != DDP_LOSS_SCALER_STATE)
            ck_assert_int_eq(ddp_loss_scaler_load(&scaler, good, len, NULL), DDP_E_INVALID);
    }
    for (size_t at = 0; at < DDP_LOSS_SCALER_STATE; at++) {
        for (unsigned value = 0; value < 256; value++) {
            memcpy(state, good, sizeof good);
            state[at] = (uint8_t)value;
            check_load(state, DDP_LOSS_SCALER_STATE);
        }
    }
    for (size_t at = 0; at < 8; at++) { /* magic, version, flags; a static scaler is another one */
        memcpy(state, good, sizeof good);
        state[at] ^= 0x82;
        ck_assert_int_eq(ddp_loss_scaler_load(&scaler, state, DDP_LOSS_SCALER_STATE, NULL),
                         DDP_E_INVALID);
    }
    ck_assert_int_eq(ddp_loss_scaler_load(&scaler, NULL, 0, NULL), DDP_E_INVALID);
}
END_TEST

/* Two losses, each with its scaler: neither looks at the other. */
START_TEST(losses_have_scalers_of_their_own)
{
    struct ddp_loss_scaler scalers[2] = {scaler_of(DDP_SCALER_TORCH), scaler_of(DDP_SCALER_TORCH)};
    for (int step = 0; step < 2000; step++) {
        ck_assert_int_eq(ddp_loss_scaler_update(&scalers[0], 0), 1);
        ck_assert_int_eq(ddp_loss_scaler_update(&scalers[1], step % 1000 == 0), step % 1000 != 0);
    }
    ck_assert_float_eq(scalers[0].scale, 131072);
    ck_assert_float_eq(scalers[1].scale, 16384);
}
END_TEST

#define ROWS(table) (int)(sizeof(table) / sizeof *(table))

Suite *test_suite(void)
{
    Suite *suite = suite_create("loss_scaler");
    TCase *rules = tcase_create("rules"), *input = tcase_create("input");
    tcase_add_test(rules, presets_are_the_defaults_of_the_originals);
    add_sample(rules, every_short_sequence_is_decided_as_by_torch, 1, 5);
    add_sample(rules, every_short_sequence_is_decided_as_by_apex, 1, 5);
    tcase_add_loop_test(rules, apex_decides_so, 0, ROWS(apex_table));
    ADD_TESTS(rules, the_older_rules_of_apex_can_be_set,
              a_static_scale_stays_and_every_step_is_made, the_scale_stays_in_float32,
              the_inverse_is_rounded_once, losses_have_scalers_of_their_own);
    suite_add_tcase(suite, rules);
    tcase_add_loop_test(input, a_faulty_member_is_named, 0, ROWS(faults));
    tcase_add_test(input, nan_and_zero_are_refused);
    tcase_add_test(input, an_unknown_size_or_preset_is_refused);
    tcase_add_loop_test(input, a_saved_scaler_goes_on_as_it_was, 0, 3);
    tcase_add_test(input, a_state_has_the_same_bytes_everywhere);
    tcase_add_test(input, hostile_states_are_refused_or_harmless);
    suite_add_tcase(suite, input);
    return suite;
}
