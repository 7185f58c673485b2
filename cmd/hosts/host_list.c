/*
 * host_list.c - parses lists of hosts. Owns their array. Names are looked up in a table only while
 * a list is made, as a file may have ten thousand of them.
 */
#include "host_list.h"

#include "error.h"
#include "mem.h"
#include "slurm_hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int quoted_len(size_t len)
{
    return (int)(len < 64 ? len : 64);
}

void host_list_finish(struct host_list *list)
{
    ddpi_free(list->entries);
    *list = (struct host_list){0};
}

static ddp_status add_entry(struct host_list *list, const struct host_entry *entry,
                            struct ddp_error *err)
{
    if (list->count == HOST_LIST_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "there are more than %d hosts", HOST_LIST_MAX);
    if (list->count == list->room) {
        size_t room = list->room > 0 ? list->room * 2 : 16;
        struct host_entry *entries = ddpi_realloc(list->entries, room, sizeof *entries);
        if (entries == NULL)
            return ddpi_error_nomem(err, room * sizeof *entries);
        list->entries = entries;
        list->room = room;
    }
    list->entries[list->count++] = *entry;
    return DDP_OK;
}

/* ---- names and slots ---- */

static bool is_name(const char *text, size_t len)
{
    bool ok = len > 0 && *text != '-'; /* the remote shell would take it for an option */
    for (size_t i = 0; i < len && ok; i++)
        ok = isalnum((unsigned char)text[i]) || strchr("._-:%", text[i]) != NULL;
    return ok;
}

/* "USER@HOST", "HOST", "[ADDRESS]". */
static ddp_status read_name(const char *text, size_t len, struct host_entry *ret,
                            struct ddp_error *err)
{
    const char *at = memchr(text, '@', len), *host = at != NULL ? at + 1 : text;
    size_t user_len = at != NULL ? (size_t)(at - text) : 0, host_len = len - (size_t)(host - text);
    if (host_len > 1 && *host == '[' && host[host_len - 1] == ']') {
        host++;
        host_len -= 2;
    }
    if (!is_name(host, host_len) || host_len >= sizeof ret->name ||
        (at != NULL && (!is_name(text, user_len) || user_len >= sizeof ret->user)))
        return ddpi_error_set(err, DDP_E_INVALID, "'%.*s' is not the name of a host",
                              quoted_len(len), text);
    snprintf(ret->user, sizeof ret->user, "%.*s", (int)user_len, text);
    snprintf(ret->name, sizeof ret->name, "%.*s", (int)host_len, host);
    return DDP_OK;
}

static ddp_status read_slots(const char *text, size_t len, uint32_t *ret, struct ddp_error *err)
{
    char number[16];
    int64_t value;
    snprintf(number, sizeof number, "%.*s", len < sizeof number ? (int)len : 15, text);
    ddp_status status = ddpi_parse_int(number, 1, HOST_SLOTS_MAX, &value, NULL);
    if (status != DDP_OK)
        return ddpi_error_set(err, status, "'%.*s' is not a number of slots from 1 to %d",
                              quoted_len(len), text, HOST_SLOTS_MAX);
    *ret = (uint32_t)value;
    return DDP_OK;
}

/* The length of the name in "HOST:SLOTS"; @len if there are no slots. Colons of an address are in
 * brackets. */
static size_t name_len(const char *text, size_t len)
{
    const char *close = memchr(text, ']', len);
    const char *from = close != NULL && memchr(text, '[', len) != NULL ? close : text;
    const char *colon = memchr(from, ':', len - (size_t)(from - text));
    return colon != NULL ? (size_t)(colon - text) : len;
}

/* ---- lists ---- */

static int by_name(const void *a, const void *b)
{
    const struct host_entry *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    return order != 0 ? order : (*x < *y ? -1 : 1);
}

static ddp_status twice(const struct host_entry *first, const struct host_entry *second,
                        const char *file, struct ddp_error *err)
{
    if (file != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s: host '%.64s' is listed twice, in lines %u and %u: write it "
                              "once, with the sum of the slots",
                              file, first->name, first->line, second->line);
    return ddpi_error_set(err, DDP_E_INVALID,
                          "host '%.64s' is listed twice: write it once, with the sum of the slots",
                          first->name);
}

