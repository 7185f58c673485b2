/*
 * timers.c - a list of countdowns. Owns the list and the scopes in it.
 */
#include "timers.h"

#include "mem.h"

#include <string.h>

static struct timer_entry *find_timer(const struct timers *timers, pid_t pid, const char *scope)
{
    for (size_t i = 0; i < timers->count; i++)
        if (timers->entries[i].pid == pid && strcmp(timers->entries[i].scope, scope) == 0)
            return &timers->entries[i];
    return NULL;
}

static bool make_timer_room(struct timers *timers)
{
    enum { STEP = 64 };
    if (timers->count == TIMERS_MAX)
        return false;
    if (timers->count % STEP != 0)
        return true;
    struct timer_entry *more =
        ddpi_realloc(timers->entries, timers->count + STEP, sizeof *timers->entries);
    if (more != NULL)
        timers->entries = more;
    return more != NULL;
}

bool timers_set(struct timers *timers, pid_t pid, const char *scope, uint64_t due_ms, int signal)
{
    struct timer_entry *entry = find_timer(timers, pid, scope);
    char *copy = NULL;
    if (entry == NULL && (!make_timer_room(timers) || (copy = ddpi_strdup(scope)) == NULL))
        return false;
    if (entry == NULL) {
        entry = &timers->entries[timers->count++];
        entry->scope = copy;
    }
    entry->pid = pid;
    entry->due_ms = due_ms;
    entry->signal = signal;
    return true;
}

/* The last entry takes its place. */
static void remove_entry(struct timers *timers, struct timer_entry *entry)
{
    *entry = timers->entries[--timers->count];
}

void timers_release(struct timers *timers, pid_t pid, const char *scope)
{
    struct timer_entry *entry = find_timer(timers, pid, scope);
    if (entry == NULL)
        return;
    ddpi_free(entry->scope);
    remove_entry(timers, entry);
}

void timers_clear(struct timers *timers)
{
    for (size_t i = 0; i < timers->count; i++)
        ddpi_free(timers->entries[i].scope);
    ddpi_free(timers->entries);
    *timers = (struct timers){0};
}

uint64_t timers_next_ms(const struct timers *timers)
{
    uint64_t first_ms = UINT64_MAX;
    for (size_t i = 0; i < timers->count; i++)
        if (timers->entries[i].due_ms < first_ms)
            first_ms = timers->entries[i].due_ms;
    return first_ms;
}

static bool comes_first(const struct timer_entry *a, const struct timer_entry *b)
{
    if ((a->signal > 0) != (b->signal > 0))
        return a->signal > 0;
    return a->due_ms < b->due_ms;
}

bool timers_take_due(struct timers *timers, uint64_t now_ms, struct timer_entry *ret)
{
    struct timer_entry *first = NULL;
    for (size_t i = 0; i < timers->count; i++) {
        struct timer_entry *entry = &timers->entries[i];
        if (entry->due_ms <= now_ms && (first == NULL || comes_first(entry, first)))
            first = entry;
    }
    if (first == NULL)
        return false;
    *ret = *first;
    remove_entry(timers, first);
    for (size_t i = 0; i < timers->count;)
        if (timers->entries[i].pid == ret->pid) {
            ddpi_free(timers->entries[i].scope);
            remove_entry(timers, &timers->entries[i]);
        } else {
            i++;
        }
    return true;
}
