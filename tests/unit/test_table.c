/*
 * test_table.c - the hash table while it grows and shrinks, and the heap.
 */
#include "check_main.h"
#include "heap.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t seed[DDPI_SEED_SIZE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

enum { NODES = 2000 };

static struct ddpi_table_node nodes[NODES];
static int names[NODES];

START_TEST(everything_is_found_while_it_grows)
{
    struct ddpi_table table;
    ddpi_table_init(&table, seed);
    ck_assert_ptr_null(ddpi_table_find(&table, "x", 1));
    for (int i = 0; i < NODES; i++) {
        names[i] = i;
        nodes[i].key = &names[i];
        nodes[i].key_len = sizeof(int);
        ck_assert(ddpi_table_insert(&table, &nodes[i]));
        for (int j = i % 7; j <= i; j += 97)
            ck_assert_ptr_eq(ddpi_table_find(&table, &names[j], sizeof(int)), &nodes[j]);
    }
    struct ddpi_table_iter iter = {0};
    int seen = 0;
    for (struct ddpi_table_node *node; (node = ddpi_table_next(&table, &iter)) != NULL; seen++)
        node->key = NULL; /* each is seen once, and not looked at afterwards */
    ck_assert_int_eq(seen, NODES);
    ck_assert_uint_eq(table.count, NODES);
    ddpi_table_finish(&table);
}
END_TEST

static void fill(struct ddpi_table *table, int count)
{
    for (int i = 0; i < count; i++) {
        names[i] = i;
        nodes[i].key = &names[i];
        nodes[i].key_len = sizeof(int);
        ck_assert(ddpi_table_insert(table, &nodes[i]));
    }
}

/* Slots that can be looked at in one step, those of a table that has just been resized included. */
enum { MOVES_AT_MOST = 16 };

START_TEST(everything_is_found_while_it_shrinks)
{
    struct ddpi_table table;
    ddpi_table_init(&table, seed);
    fill(&table, NODES);
    size_t largest = table.now.size;
    for (int i = 0; i < NODES; i++) {
        size_t moved = table.moved;
        bool resizing = table.old.size > 0;
        ddpi_table_remove(&table, &nodes[i]);
        if (resizing)
            ck_assert(table.old.size == 0 || table.moved - moved <= MOVES_AT_MOST);
        else
            ck_assert_uint_le(table.moved, table.old.size > 0 ? MOVES_AT_MOST : largest);
        ck_assert_ptr_null(ddpi_table_find(&table, &names[i], sizeof(int)));
        for (int j = i + 1 + i % 7; j < NODES; j += 97)
            ck_assert_ptr_eq(ddpi_table_find(&table, &names[j], sizeof(int)), &nodes[j]);
    }
    ck_assert_uint_eq(table.count, 0);
    ck_assert_uint_eq(table.old.size, 0);
    ck_assert_uint_le(table.now.size, 64);
    ck_assert_uint_gt(largest, NODES);
    ddpi_table_finish(&table);
}
END_TEST

/* Whatever it is doing, it can turn round. */
START_TEST(it_grows_again_while_it_shrinks)
{
    for (int left = 0; left < 700; left += 7) {
        struct ddpi_table table;
        ddpi_table_init(&table, seed);
        fill(&table, NODES);
        for (int i = NODES - 1; i >= left; i--)
            ddpi_table_remove(&table, &nodes[i]);
        for (int i = left; i < NODES; i++)
            ck_assert(ddpi_table_insert(&table, &nodes[i]));
        ck_assert_uint_eq(table.count, NODES);
        ck_assert_uint_ge(table.now.size, NODES);
        for (int i = 0; i < NODES; i++)
            ck_assert_ptr_eq(ddpi_table_find(&table, &names[i], sizeof(int)), &nodes[i]);
        ddpi_table_finish(&table);
    }
}
END_TEST

START_TEST(heap_gives_the_earliest)
{
    struct ddpi_heap heap = {0};
    static struct ddpi_heap_node items[500];
    srand(1);
    for (int i = 0; i < 500; i++)
        ck_assert(ddpi_heap_insert(&heap, &items[i], (uint64_t)(rand() % 100)));
    for (int i = 0; i < 500; i += 3) {
        ddpi_heap_remove(&heap, &items[i]);
        ddpi_heap_remove(&heap, &items[i]); /* in no heap: harmless */
    }
    uint64_t last = 0;
    size_t count = 0;
    for (struct ddpi_heap_node *top; (top = ddpi_heap_top(&heap)) != NULL; count++) {
        ck_assert_uint_ge(top->at, last);
        last = top->at;
        ddpi_heap_remove(&heap, top);
    }
    ck_assert_uint_eq(count, 500 - 167);
    ck_assert_uint_le(heap.size, 16);
    ddpi_heap_finish(&heap);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("table");
    TCase *tcase = tcase_create("containers");
    ADD_TESTS(tcase, everything_is_found_while_it_grows, everything_is_found_while_it_shrinks,
              it_grows_again_while_it_shrinks, heap_gives_the_earliest);
    suite_add_tcase(suite, tcase);
    return suite;
}
