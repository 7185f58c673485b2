/*
 * flight_sentence.c - the verdict on a team as a sentence. Owns nothing.
 */
#include "flight_compare.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    TOLD_MAX = 4,   /* different calls that a sentence tells */
    ITEMS_MAX = 10, /* items of a list of ranks */
};

struct sentence {
    char *at;
    size_t left;
};

DDP_PRINTF(2, 3) static void say(struct sentence *sentence, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(sentence->at, sentence->left, format, args);
    va_end(args);
    size_t used = len < 0 ? 0 : (size_t)len < sentence->left ? (size_t)len : sentence->left - 1;
    sentence->at += used;
    sentence->left -= used;
}

typedef bool member_is(const struct ddpi_flight_team *team,
                       const struct ddpi_flight_member *member);

static bool is_odd(const struct ddpi_flight_team *team, const struct ddpi_flight_member *member)
{
    (void)team;
    return member->odd;
}

/* It has called what most members called as the number that the verdict is about. */
static bool is_regular(const struct ddpi_flight_team *team, const struct ddpi_flight_member *member)
{
    (void)team;
    return !member->odd && member->at_seq != NULL;
}

static bool is_waiting(const struct ddpi_flight_team *team, const struct ddpi_flight_member *member)
{
    return is_regular(team, member) && member->at_seq->state != DDPI_FLIGHT_COMPLETED;
}

static size_t next_member(const struct ddpi_flight_team *team, member_is *is, size_t from)
{
    while (from < team->count && !is(team, &team->members[from]))
        from++;
    return from;
}

/* The next item of a list of ranks: three or more that follow each other, or one. @*at moves behind
 * it; false: there is none. */
static bool next_item(const struct ddpi_flight_team *team, member_is *is, size_t *at,
                      uint32_t *ret_first, uint32_t *ret_last)
{
    size_t from = next_member(team, is, *at), to = from + 1;
    if (from >= team->count)
        return false;
    uint32_t first = team->members[from].log->place.rank;
    while (to < team->count && is(team, &team->members[to]) &&
           team->members[to].log->place.rank == first + (uint32_t)(to - from))
        to++;
    *at = to - from >= 3 ? to : from + 1;
    *ret_first = first;
    *ret_last = first + (uint32_t)(*at - from) - 1;
    return true;
}

/* "rank 3", "ranks 0 to 2, 5 and 7". Returns how many. */
static size_t say_ranks(struct sentence *sentence, const struct ddpi_flight_team *team,
                        member_is *is)
{
    size_t items = 0, total = 0, at = 0;
    uint32_t first, last;
    for (; next_item(team, is, &at, &first, &last); items++)
        total += last - first + 1;
    say(sentence, total == 1 ? "rank " : "ranks ");
    at = 0;
    for (size_t i = 0, left = total; next_item(team, is, &at, &first, &last); i++) {
        if (i == ITEMS_MAX - 1 && items > ITEMS_MAX) {
            say(sentence, " and %zu more", left);
            break;
        }
        say(sentence, "%s%" PRIu32, i == 0 ? "" : i + 1 == items ? " and " : ", ", first);
        if (last > first)
            say(sentence, " to %" PRIu32, last);
        left -= last - first + 1;
    }
    return total;
}

/* What the first of them called as the number that the verdict is about. */
static void say_call(struct sentence *sentence, const struct ddpi_flight_team *team, member_is *is,
                     bool fully)
{
    char text[DDPI_FLIGHT_TEXT];
    size_t at = next_member(team, is, 0);
    if (at == team->count)
        return;
    const struct ddpi_flight_member *member = &team->members[at];
    (fully ? ddpi_flight_describe : ddpi_flight_name)(member->log, member->at_seq, text);
    say(sentence, "%s", text);
}

/* Whether a member before @at, which called something else than most, called the same as it. */
static bool is_told(const struct ddpi_flight_team *team, size_t at)
{
    const struct ddpi_flight_member *member = &team->members[at];
    for (size_t i = 0; i < at; i++)
        if (team->members[i].odd &&
            ddpi_flight_same_call(team->members[i].log, team->members[i].at_seq, member->log,
                                  member->at_seq))
            return true;
    return false;
}

static void say_difference(struct sentence *sentence, const struct ddpi_flight_team *team)
{
    char text[DDPI_FLIGHT_TEXT];
    unsigned told = 0;
    for (size_t i = 0; i < team->count && told < TOLD_MAX; i++) {
        const struct ddpi_flight_member *member = &team->members[i];
        if (!member->odd || is_told(team, i))
            continue;
        ddpi_flight_describe(member->log, member->at_seq, text);
        say(sentence, "%srank %" PRIu32 " called %s", told++ > 0 ? ", " : "",
            member->log->place.rank, text);
    }
    say(sentence, ", but ");
    say_ranks(sentence, team, is_regular);
    say(sentence, " called ");
    say_call(sentence, team, is_regular, true);
}

static void say_counts(struct sentence *sentence, const struct ddpi_flight_team *team)
{
    say_ranks(sentence, team, is_regular);
    say(sentence, " called ");
    say_call(sentence, team, is_regular, true);
    say(sentence, ", but disagree about its counts");
}

static void say_behind(struct sentence *sentence, const struct ddpi_flight_team *team)
{
    bool waits = next_member(team, is_waiting, 0) < team->count;
    say(sentence,
        say_ranks(sentence, team, is_odd) == 1 ? " has not called " : " have not called ");
    say_call(sentence, team, is_regular, false);
    say(sentence, waits ? ", in which " : ", which ");
    bool one = say_ranks(sentence, team, waits ? is_waiting : is_regular) == 1;
    say(sentence,
        waits ? (one ? " waits" : " wait") : (one ? " has completed" : " have completed"));
}

static void say_unfinished(struct sentence *sentence, const struct ddpi_flight_team *team)
{
    say(sentence, say_ranks(sentence, team, is_odd) == 1 ? " is in " : " are in ");
    say_call(sentence, team, is_odd, false);
    if (next_member(team, is_regular, 0) == team->count)
        return;
    say(sentence, ", which ");
    bool one = say_ranks(sentence, team, is_regular) == 1;
    say(sentence, one ? " has completed" : " have completed");
}

static void say_together(struct sentence *sentence, const struct ddpi_flight_team *team)
{
    if (!team->any) {
        say(sentence, "no rank has called a collective");
        return;
    }
    bool one = say_ranks(sentence, team, is_regular) == 1;
    say(sentence, one ? " has completed " : " have completed ");
    say_call(sentence, team, is_regular, false);
    say(sentence, ", and %s in no later one", one ? "is" : "are");
}

void ddpi_flight_sentence(const struct ddpi_flight_team *team, char text[DDPI_FLIGHT_SENTENCE])
{
    static void (*const tell[])(struct sentence *, const struct ddpi_flight_team *) = {
        [DDPI_FLIGHT_DIFFER] = say_difference, [DDPI_FLIGHT_COUNTS] = say_counts,
        [DDPI_FLIGHT_BEHIND] = say_behind,     [DDPI_FLIGHT_UNFINISHED] = say_unfinished,
        [DDPI_FLIGHT_TOGETHER] = say_together,
    };
    struct sentence sentence = {text, DDPI_FLIGHT_SENTENCE};
    tell[team->verdict](&sentence, team);
    if (team->missing > 0)
        say(&sentence, "; of %" PRIu32 " more there are no records", team->missing);
}
