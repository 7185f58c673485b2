/*
 * copy_choice.c - see copy_choice.h. Owns nothing.
 */
#include "copy_choice.h"

enum { TRIED = 2 * DDPI_COPY_TRIES };

static struct ddpi_copy_class *class_of(struct ddpi_copy_choice *choice, size_t bytes)
{
    unsigned class = 0;
    for (bytes /= 2; bytes >= DDPI_COPY_LEAST && class + 1 < DDPI_COPY_CLASSES; bytes /= 2)
        class ++;
    return &choice->classes[class];
}

struct ddpi_copy_way ddpi_copy_next(struct ddpi_copy_choice *choice, size_t bytes)
{
    if (bytes < DDPI_COPY_LEAST)
        return (struct ddpi_copy_way){.streams = false};
    struct ddpi_copy_class *class = class_of(choice, bytes);
    uint32_t turn = class->turn;
    class->turn = (turn + 1) % DDPI_COPY_PERIOD;
    if (turn == 0)
        class->least[false] = class->least[true] = UINT64_MAX;
    if (turn < TRIED)
        return (struct ddpi_copy_way){.streams = turn >= DDPI_COPY_TRIES, .is_timed = true};
    return (struct ddpi_copy_way){.streams = class->streams, .is_timed = bytes >= DDPI_COPY_TIMED};
}

/* What bypasses the caches is paid for by those that would find other things there: it must save a
 * quarter. */
static bool is_worth_it(uint64_t cached_ns, uint64_t streamed_ns)
{
    return streamed_ns < cached_ns - cached_ns / 4;
}

/* Something has changed, if one operation after the other takes twice as long as the tries did. */
static bool is_out_of_date(struct ddpi_copy_class *class, bool streams, uint64_t ns)
{
    class->slow = ns / 2 > class->least[streams] ? class->slow + 1 : 0;
    return class->slow == DDPI_COPY_TRIES;
}

void ddpi_copy_note(struct ddpi_copy_choice *choice, size_t bytes, bool streams, uint64_t ns)
{
    struct ddpi_copy_class *class = class_of(choice, bytes);
    bool is_try = class->turn >= 1 && class->turn <= TRIED; /* the turn is that of the next one */
    if (is_try && ns < class->least[streams])
        class->least[streams] = ns;
    if (is_try) {
        class->streams = is_worth_it(class->least[false], class->least[true]);
        class->slow = 0;
    } else if (is_out_of_date(class, streams, ns)) {
        class->turn = 0;
    }
}
