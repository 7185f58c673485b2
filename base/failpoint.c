/*
 * failpoint.c - the actions of failpoints. Owns the counters of hits, the only mutable state in
 * base; only a build with failpoints has them.
 */
#include "failpoint.h"

#include "parse.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRY_MAX = 128, ACTION_KILL = -1 };

/* "error:12" or "kill", without its count. */
static int parse_action(const char *text)
{
    int64_t number;
    if (strcmp(text, "kill") == 0)
        return ACTION_KILL;
    if (strncmp(text, "error:", 6) == 0 && ddpi_parse_int(text + 6, 1, 4095, &number, NULL) == 0)
        return (int)number;
    return 0;
}

int ddpi_failpoint_action(const char *spec, const char *name, unsigned hit)
{
    const char *item;
    size_t len, name_len = strlen(name);
    while (ddpi_parse_list_next(&spec, ';', &item, &len)) {
        char entry[ENTRY_MAX];
        if (len >= sizeof entry || len <= name_len || strncmp(item, name, name_len) != 0 ||
            item[name_len] != '=')
            continue;
        snprintf(entry, sizeof entry, "%.*s", (int)(len - name_len - 1), item + name_len + 1);
        char *at = strchr(entry, '@');
        int64_t wanted = hit;
        if (at != NULL && ddpi_parse_int(at + 1, 1, INT32_MAX, &wanted, NULL) != DDP_OK)
            continue;
        if (at != NULL)
            *at = '\0';
        if (wanted == hit)
            return parse_action(entry);
    }
    return 0;
}

#ifdef DDP_FAILPOINTS
enum { POINTS_MAX = 64 };

static unsigned count_hit(const char *name)
{
    static struct {
        const char *name;
        unsigned hits;
    } points[POINTS_MAX];
    for (size_t i = 0; i < POINTS_MAX; i++) {
        if (points[i].name == NULL)
            points[i].name = name;
        if (strcmp(points[i].name, name) == 0)
            return ++points[i].hits;
    }
    return 0;
}

int ddpi_failpoint(const char *name)
{
    const char *spec = getenv("DDPRUN_FAILPOINTS");
    int action = spec != NULL ? ddpi_failpoint_action(spec, name, count_hit(name)) : 0;
    if (action == ACTION_KILL)
        raise(SIGKILL);
    return action;
}
#endif
