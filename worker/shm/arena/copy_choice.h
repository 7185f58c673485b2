/*
 * copy_choice.h - which way bytes take from one rank to another: into shared memory through the
 * caches, there past them (stream_copy.h), or at once through the kernel (kernel_copy_op.c). Which
 * is faster is measured, and measured again. Pure.
 *
 * A store through the caches must first take the line away from the processor that has read it
 * last. Between two that share a cache this is cheap, and the reader finds the data there; between
 * two that do not it may take five times as long as the way through memory. The kernel copies once
 * and not twice, but both ranks wait for that. Where ranks run is not known, and may change.
 *
 * So from time to time the ranks try all ways. They carry out a few operations on each, separately
 * for each kind of operation and each range of sizes. The operations that follow go past the caches
 * if the fastest try that did so took less than half the time, and through the kernel if that and
 * one more meeting take less, by more than a small part. If large operations become slow, the tries
 * are repeated at once.
 *
 * The time is that of the rank that spent most on copies and reductions: who writes does not see
 * what it costs to read. Where ranks outnumber the processors, the time that they wait for each
 * other counts too, as it is most of the operation. The ranks tell each other their times when they
 * next meet, so all have the same times and choose the same way; the operation that has begun by
 * then still goes the way that was known. The bits of a result do not depend on the way. That of
 * the kernel all must choose: a rank that tells one time to some and another to others can spoil
 * results, as it can with what it copies in, but no memory.
 */
#ifndef DDPI_COPY_CHOICE_H
#define DDPI_COPY_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DDPI_COPY_LEAST = 16 * 1024,  /* bytes of the longest part; less goes through the caches */
    DDPI_COPY_TRIES = 4,          /* of each path, one after the other */
    DDPI_COPY_PERIOD = 512,       /* operations from the first try to the next first one */
    DDPI_COPY_TIMED = 256 * 1024, /* bytes from which each operation is timed, and not only tries:
                                     to read a clock and to tell its time is little beside it */
    DDPI_COPY_CLASSES = 16,       /* powers of two from DDPI_COPY_LEAST on; the last has the rest */
};

enum ddpi_copy_path {
    DDPI_COPY_CACHED,   /* into shared memory through the caches */
    DDPI_COPY_STREAMED, /* the same past them */
    DDPI_COPY_KERNEL,   /* through the kernel */
    DDPI_COPY_PATHS,
};

/* Of one kind of operation. All 0 at first. */
struct ddpi_copy_choice {
    struct ddpi_copy_class {
        uint32_t count;                  /* of the operations in this period */
        uint64_t least[DDPI_COPY_PATHS]; /* nanoseconds for each MiB; UINT64_MAX: not known */
        uint32_t slow;                   /* how many in a row were slow */
    } classes[DDPI_COPY_CLASSES];
};

/* The path of the next operation, whether to note how long it took, and whether it is a try. */
struct ddpi_copy_way {
    enum ddpi_copy_path path;
    bool is_timed;
    bool is_try;
};

/* The way through the kernel has one more meeting than the others, which no time that is noted has
 * in it. What it takes, in nanoseconds; where the waiting counts, it is little beside that. */
enum ddpi_copy_meeting { DDPI_COPY_MEETING_IS_LITTLE = 0, DDPI_COPY_MEETING_NS = 500 };

/* @paths: which are possible for it, a bit for each. The path through the caches always is.
 * @more_ns: what the way through the kernel takes beside its copies. */
struct ddpi_copy_way ddpi_copy_next(struct ddpi_copy_choice *choice, size_t bytes, unsigned paths,
                                    enum ddpi_copy_meeting more_ns);

/* The operation of @bytes for which a way was chosen last takes none: it does not count. */
void ddpi_copy_withdraw(struct ddpi_copy_choice *choice, size_t bytes);

/* An operation that has ended, and whose time is not noted yet. */
struct ddpi_copy_timed {
    struct ddpi_copy_choice *choice; /* NULL: there is none */
    size_t bytes;
    struct ddpi_copy_way way;
};

/* @timed took @ns, of the slowest rank. */
void ddpi_copy_note(const struct ddpi_copy_timed *timed, uint64_t ns);

#endif
