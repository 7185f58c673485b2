/*
 * test_spread.c - from every placement of few ranks on few processors one step leads to an even
 * one, and a thread that is moved may still run where it might before.
 */
#include "check_main.h"
#include "spread.h"

#include <stdbool.h>
#include <string.h>

enum { RANKS = 6, PROCESSORS = 4 };

static const int numbers[PROCESSORS] = {0, 3, 64, CPU_SETSIZE - 1};

static cpu_set_t first_processors(int count)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < count; i++)
        CPU_SET((size_t)numbers[i], &set);
    return set;
}

/* The number of ranks on the fullest processor. */
static uint32_t most_on_one(const uint16_t *at, uint32_t nranks)
{
    uint32_t most = 0;
    for (int i = 0; i < PROCESSORS; i++) {
        uint32_t ranks_here = 0;
        for (uint32_t rank = 0; rank < nranks; rank++)
            ranks_here += at[rank] == numbers[i];
        most = ranks_here > most ? ranks_here : most;
    }
    return most;
}

static uint32_t move_all(uint16_t *at, uint32_t nranks, const cpu_set_t *allowed)
{
    uint16_t before[RANKS];
    uint32_t moved = 0;
    memcpy(before, at, nranks * sizeof *at);
    for (uint32_t rank = 0; rank < nranks; rank++) {
        int to = ddpi_spread_target(before, nranks, rank, allowed);
        if (to == DDPI_SPREAD_NOWHERE)
            continue;
        ck_assert(CPU_ISSET((size_t)to, allowed));
        at[rank] = (uint16_t)to;
        moved++;
    }
    return moved;
}

START_TEST(one_step_is_enough)
{
    for (int processors = 1; processors <= PROCESSORS; processors++) {
        cpu_set_t allowed = first_processors(processors);
        for (uint32_t nranks = 1; nranks <= RANKS; nranks++) {
            uint32_t fewest = (nranks + (uint32_t)processors - 1) / (uint32_t)processors;
            uint32_t placements = 1;
            for (uint32_t i = 0; i < nranks; i++)
                placements *= (uint32_t)processors;
            for (uint32_t placement = 0; placement < placements; placement++) {
                uint16_t at[RANKS];
                uint32_t digits = placement;
                for (uint32_t i = 0; i < nranks; i++, digits /= (uint32_t)processors)
                    at[i] = (uint16_t)numbers[digits % (uint32_t)processors];
                bool crowded = nranks > (uint32_t)processors;
                bool even = !crowded || most_on_one(at, nranks) == fewest;
                uint32_t moved = move_all(at, nranks, &allowed);
                ck_assert(!crowded || most_on_one(at, nranks) == fewest);
                ck_assert(even == (moved == 0));
                ck_assert_uint_eq(move_all(at, nranks, &allowed), 0);
            }
        }
    }
}
END_TEST

/* Another rank may have written anything, or be where this one may not run. */
START_TEST(places_elsewhere_are_no_trouble)
{
    cpu_set_t allowed = first_processors(2), none;
    const uint16_t at[] = {UINT16_MAX, CPU_SETSIZE, 64, 64, 0, 0};
    for (uint32_t rank = 0; rank < 6; rank++)
        ck_assert_int_eq(ddpi_spread_target(at, 6, rank, &allowed), DDPI_SPREAD_NOWHERE);
    CPU_ZERO(&none);
    for (uint32_t rank = 0; rank < 6; rank++)
        ck_assert_int_eq(ddpi_spread_target(at, 6, rank, &none), DDPI_SPREAD_NOWHERE);
}
END_TEST

START_TEST(a_moved_thread_keeps_its_processors)
{
    cpu_set_t before, after;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        ddpi_spread_move(processor);
        ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
        ck_assert(CPU_EQUAL(&before, &after));
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("spread");
    TCase *tcase = tcase_create("spread");
    tcase_add_test(tcase, one_step_is_enough);
    tcase_add_test(tcase, places_elsewhere_are_no_trouble);
    tcase_add_test(tcase, a_moved_thread_keeps_its_processors);
    suite_add_tcase(suite, tcase);
    return suite;
}
