/*
 * group_order.c - the members of a group in order, by heapsort: it takes no memory, and no two
 * ranks are equal. Owns nothing.
 */
#include "group_order.h"

/* Whether rank @a comes before rank @b. */
static int goes_before(const struct ddpi_choice *choices, uint32_t a, uint32_t b)
{
    return choices[a].key != choices[b].key ? choices[a].key < choices[b].key : a < b;
}

/* Let the member at @root sink to its place in the heap of @count members, the last one on top. */
static void sink(const struct ddpi_choice *choices, uint32_t *members, uint32_t root,
                 uint32_t count)
{
    for (;;) {
        uint32_t child = 2 * root + 1;
        if (child >= count)
            return;
        if (child + 1 < count && goes_before(choices, members[child], members[child + 1]))
            child++;
        if (!goes_before(choices, members[root], members[child]))
            return;
        uint32_t member = members[root];
        members[root] = members[child];
        members[child] = member;
        root = child;
    }
}

uint32_t ddpi_group_order(const struct ddpi_choice *choices, uint32_t count, uint32_t rank,
                          uint32_t *ret_members, uint32_t *ret_place)
{
    uint32_t found = 0;
    for (uint32_t other = 0; other < count; other++)
        if (choices[other].color == choices[rank].color)
            ret_members[found++] = other;
    for (uint32_t root = found / 2; root-- > 0;)
        sink(choices, ret_members, root, found);
    for (uint32_t left = found; left-- > 1;) {
        uint32_t last = ret_members[0];
        ret_members[0] = ret_members[left];
        ret_members[left] = last;
        sink(choices, ret_members, 0, left);
    }
    for (uint32_t place = 0; place < found; place++)
        if (ret_members[place] == rank)
            *ret_place = place;
    return found;
}
