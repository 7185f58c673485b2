/*
 * turn_rounds.c - the order of turns, and how many calls one of them has. Owns nothing.
 */
#include "turn_rounds.h"

#include "error.h"

enum { TURN_US = 40000 /* about how long one lasts */, MOST_CALLS = 20000, WARM_CALLS = 3 };

static uint64_t calls_of_a_turn(double us)
{
    double calls = us > 0 ? TURN_US / us : MOST_CALLS;
    return calls < 2 ? 2 : calls > MOST_CALLS ? MOST_CALLS : (uint64_t)calls;
}

bool rounds_play(struct contender *const *contenders, unsigned count, const char *call,
                 uint64_t bytes, struct ddp_error *err)
{
    for (unsigned i = 0; i < count; i++) { /* to warm up, and to know how long it takes */
        contenders[i]->times.count = 0;
        if (!contender_play(contenders[i], call, bytes, WARM_CALLS, &contenders[i]->us, err))
            return false;
    }
    for (unsigned turn = 0; turn < ROUNDS * count; turn++) {
        struct contender *contender = contenders[turn % count];
        if (!contender_play(contender, call, bytes, calls_of_a_turn(contender->us), &contender->us,
                            err))
            return false;
        if (!perf_add(&contender->times, contender->us))
            return ddpi_error_nomem(err, sizeof contender->us) == DDP_OK;
    }
    return true;
}
