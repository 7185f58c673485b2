/*
 * test_store_kept.c - what an agent tells of the machines that keep its store, as the key in the
 * store changes.
 */
#include "check_main.h"
#include "store_kept.h"

#include <stdio.h>
#include <string.h>

enum { WATCH = 7 };

static struct store_kept kept;
static char told[4096]; /* a line "EVENT ENDPOINT WHY" for each change */

static void on_changed(void *ctx, enum event event, const char *endpoint, const char *why)
{
    static const char *const names[] = {[EVENT_STORE_LEADER_CHANGED] = "leader",
                                        [EVENT_MEMBER_LOST] = "lost",
                                        [EVENT_MEMBER_REPLACED] = "replaced",
                                        [EVENT_MEMBER_RETURNED] = "returned"};
    size_t used = strlen(told);
    ck_assert_ptr_eq(ctx, &kept);
    snprintf(told + used, sizeof told - used, "%s %s %s\n", names[event], endpoint, why);
}

static void begin(void)
{
    kept = (struct store_kept){.changed = on_changed, .ctx = &kept, .watch = WATCH};
}

static void send_text(uint64_t watch, const char *text)
{
    const struct ddp_store_event event = {
        .kind = DDP_STORE_EVENT_SET, .watch = watch, .value = text, .value_len = strlen(text)};
    store_kept_event(&kept, &event);
}

/* The key changes; what was told then. */
static const char *change(unsigned leader, enum ddpi_machine_state first, uint32_t life)
{
    struct ddpi_cluster_summary summary = {.leader = leader};
    char text[DDPI_CLUSTER_SUMMARY_MAX + 1];
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        snprintf(summary.machines[i].at.host, DDPI_HOST_MAX, "n%u", i + 1);
        summary.machines[i].at.port = 1;
        summary.machines[i].life = 100 + i;
    }
    summary.machines[0].state = first;
    summary.machines[0].life = life;
    text[ddpi_cluster_summary_put(&summary, text)] = '\0';
    told[0] = '\0';
    send_text(WATCH, text);
    return told;
}

START_TEST(the_leader_dies_and_comes_back_empty)
{
    ck_assert_str_eq(change(0, MACHINE_MEMBER, 1), "");
    ck_assert_str_eq(change(0, MACHINE_MEMBER, 1), "");
    ck_assert_str_eq(change(1, MACHINE_MISSING, 1),
                     "leader n2:1 n2:1 leads the store instead of n1:1\n"
                     "lost n1:1 n1:1 is missing: the store survives no other loss until n1 is "
                     "back\n");
    ck_assert_str_eq(change(1, MACHINE_JOINING, 2), "");
    ck_assert_str_eq(change(1, MACHINE_MEMBER, 2),
                     "replaced n1:1 n1:1 is a new member, as it had lost its data: the store "
                     "survives any one of n1, n2, n3\n");
    ck_assert_str_eq(change(1, MACHINE_MEMBER, 3), /* between two looks */
                     "replaced n1:1 n1:1 is a new member, as it had lost its data: the store "
                     "survives any one of n1, n2, n3\n");
}
END_TEST

START_TEST(a_machine_comes_back_with_its_data)
{
    ck_assert_str_eq(change(1, MACHINE_MEMBER, 1), "");
    ck_assert_str_eq(change(1, MACHINE_JOINING, 1),
                     "lost n1:1 n1:1 does not keep up: the store survives no other loss until n1 "
                     "is back\n");
    ck_assert_str_eq(change(1, MACHINE_MISSING, 1), "");
    ck_assert_str_eq(change(1, MACHINE_MEMBER, 1),
                     "returned n1:1 n1:1 keeps up again: the store survives any one of n1, n2, "
                     "n3\n");
}
END_TEST

START_TEST(the_third_machine_comes_for_the_first_time)
{
    ck_assert_str_eq(change(1, MACHINE_MISSING, 0), "");
    ck_assert_str_eq(change(1, MACHINE_JOINING, 5), "");
    ck_assert_str_eq(change(1, MACHINE_MEMBER, 5), "");
    ck_assert_str_ne(change(1, MACHINE_MISSING, 5), "");
}
END_TEST

START_TEST(what_is_no_news)
{
    const struct ddp_store_event gone = {.kind = DDP_STORE_EVENT_DELETED, .watch = WATCH};
    send_text(WATCH, "garbage");
    ck_assert(!kept.known);
    change(1, MACHINE_MEMBER, 1);
    ck_assert(kept.known);
    send_text(WATCH, "garbage");
    send_text(WATCH + 1, "garbage");
    ck_assert(kept.current);
    store_kept_event(&kept, &gone);
    ck_assert(!kept.current);
    ck_assert_str_eq(told, "");
    ck_assert_str_ne(change(1, MACHINE_MISSING, 1), ""); /* it has happened meanwhile */
    ck_assert(kept.current);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_kept");
    TCase *changes = tcase_create("changes");
    tcase_add_checked_fixture(changes, begin, NULL);
    ADD_TESTS(changes, the_leader_dies_and_comes_back_empty, a_machine_comes_back_with_its_data,
              the_third_machine_comes_for_the_first_time, what_is_no_news);
    suite_add_tcase(suite, changes);
    return suite;
}
