/*
 * stacks.h - says where every thread of a hung test is.
 */
#ifndef TESTS_GPU_STACKS_H
#define TESTS_GPU_STACKS_H

#include <sys/types.h>

/* Run eu-stack, where there is one, for each process of the group. */
void stacks_print(pid_t group);

#endif
