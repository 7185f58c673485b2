/*
 * test_lives.c - deaths of ranks as the others see them: one rank, two neighbours at once, one
 * after another has left, with and without futex_waitv; and ranks that leave in order.
 *
 * Each rank is a process. What it notices it writes to a pipe; nothing here waits for a time.
 */
#include "check_main.h"
#include "failmem.h"
#include "lives.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 8, PAGE_SIZE = 4096 };
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static void *page;
static pid_t ranks[RANKS_MAX];
static int joined[2], noticed[2], orders[RANKS_MAX][2]; /* pipes */

static void setup(void)
{
    page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(page != MAP_FAILED);
    ck_assert_uint_le(ddpi_lives_size(RANKS_MAX), PAGE_SIZE);
    ck_assert_int_eq(pipe(joined), 0);
    ck_assert_int_eq(pipe(noticed), 0);
}

static void teardown(void)
{
    munmap(page, PAGE_SIZE);
    for (int i = 0; i < 2; i++) {
        close(joined[i]);
        close(noticed[i]);
    }
}

/* ---- a rank ---- */

static void notice(void *arg)
{
    (void)arg;
    (void)!write(noticed[1], "d", 1);
}

static void forbid_waitv(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(2);
}

/* Join, and leave when told to. Exits with the rank that it knows to be dead, or 100. */
static void be_rank(uint32_t nranks, uint32_t rank, bool waitv)
{
    char order;
    uint32_t dead = 100;
    if (!waitv)
        forbid_waitv();
    struct ddpi_lives *lives = ddpi_lives_join(page, nranks, rank, notice, NULL);
    if (lives == NULL || write(joined[1], "j", 1) != 1 || read(orders[rank][0], &order, 1) != 1)
        _exit(101);
    if (!ddpi_lives_first_death(lives, &dead))
        dead = 100;
    ddpi_lives_leave(lives);
    _exit((int)dead);
}

static void read_bytes(int fd, unsigned count)
{
    char byte;
    for (unsigned i = 0; i < count; i++)
        ck_assert_int_eq(read(fd, &byte, 1), 1);
}

static void start_ranks(uint32_t nranks, bool waitv)
{
    for (uint32_t rank = 0; rank < nranks; rank++) {
        ck_assert_int_eq(pipe(orders[rank]), 0);
        ranks[rank] = fork();
        ck_assert_int_ge(ranks[rank], 0);
        if (ranks[rank] == 0)
            be_rank(nranks, rank, waitv);
    }
    read_bytes(joined[0], nranks);
}

/* The exit code of @rank, which is told to leave; -1: it was killed. */
static int end_rank(uint32_t rank)
{
    int status;
    (void)!write(orders[rank][1], "l", 1);
    ck_assert_int_eq(waitpid(ranks[rank], &status, 0), ranks[rank]);
    close(orders[rank][0]);
    close(orders[rank][1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- tests ---- */

START_TEST(ranks_that_leave_are_not_dead)
{
    enum { N = 4 };
    start_ranks(N, true);
    for (uint32_t rank = 0; rank < N; rank++)
        ck_assert_int_eq(end_rank(rank), 100);
}
END_TEST

/* Rank _i / 2 of four; without futex_waitv, if _i is odd. */
START_TEST(all_notice_a_death)
{
    enum { N = 4 };
    uint32_t victim = (uint32_t)_i / 2;
    start_ranks(N, _i % 2 == 0);
    ck_assert_int_eq(kill(ranks[victim], SIGKILL), 0);
    read_bytes(noticed[0], N - 1);
    for (uint32_t rank = 0; rank < N; rank++)
        ck_assert_int_eq(end_rank(rank), rank == victim ? -1 : (int)victim);
}
END_TEST

/* The one that watches the other may die first, and the one that the kernel wakes may be dying. */
START_TEST(neighbours_die_at_once)
{
    enum { N = RANKS_MAX };
    uint32_t first = (uint32_t)_i, second = (first + 1) % N;
    start_ranks(N, true);
    ck_assert_int_eq(kill(ranks[second], SIGKILL), 0);
    ck_assert_int_eq(kill(ranks[first], SIGKILL), 0);
    read_bytes(noticed[0], N - 2); /* a dying one may have noticed it too */
    for (uint32_t rank = 0; rank < N; rank++) {
        int code = end_rank(rank);
        if (rank != first && rank != second)
            ck_assert(code == (int)first || code == (int)second || code == 100);
        else
            ck_assert_int_eq(code, -1);
    }
}
END_TEST

START_TEST(a_rank_dies_whose_watcher_has_left)
{
    enum { N = 4 };
    uint32_t victim = (uint32_t)_i, gone = (victim + N - 1) % N;
    start_ranks(N, true);
    ck_assert_int_eq(end_rank(gone), 100);
    ck_assert_int_eq(kill(ranks[victim], SIGKILL), 0);
    read_bytes(noticed[0], N - 2);
    for (uint32_t rank = 0; rank < N; rank++)
        if (rank != gone)
            ck_assert_int_eq(end_rank(rank), rank == victim ? -1 : (int)victim);
}
END_TEST

START_TEST(a_forked_child_may_leave)
{
    uint32_t dead;
    int status;
    struct ddpi_lives *lives = ddpi_lives_join(page, 2, 0, notice, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        ddpi_lives_leave(lives);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert(!ddpi_lives_first_death(lives, &dead));
    ddpi_lives_leave(lives);
}
END_TEST

/* Any rank can write anything to the page. */
START_TEST(a_garbled_page_harms_nothing)
{
    uint32_t dead;
    uint8_t *bytes = page;
    for (unsigned i = 0; i < PAGE_SIZE; i++)
        bytes[i] = (uint8_t)(i * 37U + 11U);
    struct ddpi_lives *lives = ddpi_lives_join(page, RANKS_MAX, 3, notice, NULL);
    ck_assert_ptr_nonnull(lives);
    if (ddpi_lives_first_death(lives, &dead))
        ck_assert_uint_lt(dead, RANKS_MAX);
    ddpi_lives_leave(lives);
}
END_TEST

START_TEST(no_memory)
{
    failmem_start(0);
    struct ddpi_lives *lives = ddpi_lives_join(page, 2, 0, notice, NULL);
    ck_assert(failmem_stop());
    ck_assert_ptr_null(lives);
    ddpi_lives_leave(lives);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("lives");
    TCase *tcase = tcase_create("lives");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, ranks_that_leave_are_not_dead);
    tcase_add_loop_test(tcase, all_notice_a_death, 0, 8);
    tcase_add_loop_test(tcase, neighbours_die_at_once, 0, RANKS_MAX);
    tcase_add_loop_test(tcase, a_rank_dies_whose_watcher_has_left, 0, 4);
    ADD_TESTS(tcase, a_forked_child_may_leave, a_garbled_page_harms_nothing, no_memory);
    suite_add_tcase(suite, tcase);
    return suite;
}
