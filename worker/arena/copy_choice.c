/*
 * copy_choice.c - see copy_choice.h. Owns nothing.
 */
#include "copy_choice.h"

enum { ALL_TRIES = 2 * DDPI_COPY_TRIES };

static unsigned class_of(size_t bytes)
{
    unsigned index = 0;
    for (bytes /= 2; bytes >= DDPI_COPY_LEAST && index + 1 < DDPI_COPY_CLASSES; bytes /= 2)
        index++;
    return index;
}

struct ddpi_copy_way ddpi_copy_next(struct ddpi_copy_choice *choice, size_t bytes)
{
    if (bytes < DDPI_COPY_LEAST)
        return (struct ddpi_copy_way){.streams = false};
    struct ddpi_copy_class *class = &choice->classes[class_of(bytes)];
    uint32_t count = class->count;
    class->count = (count + 1) % DDPI_COPY_PERIOD;
    if (count >= ALL_TRIES)
        return (struct ddpi_copy_way){.streams = class->streams,
                                      .is_timed = bytes >= DDPI_COPY_TIMED};
    if (count == 0)
        class->least[false] = class->least[true] = UINT64_MAX;
    return (struct ddpi_copy_way){
        .streams = count >= DDPI_COPY_TRIES, .is_timed = true, .is_try = true};
}

/* Not all that the way past the caches costs is measured here, so it must save half. */
static bool is_worth_it(uint64_t cached_ns, uint64_t streamed_ns)
{
    return streamed_ns < cached_ns / 2;
}

static void note_try(struct ddpi_copy_class *class, bool streams, uint64_t ns)
{
    if (ns < class->least[streams])
        class->least[streams] = ns;
    class->streams = is_worth_it(class->least[false], class->least[true]);
    class->slow = 0;
}

/* Something has changed if one operation after the other takes twice as long as the tries did. */
static void note_usual(struct ddpi_copy_class *class, bool streams, uint64_t ns)
{
    class->slow = ns / 2 > class->least[streams] ? class->slow + 1 : 0;
    if (class->slow > ALL_TRIES)
        class->count = class->slow = 0;
}

void ddpi_copy_note(const struct ddpi_copy_timed *timed, uint64_t ns)
{
    struct ddpi_copy_class *class = &timed->choice->classes[class_of(timed->bytes)];
    uint64_t ns_per_mib = (uint64_t)((double)ns * (1 << 20) / (double)timed->bytes);
    if (timed->way.is_try)
        note_try(class, timed->way.streams, ns_per_mib);
    else
        note_usual(class, timed->way.streams, ns_per_mib);
}