/* A host that is listed twice would get two launchers. */
static ddp_status check_twice(const struct host_list *list, const char *file, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    const struct host_entry **sorted = ddpi_calloc(list->count + 1, sizeof *sorted);
    if (sorted == NULL)
        return ddpi_error_nomem(err, list->count * sizeof *sorted);
    for (size_t i = 0; i < list->count; i++)
        sorted[i] = &list->entries[i];
    qsort(sorted, list->count, sizeof *sorted, by_name);
    for (size_t i = 1; i < list->count && status == DDP_OK; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = twice(sorted[i - 1], sorted[i], file, err);
    ddpi_free(sorted);
    return status;
}

struct expanding {
    struct host_list *list;
    struct host_entry entry; /* of which the name is replaced */
};

static ddp_status add_expanded(void *ctx, const char *name, size_t len, struct ddp_error *err)
{
    struct expanding *expanding = ctx;
    ddp_status status = read_name(name, len, &expanding->entry, err);
    return status == DDP_OK ? add_entry(expanding->list, &expanding->entry, err) : status;
}

/* An address in brackets has colons; n[01-04] has none there. */
static bool is_range(const char *text, size_t len)
{
    const char *open = memchr(text, '[', len);
    const char *close = open != NULL ? memchr(open, ']', len - (size_t)(open - text)) : NULL;
    return close != NULL && memchr(open, ':', (size_t)(close - open)) == NULL;
}

/* "HOST", "HOST:SLOTS". */
static ddp_status add_item(struct host_list *list, const char *text, size_t len, uint32_t line,
                           struct ddp_error *err)
{
    struct expanding expanding = {.list = list, .entry = {.line = line}};
    char name[DDPI_HOST_MAX];
    size_t host_len = name_len(text, len);
    ddp_status status = DDP_OK;
    if (host_len < len)
        status = read_slots(text + host_len + 1, len - host_len - 1, &expanding.entry.slots, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "host '%.*s'", quoted_len(host_len), text);
    if (!is_range(text, host_len))
        return add_expanded(&expanding, text, host_len, err);
    if (host_len >= sizeof name)
        return ddpi_error_set(err, DDP_E_INVALID, "'%.64s...' is too long", text);
    snprintf(name, sizeof name, "%.*s", (int)host_len, text);
    return slurm_hosts_each(name, HOST_LIST_MAX, add_expanded, &expanding, err);
}

ddp_status host_list_add(struct host_list *list, const char *text, struct ddp_error *err)
{
    for (;;) {
        size_t len = slurm_hosts_item(text);
        ddp_status status = add_item(list, text, len, 0, err);
        if (status != DDP_OK || text[len] == '\0')
            return status == DDP_OK ? check_twice(list, NULL, err) : status;
        text += len + 1;
    }
}

/* ---- files ---- */

/* "slots=8", with other words such as mpirun's "max_slots=8" ignored. */
static ddp_status read_word(struct host_entry *entry, const char *word, size_t len,
                            struct ddp_error *err)
{
    static const char slots[] = "slots=", most[] = "max_slots=", other[] = "max-slots=";
    if (len >= strlen(slots) && memcmp(word, slots, strlen(slots)) == 0)
        return read_slots(word + strlen(slots), len - strlen(slots), &entry->slots, err);
    if (len >= strlen(most) &&
        (memcmp(word, most, strlen(most)) == 0 || memcmp(word, other, strlen(other)) == 0))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID, "'%.*s' is not slots=N", quoted_len(len), word);
}

static ddp_status add_line(struct host_list *list, const char *text, size_t len, uint32_t line,
                           struct ddp_error *err)
{
    static const char blanks[] = " \t\r";
    const char *remark = memchr(text, '#', len), *end = remark != NULL ? remark : text + len;
    size_t before = list->count, words = 0;
    ddp_status status = DDP_OK;
    while (status == DDP_OK) {
        while (text < end && strchr(blanks, *text) != NULL)
            text++;
        const char *word = text;
        while (text < end && strchr(blanks, *text) == NULL)
            text++;
        if (text == word)
            return DDP_OK;
        size_t word_len = (size_t)(text - word);
        if (words++ == 0)
            status = memchr(word, '\0', word_len) != NULL
                         ? ddpi_error_set(err, DDP_E_INVALID, "there is a NUL byte")
                         : add_item(list, word, word_len, line, err);
        else
            status = read_word(&list->entries[before], word, word_len, err);
        for (size_t i = before + 1; words > 1 && i < list->count; i++)
            list->entries[i].slots = list->entries[before].slots;
    }
    return status;
}

ddp_status host_list_add_file(struct host_list *list, const char *text, const char *file,
                              struct ddp_error *err)
{
    for (uint32_t line = 1; *text != '\0'; line++) {
        size_t len = strcspn(text, "\n");
        ddp_status status = add_line(list, text, len, line, err);
        if (status != DDP_OK)
            return ddpi_error_wrap(err, status, "%s, line %u", file, line);
        text += len + (text[len] != '\0');
    }
    if (list->count == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "%s lists no host", file);
    return check_twice(list, file, err);
}

/* ---- a choice of hosts and slots ---- */

/* What --include or --exclude say of a host: all of it, or some slots. */
struct choice {
    bool named, all;
    bool slots[HOST_SLOTS_MAX];
};

