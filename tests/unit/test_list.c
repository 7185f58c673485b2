/*
 * test_list.c - the intrusive list: order, removing while walking, removing twice, moving all.
 */
#include "check_main.h"
#include "list.h"

struct item {
    int value;
    struct ddpi_list link;
};

static struct item *item_of(struct ddpi_list *link)
{
    return ddpi_container_of(link, struct item, link);
}

/* The list reads as the digits of @expected, forwards; and has as many nodes backwards. */
static void assert_reads(struct ddpi_list *head, const char *expected)
{
    const char *next = expected;
    ddpi_list_for_each (pos, head)
        ck_assert_int_eq(item_of(pos)->value, *next++ - '0');
    ck_assert_int_eq(*next, '\0');
    for (struct ddpi_list *pos = head->prev; pos != head; pos = pos->prev)
        ck_assert_int_eq(item_of(pos)->value, *--next - '0');
    ck_assert_ptr_eq(next, expected);
    ck_assert(ddpi_list_empty(head) == (*expected == '\0'));
}

static void fill(struct ddpi_list *head, struct item items[], int count)
{
    ddpi_list_init(head);
    for (int i = 0; i < count; i++) {
        items[i].value = i;
        ddpi_list_append(head, &items[i].link);
    }
}

START_TEST(order_is_that_of_appending)
{
    struct ddpi_list head;
    struct item items[4];
    ddpi_list_init(&head);
    assert_reads(&head, "");
    fill(&head, items, 4);
    assert_reads(&head, "0123");
}
END_TEST

START_TEST(any_node_can_be_removed_and_comes_back_last)
{
    static const char *const without[] = {"123", "023", "013", "012"};
    static const char *const back[] = {"1230", "0231", "0132", "0123"};
    for (int i = 0; i < 4; i++) {
        struct ddpi_list head;
        struct item items[4];
        fill(&head, items, 4);
        ddpi_list_remove(&items[i].link);
        assert_reads(&head, without[i]);
        ck_assert(ddpi_list_empty(&items[i].link));
        ddpi_list_remove(&items[i].link);
        assert_reads(&head, without[i]);
        ddpi_list_append(&head, &items[i].link);
        assert_reads(&head, back[i]);
    }
}
END_TEST

START_TEST(the_safe_walk_allows_removing)
{
    struct ddpi_list head;
    struct item items[6];
    fill(&head, items, 6);
    int seen = 0;
    ddpi_list_for_each_safe (pos, &head) {
        seen++;
        if (item_of(pos)->value % 2 == 0)
            ddpi_list_remove(pos);
    }
    ck_assert_int_eq(seen, 6);
    assert_reads(&head, "135");
    ddpi_list_for_each_safe (pos, &head)
        ddpi_list_remove(pos);
    assert_reads(&head, "");
}
END_TEST

START_TEST(all_nodes_move_to_the_end_of_another_list)
{
    struct ddpi_list to, from, empty;
    struct item items[5];
    fill(&to, items, 2);
    ddpi_list_init(&from);
    ddpi_list_init(&empty);
    for (int i = 2; i < 5; i++) {
        items[i].value = i;
        ddpi_list_append(&from, &items[i].link);
    }
    ddpi_list_move_all(&to, &from);
    assert_reads(&to, "01234");
    assert_reads(&from, "");
    ddpi_list_move_all(&to, &empty);
    assert_reads(&to, "01234");
    ddpi_list_move_all(&empty, &to);
    assert_reads(&empty, "01234");
    assert_reads(&to, "");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("list");
    TCase *tcase = tcase_create("list");
    tcase_add_test(tcase, order_is_that_of_appending);
    tcase_add_test(tcase, any_node_can_be_removed_and_comes_back_last);
    tcase_add_test(tcase, the_safe_walk_allows_removing);
    tcase_add_test(tcase, all_nodes_move_to_the_end_of_another_list);
    suite_add_tcase(suite, tcase);
    return suite;
}
