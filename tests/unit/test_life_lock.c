/*
 * test_life_lock.c - the thread that holds a worker's slot: what is in the slot while it lives,
 * when it has gone in order, and when its process was killed; how the process ends when its time is
 * over; and pages that are none.
 */
#include "check_main.h"
#include "clock.h"
#include "life_lock.h"
#include "life_slot.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U /* Linux 6.3 */
#endif

enum { SLOTS = 3 };

static int page_fd;
static struct ddpi_life_slot *page;

static void seal_page(int fd, int seals)
{
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, SLOTS * sizeof *page), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
}

static int make_page(int seals)
{
    int fd = memfd_create("page", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    seal_page(fd, seals);
    return fd;
}

static void setup(void)
{
    page_fd = make_page(DDPI_LIFE_SEALS);
    page = mmap(NULL, SLOTS * sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
    ck_assert(page != MAP_FAILED);
}

static void teardown(void)
{
    munmap(page, SLOTS * sizeof *page);
    close(page_fd);
}

/* Until the thread has taken its slot. */
static uint32_t held_word(unsigned slot)
{
    uint32_t word = 0;
    while ((word = atomic_load(&page[slot].word)) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return word;
}

START_TEST(held_until_it_is_released)
{
    struct ddpi_life *life = ddpi_life_hold(page_fd, 1);
    ck_assert_ptr_nonnull(life);
    uint32_t word = held_word(1);
    ck_assert((word & FUTEX_WAITERS) != 0 && (word & FUTEX_OWNER_DIED) == 0);
    ck_assert_uint_ne(word & FUTEX_TID_MASK, 0);
    ck_assert(page[0].word == 0 && page[2].word == 0);
    ddpi_life_release(life);
    ck_assert_uint_eq(page[1].word, 0);
}
END_TEST

START_TEST(a_second_one_leaves_it_to_the_first)
{
    struct ddpi_life *first = ddpi_life_hold(page_fd, 0);
    uint32_t word = held_word(0);
    struct ddpi_life *second = ddpi_life_hold(page_fd, 0);
    ddpi_life_release(second);
    ck_assert_uint_eq(page[0].word, word);
    ddpi_life_release(first);
    ck_assert_uint_eq(page[0].word, 0);
}
END_TEST

START_TEST(a_second_one_takes_it_over)
{
    struct ddpi_life *first = ddpi_life_hold(page_fd, 0);
    uint32_t word = held_word(0);
    struct ddpi_life *second = ddpi_life_hold(page_fd, 0);
    ddpi_life_release(first);
    ck_assert_uint_ne(held_word(0), word);
    ddpi_life_release(second);
    ck_assert_uint_eq(page[0].word, 0);
}
END_TEST

START_TEST(held_until_all_have_released_it)
{
    struct ddpi_life *life = ddpi_life_hold(page_fd, 0);
    uint32_t word = held_word(0);
    ck_assert_ptr_eq(ddpi_life_share(life), life);
    ddpi_life_release(life);
    ck_assert_uint_eq(page[0].word, word);
    ddpi_life_release(life);
    ck_assert_uint_eq(page[0].word, 0);
    ck_assert_ptr_null(ddpi_life_share(NULL));
}
END_TEST

static void live_in_child(void)
{
    if (ddpi_life_hold(page_fd, 2) == NULL)
        _exit(1);
    for (;;)
        pause();
}

START_TEST(a_death_is_seen)
{
    pid_t pid = fork();
    if (pid == 0)
        live_in_child();
    uint32_t word = held_word(2);
    ck_assert_uint_ne(word, 0);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_uint_ne(page[2].word & FUTEX_OWNER_DIED, 0);
}
END_TEST

START_TEST(a_forked_child_holds_nothing)
{
    struct ddpi_life *life = ddpi_life_hold(page_fd, 0);
    uint32_t word = held_word(0);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (_i == 0)
            ddpi_life_release(life);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(page[0].word, word);
    ddpi_life_release(life);
}
END_TEST

static uint64_t now_ms(void)
{
    return ddpi_monotonic_ms();
}

/* How a process ends that holds slot 2. */
static int end_of_child(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        live_in_child();
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

START_TEST(a_process_ends_when_its_time_is_over)
{
    static const int64_t from_now_ms[] = {-1000, 50};
    atomic_store(&page[2].fence_at_ms, now_ms() + (uint64_t)from_now_ms[_i]);
    int status = end_of_child();
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
END_TEST

/* Exits with 1 if it was too slow to move the time on before it came. */
static void move_time_on(void)
{
    enum { SHORT_MS = 100 };
    uint64_t first_ms = now_ms() + SHORT_MS;
    atomic_store(&page[2].fence_at_ms, first_ms);
    struct ddpi_life *life = ddpi_life_hold(page_fd, 2);
    held_word(2);
    atomic_store(&page[2].fence_at_ms, first_ms + 3600 * 1000);
    if (now_ms() >= first_ms)
        _exit(1);
    while (now_ms() < first_ms + SHORT_MS)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ddpi_life_release(life);
    _exit(0);
}

START_TEST(its_time_can_be_moved_on)
{
    for (int status = 1; status != 0;) {
        pid_t pid = fork();
        if (pid == 0)
            move_time_on();
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        atomic_store(&page[2].word, 0);
    }
}
END_TEST

/* With vm.memfd_noexec the kernel makes all files in memory so. */
START_TEST(a_page_may_have_more_seals)
{
    int fd = memfd_create("page", MFD_NOEXEC_SEAL | MFD_CLOEXEC);
    if (fd < 0)
        SKIP("files in memory that cannot be executed");
    seal_page(fd, DDPI_LIFE_SEALS);
    struct ddpi_life *life = ddpi_life_hold(fd, 0);
    ck_assert_ptr_nonnull(life);
    ddpi_life_release(life);
    close(fd);
}
END_TEST

START_TEST(what_is_no_page_is_left_alone)
{
    int unsealed = make_page(F_SEAL_SHRINK), flags = fcntl(unsealed, F_GETFD);
    ck_assert_ptr_null(ddpi_life_hold(-1, 0));
    ck_assert_ptr_null(ddpi_life_hold(1000, 0));
    ck_assert_ptr_null(ddpi_life_hold(2, 0));
    ck_assert_ptr_null(ddpi_life_hold(unsealed, 0));
    ck_assert_ptr_null(ddpi_life_hold(page_fd, SLOTS));
    ck_assert_ptr_null(ddpi_life_hold(page_fd, UINT32_MAX));
    ck_assert_int_eq(fcntl(unsealed, F_GETFD), flags);
    ddpi_life_release(NULL);
    close(unsealed);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("life_lock");
    TCase *tcase = tcase_create("slot");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, held_until_it_is_released);
    ADD_TESTS(tcase, a_second_one_leaves_it_to_the_first, a_second_one_takes_it_over,
              held_until_all_have_released_it);
    tcase_add_test(tcase, a_death_is_seen);
    tcase_add_loop_test(tcase, a_forked_child_holds_nothing, 0, 2);
    tcase_add_loop_test(tcase, a_process_ends_when_its_time_is_over, 0, 2);
    tcase_add_test(tcase, its_time_can_be_moved_on);
    ADD_TESTS(tcase, a_page_may_have_more_seals, what_is_no_page_is_left_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
