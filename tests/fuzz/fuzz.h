/*
 * fuzz.h - what every fuzz target has in common: its entry point, the assertion, and copies of the
 * input in blocks of their exact size, where a sanitizer sees a read behind the end.
 *
 * A target is one function for one parser. libFuzzer calls it with inputs of its own, replay_main.c
 * with those of the corpus. It keeps nothing from one input to the next.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Active in every build, unlike assert(). */
#define HOLDS(condition) ((condition) ? (void)0 : fuzz_violated(__FILE__, __LINE__, #condition))

_Noreturn void fuzz_violated(const char *file, int line, const char *condition);

/* Never NULL, but for @len 0, where nobody may look at it. free() it. */
uint8_t *fuzz_copy(const void *bytes, size_t len);

/* The same as a string; it ends early where the bytes have a NUL. */
char *fuzz_text(const void *bytes, size_t len);

/* A failed call left this: its status, and a sentence without control characters but tabs. */
struct ddp_error;
void fuzz_check_error(const struct ddp_error *err, int status);

#endif