static ddp_status read_choice(struct choice *choice, const struct host_entry *entry,
                              const char *text, size_t len, struct ddp_error *err)
{
    size_t host_len = name_len(text, len);
    choice->named = true;
    choice->all = choice->all || host_len == len;
    const char *end = text + len;
    for (const char *at = text + host_len; at < end;) {
        char number[16];
        int64_t slot;
        const char *comma = memchr(at + 1, ',', (size_t)(end - at - 1));
        const char *stop = comma != NULL ? comma : end;
        snprintf(number, sizeof number, "%.*s", (int)(stop - at - 1 < 15 ? stop - at - 1 : 15),
                 at + 1);
        uint32_t slots = entry->slots > 0 ? entry->slots : HOST_SLOTS_MAX;
        if (ddpi_parse_int(number, 0, (int64_t)slots - 1, &slot, NULL) != DDP_OK)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "host '%.64s' has no slot '%s': they go from 0 to %u",
                                  entry->name, number, slots - 1);
        choice->slots[slot] = true;
        at = stop;
    }
    return DDP_OK;
}

/* Apply the choice to the entry. False: nothing of it is left. */
static ddp_status apply_choice(struct host_entry *entry, const struct choice *choice, bool include,
                               bool *ret_left, struct ddp_error *err)
{
    *ret_left = include ? choice->named : !choice->all;
    if (!*ret_left || choice->all || !choice->named)
        return DDP_OK;
    if (entry->slots == 0 && !include)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "slots of host '%.64s' cannot be excluded, as the list does not say how many it has",
            entry->name);
    uint32_t last = entry->slots > 0 ? entry->slots : HOST_SLOTS_MAX;
    size_t used = 0;
    entry->slots = 0;
    for (uint32_t slot = 0; slot < last; slot++) {
        if (choice->slots[slot] != include)
            continue;
        used += (size_t)snprintf(entry->devices + used, sizeof entry->devices - used, "%s%u",
                                 used > 0 ? "," : "", slot);
        if (used >= sizeof entry->devices)
            return ddpi_error_set(err, DDP_E_INVALID, "host '%.64s' has too many chosen slots",
                                  entry->name);
        entry->slots++;
    }
    *ret_left = entry->slots > 0;
    return DDP_OK;
}

/* Whether the item of a choice names @entry. */
static bool names(const struct host_entry *entry, const char *text, size_t len)
{
    size_t host_len = name_len(text, len);
    if (host_len > 1 && *text == '[') {
        text++;
        host_len -= 2;
    }
    return strlen(entry->name) == host_len && memcmp(entry->name, text, host_len) == 0;
}

static ddp_status check_known(const struct host_list *list, const char *text, struct ddp_error *err)
{
    const char *item;
    size_t len;
    for (const char *cursor = text; ddpi_parse_list_next(&cursor, '@', &item, &len);) {
        size_t i = 0;
        while (i < list->count && !names(&list->entries[i], item, len))
            i++;
        if (i == list->count)
            return ddpi_error_set(err, DDP_E_INVALID, "host '%.*s' is not in the list of hosts",
                                  quoted_len(name_len(item, len)), item);
    }
    return DDP_OK;
}

ddp_status host_list_choose(struct host_list *list, const char *include, const char *exclude,
                            struct ddp_error *err)
{
    bool including = include != NULL && *include != '\0';
    const char *text = including ? include : exclude, *item;
    size_t left = 0, len;
    if (text == NULL || *text == '\0')
        return DDP_OK;
    ddp_status status = check_known(list, text, err);
    for (size_t i = 0; i < list->count && status == DDP_OK; i++) {
        struct host_entry entry = list->entries[i];
        struct choice choice = {.named = false};
        bool stays = false;
        for (const char *cursor = text;
             status == DDP_OK && ddpi_parse_list_next(&cursor, '@', &item, &len);)
            if (names(&entry, item, len))
                status = read_choice(&choice, &entry, item, len, err);
        if (status == DDP_OK)
            status = apply_choice(&entry, &choice, including, &stays, err);
        if (stays)
            list->entries[left++] = entry;
    }
    list->count = left;
    if (status == DDP_OK && left == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "no host is left");
    return status;
}

ddp_status host_list_limit(struct host_list *list, uint32_t workers, struct ddp_error *err)
{
    uint32_t left = workers;
    for (size_t i = 0; i < list->count; i++) {
        struct host_entry *entry = &list->entries[i];
        if (entry->slots == 0)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "%u workers cannot be divided among the hosts: '%.64s' has no "
                                  "number of slots, as in '%.64s:4'",
                                  workers, entry->name, entry->name);
        if (entry->slots < left) {
            left -= entry->slots;
            continue;
        }
        entry->slots = left;
        list->count = i + 1;
        return DDP_OK;
    }
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%u workers need more slots than the %u that the hosts have", workers,
                          workers - left);
}
