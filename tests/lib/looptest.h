/*
 * looptest.h - what tests on a libuv loop share: waiting, a close that must leave
 * nothing, descriptors counted, and stdout or stderr replaced by a pipe.
 */
#ifndef TESTS_LOOPTEST_H
#define TESTS_LOOPTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

/* Turn @loop until @done says so. */
void looptest_run_until(uv_loop_t *loop, bool (*done)(void *ctx), void *ctx);

/* Turn @loop until every handle is closed, and close it. A handle left open fails the test. */
void looptest_close(uv_loop_t *loop);

/* Wait until no thread but the caller's is left, of those that nobody joins. */
void looptest_await_threads(void);

/* How many descriptors this process has open. */
int looptest_open_fds(void);

/* Make @fd the writing end of a pipe; returns the reading end, which does not block. */
int looptest_capture(int fd);

/* Append what can be read from @fd now to @text of @size bytes; returns false at its end. */
bool looptest_read(int fd, char *text, size_t size, size_t *used);

#endif
