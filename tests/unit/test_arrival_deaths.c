/*
 * test_arrival_deaths.c - a rank is killed before each instruction of its arrival in an arena. Then
 * either the round has all its arrivals, or the dead rank shows as missing. If neither holds, the
 * other ranks wait for ever.
 *
 * The rank is a child that the test traces. In each turn it runs one instruction more than in the
 * turn before, and is killed there.
 */
#include "arena.h"
#include "check_main.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, MOST = 2000, REFUSED = 77 };

static struct ddpi_arena *open_rank(int fd, uint32_t rank, bool crowded)
{
    struct ddpi_arena *arena;
    struct ddp_error err;
    ddp_status status = fd < 0 ? ddpi_arena_create(RANKS, crowded, &arena, &err)
                               : ddpi_arena_attach(fd, RANKS, &arena, &err);
    ck_assert_msg(status == DDP_OK, "%s", err.msg);
    ddpi_arena_enter(arena, rank);
    return arena;
}

/* Stops before it arrives, and ends after it. A child of fork() does not have the arena of its
 * parent. */
_Noreturn static void arrive_traced(int fd, bool crowded)
{
    struct ddpi_arena *arena = open_rank(fd, 1, crowded);
    uint64_t round = ddpi_arena_next_round(arena);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(REFUSED);
    raise(SIGSTOP);
    ddpi_arena_arrive(arena, round);
    _exit(0);
}

static bool refused; /* here no child may be traced */

/* Whether the rank was killed after @count instructions; false: it had ended before. */
static bool kill_after(pid_t pid, unsigned count)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    for (unsigned i = 0; i < count && WIFSTOPPED(status); i++) {
        ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(!WIFSTOPPED(status) || WSTOPSIG(status) == SIGTRAP);
    }
    if (!WIFSTOPPED(status)) {
        refused = WIFEXITED(status) && WEXITSTATUS(status) == REFUSED;
        return false;
    }
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return true;
}

/* A rank that dies after @count instructions; false: it has arrived. */
static bool die_after(unsigned count, bool crowded)
{
    struct ddpi_arena *own = open_rank(-1, 0, crowded);
    uint64_t round = ddpi_arena_next_round(own);
    ddpi_arena_arrive(own, round);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        arrive_traced(dup(ddpi_arena_fd(own)), crowded);
    bool died = kill_after(pid, count);
    bool all = ddpi_arena_all_arrived(own, round), misses = !ddpi_arena_has_arrived(own, round, 1);
    ck_assert_msg(all || misses, "after %u instructions it is waited for, and not missed", count);
    ck_assert(died || all || refused);
    ddpi_arena_destroy(own);
    return died;
}

/* _i: whether ranks outnumber the processors, so that arrivals are counted. */
START_TEST(a_rank_dies_while_it_arrives)
{
    unsigned count = 0;
    while (count < MOST && die_after(count, _i == 1))
        count++;
    if (refused)
        SKIP("a system that lets a child be traced");
    ck_assert_uint_gt(count, 10);
    ck_assert_uint_lt(count, MOST);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("arrival deaths");
    TCase *deaths = tcase_create("deaths");
    tcase_add_loop_test(deaths, a_rank_dies_while_it_arrives, 0, 2);
    suite_add_tcase(suite, deaths);
    return suite;
}
