/*
 * doubling.h - the schedule of recursive doubling: with which rank a rank exchanges its partial
 * result at each step. Pure arithmetic. (Thakur, Rabenseifner and Gropp 2005, "Optimization of
 * Collective Communication Operations in MPICH", section 4.5.)
 *
 * Let P be the largest power of two that is not above the number of ranks N. The first 2(N - P)
 * ranks form pairs of neighbours; the even one gives its elements to the odd one, so P ranks are
 * left. Each of these exchanges with the one whose number differs in one bit, log2 P times, and
 * then the odd one of a pair returns the result. A partial result is always that of ranks in a row,
 * and those of the lower ranks are the left operand on both sides: all ranks get the same bits.
 */
#ifndef DDPI_DOUBLING_H
#define DDPI_DOUBLING_H

#include <stdbool.h>
#include <stdint.h>

struct ddpi_doubling_step {
    bool sends, receives; /* neither: the rank takes no part in this step */
    bool reduces;         /* what it receives with its own; otherwise it is the result */
    bool finishes;        /* this reduction is the last one */
    bool own_first;       /* its own elements are the left operand */
    uint32_t peer;
};

/* The same on all ranks. */
uint32_t ddpi_doubling_steps(uint32_t nranks);

/* @step < ddpi_doubling_steps(). */
struct ddpi_doubling_step ddpi_doubling_step(uint32_t rank, uint32_t nranks, uint32_t step);

#endif
