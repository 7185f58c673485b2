/*
 * test_death_watch.c - workers learn from the page until when they may run, also where the kernel
 * cannot wait for several of them at once.
 */
#include "check_main.h"
#include "death_watch.h"
#include "life_slot.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORKERS = DEATH_WATCH_MAX + 3 };

static uv_loop_t loop;
static struct death_watch watch;

static void forbid_waitv(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void no_hint(void *ctx, uint32_t slot)
{
    ck_abort_msg("slot %u of %p has no owner", slot, ctx);
}

static void the_page_serves(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    death_watch_open(&watch, &loop, WORKERS, no_hint, NULL);
    ck_assert_int_gt(watch.fd, 0);
    death_watch_start(&watch);
    atomic_store(&watch.page[WORKERS - 1].word, 7);
    death_watch_set_fence(&watch, 12345);
    death_watch_renew(&watch);
    for (int i = 0; i < WORKERS; i++) {
        ck_assert_uint_eq(atomic_load(&watch.page[i].fence_at_ms), 12345);
        ck_assert_uint_eq(atomic_load(&watch.page[i].word), 0);
    }
    death_watch_close(&watch);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

START_TEST(each_slot_has_the_fence)
{
    the_page_serves();
}
END_TEST

START_TEST(without_a_wait_for_several_it_has_it_too)
{
    static const int errors[] = {ENOSYS, EPERM};
    forbid_waitv(errors[_i]);
    the_page_serves();
    ck_assert(!watch.runs);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("death_watch");
    TCase *tcase = tcase_create("death_watch");
    ADD_TESTS(tcase, each_slot_has_the_fence);
    tcase_add_loop_test(tcase, without_a_wait_for_several_it_has_it_too, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
