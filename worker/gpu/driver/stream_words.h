/*
 * stream_words.h - 32-bit words on a page of host memory, with which streams of the GPU and a host
 * thread wait for each other. A stream writes a word when it gets there (stamp), and stops until
 * the host has written one (hold). No memory of another process is involved, so the death of a
 * process holds up no stream.
 *
 * Values grow and wrap around; "reached" has the meaning of cuStreamWaitValue32 with GEQ.
 */
#ifndef DDPI_STREAM_WORDS_H
#define DDPI_STREAM_WORDS_H

#include "driver.h"

#include <stdatomic.h>
#include <stdbool.h>

struct ddpi_words {
    const struct ddpi_cuda *cuda;
    _Atomic uint32_t *host;
    ddpi_cu_deviceptr device; /* the same page as the GPU sees it */
};

/* @count words, all 0. Needs the context current. */
ddp_status ddpi_words_init(struct ddpi_words *words, const struct ddpi_cuda *cuda, uint32_t count,
                           struct ddp_error *err);
/* All streams must have passed every stamp and hold. */
void ddpi_words_finish(struct ddpi_words *words);

/* Enqueue on @stream: set the word to @value after earlier work; hold later work until the word has
 * reached @value. */
ddp_status ddpi_words_stamp(const struct ddpi_words *words, uint32_t index, uint32_t value,
                            ddpi_cu_stream stream, struct ddp_error *err);
ddp_status ddpi_words_hold(const struct ddpi_words *words, uint32_t index, uint32_t value,
                           ddpi_cu_stream stream, struct ddp_error *err);

/* Where a kernel finds the word. */
static inline ddpi_cu_deviceptr ddpi_words_address(const struct ddpi_words *words, uint32_t index)
{
    return words->device + index * sizeof(uint32_t);
}

/* The host's side. */
static inline uint32_t ddpi_words_get(const struct ddpi_words *words, uint32_t index)
{
    return atomic_load_explicit(&words->host[index], memory_order_acquire);
}

static inline void ddpi_words_set(const struct ddpi_words *words, uint32_t index, uint32_t value)
{
    atomic_store_explicit(&words->host[index], value, memory_order_release);
}

static inline bool ddpi_words_reached(const struct ddpi_words *words, uint32_t index,
                                      uint32_t value)
{
    return (int32_t)(ddpi_words_get(words, index) - value) >= 0;
}

#endif
