/*
 * crash_loop.c - failures in a row that are alike, each soon after the start of the workers: how
 * long to pause before the next restart, and when another one is of no use. Owns nothing.
 *
 * What is away may come back: a file system, a name server. So restarts get rarer, and the job is
 * given up only after some time, too. The text of a program does not change by itself.
 */
#include "rounds_impl.h"

#include <stdio.h>
#include <string.h>

enum {
    QUICK_MS = 10 * 1000,    /* a worker that ran for longer has not failed at its start */
    PATIENCE_MS = 30 * 1000, /* from the first failure of a row to the last that counts */
    FIRST_PAUSE_MS = 500,    /* after the second failure; each pause is twice the one before */
    LONGEST_PAUSE_MS = 30 * 1000
};

enum loop_kind { LOOP_ANY, LOOP_BROKEN_PROGRAM };

static const struct {
    uint64_t patience_ms;
    bool pauses;
} loop_kinds[] = {[LOOP_ANY] = {PATIENCE_MS, true}, [LOOP_BROKEN_PROGRAM] = {0, false}};

static enum loop_kind kind_of(const struct ddpi_rounds *rounds)
{
    return rounds->root.record.broken_program ? LOOP_BROKEN_PROGRAM : LOOP_ANY;
}

/* ---- rows of failures ---- */

static void extend_streak(struct round_streak *streak, bool counts, bool alike, uint64_t ran_ms,
                          uint64_t now_ms)
{
    if (!counts || !alike)
        *streak = (struct round_streak){0};
    if (!counts)
        return;
    if (streak->times++ == 0)
        streak->since_ms = now_ms;
    if (ran_ms > streak->longest_ms)
        streak->longest_ms = ran_ms;
}

void ddpi_rounds_count_failure(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    const struct ddp_round_failure *now = &rounds->root.record, *before = &rounds->before.record;
    bool quick = now->ran_ms < QUICK_MS, has_code = now->exit_code >= 0;
    bool alike = now->broken_program == before->broken_program;
    bool same_code = now->exit_code == before->exit_code;
    bool same_node = strcmp(rounds->root.node, rounds->before.node) == 0;
    const struct {
        bool counts, is_same;
    } patterns[] = {[ROUND_SAME_WORKER] = {has_code, same_code && now->rank == before->rank},
                    [ROUND_SAME_NODE] = {rounds->nodes > 1, same_node},
                    [ROUND_SAME_CODE] = {has_code, same_code}};
    for (size_t i = 0; i < ROUND_PATTERNS; i++)
        extend_streak(&rounds->streaks[i], quick && patterns[i].counts,
                      alike && patterns[i].is_same, now->ran_ms, now_ms);
    rounds->before = rounds->root;
}

/* Of those that are equally long, the first says most. */
static enum round_pattern longest_pattern(const struct ddpi_rounds *rounds)
{
    enum round_pattern longest = 0;
    for (unsigned i = 1; i < ROUND_PATTERNS; i++)
        if (rounds->streaks[i].times > rounds->streaks[longest].times)
            longest = i;
    return longest;
}

static const struct round_streak *longest_streak(const struct ddpi_rounds *rounds)
{
    return &rounds->streaks[longest_pattern(rounds)];
}

/* ---- conclusions ---- */

bool ddpi_rounds_in_crash_loop(const struct ddpi_rounds *rounds, uint64_t now_ms)
{
    const struct round_streak *streak = longest_streak(rounds);
    uint32_t enough = rounds->terms.crash_loop;
    return enough != 0 && streak->times >= enough &&
           now_ms - streak->since_ms >= loop_kinds[kind_of(rounds)].patience_ms;
}

uint64_t ddpi_rounds_pause_ms(const struct ddpi_rounds *rounds)
{
    uint32_t times = longest_streak(rounds)->times;
    if (rounds->terms.crash_loop == 0 || times < 2 || !loop_kinds[kind_of(rounds)].pauses)
        return 0;
    uint64_t pause_ms = FIRST_PAUSE_MS;
    for (uint32_t i = 2; i < times && pause_ms < LONGEST_PAUSE_MS; i++)
        pause_ms *= 2;
    return pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS;
}

void ddpi_rounds_say_loop(const struct ddpi_rounds *rounds, char *text, const char *what_follows)
{
    const struct ddp_round_failure *failure = &rounds->root.record;
    enum round_pattern pattern = longest_pattern(rounds);
    const struct round_streak *streak = &rounds->streaks[pattern];
    char who[32 + DDP_ROUND_NAME_SIZE] = "workers", code[40] = "";
    if (pattern == ROUND_SAME_WORKER)
        (void)snprintf(who, sizeof who, "rank %u on node %s", failure->rank, rounds->root.node);
    else if (pattern == ROUND_SAME_NODE)
        (void)snprintf(who, sizeof who, "workers on node %s", rounds->root.node);
    if (pattern != ROUND_SAME_NODE)
        (void)snprintf(code, sizeof code, " with exit code %d", (int)failure->exit_code);
    double longest_s = streak->longest_ms < 100 ? 0.1 : (double)streak->longest_ms / 1000;
    ddpi_rounds_say(text, "%s failed %u times in a row%s, each time within %.3g s of the start: %s",
                    who, streak->times, code, longest_s, what_follows);
}
