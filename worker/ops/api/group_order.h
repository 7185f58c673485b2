/*
 * group_order.h - which ranks of a split are in the same group, and in which order. Pure.
 */
#ifndef DDPI_GROUP_ORDER_H
#define DDPI_GROUP_ORDER_H

#include <stdint.h>

/* What a rank of the parent has chosen. */
struct ddpi_choice {
    int32_t color;
    int32_t key;
};

/* Write the ranks that chose the colour of @rank to @ret_members, which has room for all @count, by
 * key and then by rank. Returns how many they are; *@ret_place is where @rank is among them. */
uint32_t ddpi_group_order(const struct ddpi_choice *choices, uint32_t count, uint32_t rank,
                          uint32_t *ret_members, uint32_t *ret_place);

#endif
