/*
 * copy_choice.c - see copy_choice.h. Owns nothing.
 */
#include "copy_choice.h"

enum {
    MOST_SLOW = 2 * DDPI_COPY_TRIES, /* that are no reason yet to try again */
    SMALL_PART = 32, /* one in so many: fastest tries may differ by as much by chance */
};
#define MOST_NS UINT64_C(3600000000000) /* more is no time of an operation */

static unsigned class_of(size_t bytes)
{
    unsigned index = 0;
    for (bytes /= 2; bytes >= DDPI_COPY_LEAST && index + 1 < DDPI_COPY_CLASSES; bytes /= 2)
        index++;
    return index;
}

static bool has_path(unsigned paths, unsigned path)
{
    return (paths >> path & 1) != 0;
}

/* The path of try @count; false: it is none. */
static bool path_to_try(unsigned paths, uint32_t count, enum ddpi_copy_path *ret_path)
{
    uint32_t skip = count / DDPI_COPY_TRIES;
    for (unsigned path = 0; path < DDPI_COPY_PATHS; path++)
        if (has_path(paths, path) && skip-- == 0) {
            *ret_path = (enum ddpi_copy_path)path;
            return true;
        }
    return false;
}

static void forget_tries(struct ddpi_copy_class *class)
{
    for (unsigned path = 0; path < DDPI_COPY_PATHS; path++)
        class->least[path] = UINT64_MAX;
}

static uint64_t for_each_mib(uint64_t ns, size_t bytes)
{
    return (uint64_t)((double)ns * (1 << 20) / (double)bytes);
}

/* A reader does not find in its caches what has bypassed them, which is not measured here. @more:
 * what the way through the kernel takes beside its copies, for each MiB. */
static enum ddpi_copy_path best_path(const uint64_t *least, unsigned paths, uint64_t more)
{
    enum ddpi_copy_path path = DDPI_COPY_CACHED;
    if (has_path(paths, DDPI_COPY_STREAMED) && least[DDPI_COPY_STREAMED] < least[path] / 2)
        path = DDPI_COPY_STREAMED;
    uint64_t most = least[path] - least[path] / SMALL_PART;
    if (has_path(paths, DDPI_COPY_KERNEL) && most > more && least[DDPI_COPY_KERNEL] < most - more)
        path = DDPI_COPY_KERNEL;
    return path;
}

struct ddpi_copy_way ddpi_copy_next(struct ddpi_copy_choice *choice, size_t bytes, unsigned paths,
                                    enum ddpi_copy_meeting more_ns)
{
    struct ddpi_copy_way way = {.path = DDPI_COPY_CACHED};
    if (bytes < DDPI_COPY_LEAST)
        return way;
    struct ddpi_copy_class *class = &choice->classes[class_of(bytes)];
    uint32_t count = class->count;
    class->count = (count + 1) % DDPI_COPY_PERIOD;
    if (count == 0)
        forget_tries(class);
    if (path_to_try(paths, count, &way.path)) {
        way.is_timed = way.is_try = true;
        return way;
    }
    way.path = best_path(class->least, paths, for_each_mib(more_ns, bytes));
    way.is_timed = bytes >= DDPI_COPY_TIMED;
    return way;
}

void ddpi_copy_withdraw(struct ddpi_copy_choice *choice, size_t bytes)
{
    struct ddpi_copy_class *class = &choice->classes[class_of(bytes)];
    if (bytes >= DDPI_COPY_LEAST)
        class->count = (class->count + DDPI_COPY_PERIOD - 1) % DDPI_COPY_PERIOD;
}

static void note_try(struct ddpi_copy_class *class, enum ddpi_copy_path path, uint64_t ns)
{
    if (ns < class->least[path])
        class->least[path] = ns;
    class->slow = 0;
}

/* Something has changed if one operation after the other takes twice as long as the tries did. */
static void note_usual(struct ddpi_copy_class *class, enum ddpi_copy_path path, uint64_t ns)
{
    class->slow = ns / 2 > class->least[path] ? class->slow + 1 : 0;
    if (class->slow > MOST_SLOW)
        class->count = class->slow = 0;
}

void ddpi_copy_note(const struct ddpi_copy_timed *timed, uint64_t ns)
{
    struct ddpi_copy_class *class = &timed->choice->classes[class_of(timed->bytes)];
    ns = ns < MOST_NS ? ns : MOST_NS;
    uint64_t ns_per_mib = for_each_mib(ns, timed->bytes);
    if (timed->way.is_try)
        note_try(class, timed->way.path, ns_per_mib);
    else
        note_usual(class, timed->way.path, ns_per_mib);
}
