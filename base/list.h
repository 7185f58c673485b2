/*
 * list.h - an intrusive doubly linked list with a head node. Allocates nothing. A node is in at
 * most one list; a node in no list points to itself, so removing it again is harmless.
 */
#ifndef DDPI_LIST_H
#define DDPI_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct ddpi_list {
    struct ddpi_list *prev;
    struct ddpi_list *next;
};

#define ddpi_container_of(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Iterate @pos over the nodes of @head; with _safe, the body may remove or free @pos. */
#define ddpi_list_for_each(pos, head) \
    for (struct ddpi_list *pos = (head)->next; pos != (head); pos = pos->next)
#define ddpi_list_for_each_safe(pos, head)                                             \
    for (struct ddpi_list *pos = (head)->next, *pos##_next = pos->next; pos != (head); \
         pos = pos##_next, pos##_next = pos->next)

static inline void ddpi_list_init(struct ddpi_list *head)
{
    head->prev = head;
    head->next = head;
}

static inline bool ddpi_list_empty(const struct ddpi_list *head)
{
    return head->next == head;
}

static inline void ddpi_list_append(struct ddpi_list *head, struct ddpi_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void ddpi_list_remove(struct ddpi_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    ddpi_list_init(node);
}

/* Append all nodes of @from to @to, in their order; @from is empty then. */
static inline void ddpi_list_move_all(struct ddpi_list *to, struct ddpi_list *from)
{
    while (!ddpi_list_empty(from)) {
        struct ddpi_list *node = from->next;
        ddpi_list_remove(node);
        ddpi_list_append(to, node);
    }
}

#endif
