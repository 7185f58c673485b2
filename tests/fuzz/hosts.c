/*
 * hosts.c - fuzzes what names the hosts of a job, and what is said to their agents. The input is
 * one text, given to every parser: a host file, the list of a command line, a choice among three
 * hosts, a list of Slurm's, and lines of a leash.
 */
#include "host_list.h"
#include "leash_text.h"
#include "slurm_hosts.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

/* What the remote shell must never take for an option, or for more than a word. */
static void check_list(const struct host_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct host_entry *entry = &list->entries[i];
        HOLDS(entry->name[0] != '\0' && entry->name[0] != '-' && entry->user[0] != '-');
        HOLDS(strpbrk(entry->name, " ;$`'\"\\/@\n") == NULL);
        HOLDS(entry->slots <= HOST_SLOTS_MAX);
    }
}

static void read_list(const char *text, bool file)
{
    struct host_list list = {0};
    struct ddp_error err;
    ddp_status status =
        file ? host_list_add_file(&list, text, "file", &err) : host_list_add(&list, text, &err);
    if (status == DDP_OK) {
        HOLDS(list.count > 0);
        check_list(&list);
    } else {
        fuzz_check_error(&err, status);
    }
    host_list_finish(&list);
}

static void choose(const char *text, bool include)
{
    struct host_list list = {0};
    struct ddp_error err;
    HOLDS(host_list_add(&list, "a:2,b:4096,c", NULL) == DDP_OK);
    ddp_status status = host_list_choose(&list, include ? text : NULL, include ? NULL : text, &err);
    if (status == DDP_OK)
        check_list(&list);
    else
        fuzz_check_error(&err, status);
    host_list_finish(&list);
}

static ddp_status take_host(void *ctx, const char *name, size_t len, struct ddp_error *err)
{
    (void)err;
    HOLDS(len > 0 && len < DDPI_HOST_MAX && memchr(name, '\0', len) == NULL);
    --*(uint32_t *)ctx;
    return DDP_OK;
}

static void expand(const char *text)
{
    uint32_t left = 1000;
    struct ddp_error err;
    ddp_status status = slurm_hosts_each(text, left, take_host, &left, &err);
    HOLDS(left <= 1000);
    if (status != DDP_OK)
        fuzz_check_error(&err, status);
}

static void read_leash(char *text)
{
    struct leash_line line;
    struct ddp_error err;
    for (char *word; (word = strsep(&text, "\n")) != NULL;) {
        ddp_status status = leash_parse(word, &line, &err);
        if (status != DDP_OK)
            fuzz_check_error(&err, status);
        else if (line.kind == LEASH_VARIABLE)
            HOLDS(strchr(line.text, '=') != NULL && *line.text != '=');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    read_list(text, true);
    read_list(text, false);
    choose(text, true);
    choose(text, false);
    expand(text);
    read_leash(text);
    free(text);
    return 0;
}
