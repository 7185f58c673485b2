/*
 * blame.c - what is held against nodes, by their names: of how many failures in a row each was the
 * first cause, and whether these sent it into quarantine; and why members are left out. Owns the
 * names. README.md defines "in a row".
 */
#include "rounds_impl.h"

#include "mem.h"

#include <stdio.h>
#include <string.h>

enum { WHY_SHOWN = 100 }; /* bytes of a reason, where several nodes share a text */

struct blamed_name {
    struct ddpi_table_node node;
    char name[DDP_ROUND_NAME_SIZE];
    struct ddpi_rounds_blame blame;
};

static struct blamed_name *blamed_find(const struct ddpi_rounds *rounds, const char *name)
{
    struct ddpi_table_node *node = ddpi_table_find(&rounds->blamed, name, strlen(name));
    return node != NULL ? ddpi_container_of(node, struct blamed_name, node) : NULL;
}

/* NULL: no memory, or no node can have this name. */
static struct blamed_name *blamed_need(struct ddpi_rounds *rounds, const char *name)
{
    struct blamed_name *blamed = blamed_find(rounds, name);
    size_t len = strlen(name);
    if (blamed != NULL || len >= DDP_ROUND_NAME_SIZE)
        return blamed;
    blamed = ddpi_calloc(1, sizeof(*blamed));
    if (blamed == NULL)
        return NULL;
    memcpy(blamed->name, name, len);
    blamed->node.key = blamed->name;
    blamed->node.key_len = len;
    if (ddpi_table_insert(&rounds->blamed, &blamed->node))
        return blamed;
    ddpi_free(blamed);
    return NULL;
}

static void tell_blame(const struct ddpi_rounds *rounds, const char *name,
                       const struct ddpi_rounds_blame *blame)
{
    if (rounds->hooks.blame != NULL)
        rounds->hooks.blame(rounds->hooks.ctx, name, blame);
}

static void forget_blame(struct ddpi_rounds *rounds, const char *name)
{
    struct blamed_name *blamed = blamed_find(rounds, name);
    if (blamed == NULL)
        return;
    ddpi_table_remove(&rounds->blamed, &blamed->node);
    tell_blame(rounds, blamed->name, NULL);
    ddpi_free(blamed);
}

void ddpi_rounds_forget_all_blame(struct ddpi_rounds *rounds)
{
    ddpi_table_finish_free(&rounds->blamed, offsetof(struct blamed_name, node));
}

void ddpi_rounds_forgive_all(struct ddpi_rounds *rounds)
{
    struct ddpi_table_iter iter = {0};
    for (struct ddpi_table_node *node; (node = ddpi_table_next(&rounds->blamed, &iter)) != NULL;)
        tell_blame(rounds, ddpi_container_of(node, struct blamed_name, node)->name, NULL);
    ddpi_rounds_forget_all_blame(rounds);
    ddpi_list_for_each (at, &rounds->members)
        ddpi_rounds_member_of(at)->quarantined = false;
}

/* ---- quarantine ---- */

bool ddpi_rounds_in_quarantine(const struct ddpi_rounds *rounds, const char *name)
{
    const struct blamed_name *blamed = blamed_find(rounds, name);
    return blamed != NULL && blamed->blame.left_out;
}

/* Members named @name are in quarantine, or no longer. */
static void mark_members(struct ddpi_rounds *rounds, const char *name, bool quarantined)
{
    ddpi_list_for_each (at, &rounds->members) {
        struct round_member *member = ddpi_rounds_member_of(at);
        if (member->late || strcmp(member->says.name, name) != 0)
            continue;
        member->quarantined = quarantined;
        ddpi_rounds_recount(rounds, member);
        ddpi_rounds_look_at(rounds, member);
    }
}

/* Nodes of a generation that ran for long enough, and are not to blame for its end, are well. */
static void clear_proven(struct ddpi_rounds *rounds, const char *culprit)
{
    if (rounds->blamed.count == 0)
        return;
    ddpi_list_for_each (at, &rounds->members) {
        const struct round_member *member = ddpi_rounds_member_of(at);
        if (member->seated && !member->quarantined && strcmp(member->says.name, culprit) != 0)
            forget_blame(rounds, member->says.name);
    }
}

/* Without memory the failure counts as any other. */
static bool count_against(struct ddpi_rounds *rounds, const struct round_failure *root)
{
    struct blamed_name *blamed = blamed_need(rounds, root->node);
    if (blamed == NULL)
        return false;
    struct ddpi_rounds_blame *blame = &blamed->blame;
    blame->failures++;
    blame->left_out = blame->failures >= rounds->terms.quarantine;
    ddpi_rounds_say(blame->text, "%s", root->record.text);
    tell_blame(rounds, root->node, blame);
    if (!blame->left_out)
        return false;
    mark_members(rounds, root->node, true);
    ddpi_rounds_say(rounds->reason, "node %s is left out: first cause of %u failure%s in a row: %s",
                    root->node, blame->failures, blame->failures == 1 ? "" : "s",
                    root->record.text);
    return true;
}

bool ddpi_rounds_assign_blame(struct ddpi_rounds *rounds, bool failed)
{
    const struct round_failure root = rounds->root;
    if (rounds->terms.quarantine == 0)
        return false;
    if (rounds->proven)
        clear_proven(rounds, failed ? root.node : "");
    return failed && count_against(rounds, &root);
}

void ddpi_rounds_admit(struct ddpi_rounds *rounds, const char *name)
{
    forget_blame(rounds, name);
    mark_members(rounds, name, false);
    ddpi_list_for_each (at, &rounds->members) {
        struct round_member *member = ddpi_rounds_member_of(at);
        if (!member->late && member->says.sick[0] != '\0' && strcmp(member->says.name, name) == 0)
            member->check = member->says.checks + 1;
    }
}

ddp_status ddpi_rounds_restore_blame(struct ddpi_rounds *rounds, const char *name,
                                     const struct ddpi_rounds_blame *blame)
{
    struct blamed_name *blamed = blamed_need(rounds, name);
    if (blamed == NULL)
        return DDP_E_NOMEM;
    blamed->blame = *blame;
    mark_members(rounds, name, blame->left_out);
    return DDP_OK;
}

/* ---- what is said of it ---- */

static void say_blame(const struct ddpi_rounds_blame *blame, char *text)
{
    ddpi_rounds_say(text, "first cause of %u failure%s in a row: %s", blame->failures,
                    blame->failures == 1 ? "" : "s", blame->text);
}

bool ddpi_rounds_why_left_out(const struct ddpi_rounds *rounds, const struct round_member *member,
                              char *text)
{
    if (member->late || (!member->quarantined && member->says.sick[0] == '\0'))
        return false;
    const struct blamed_name *blamed = blamed_find(rounds, member->says.name);
    if (member->says.sick[0] != '\0' || blamed == NULL)
        ddpi_rounds_say(text, "%s", member->says.sick);
    else
        say_blame(&blamed->blame, text);
    return true;
}

/* A list of nodes in a sentence that has little room. */
struct list_of_nodes {
    char text[DDP_ROUND_TEXT_SIZE];
    uint32_t named;
    uint32_t more; /* for which there was no room */
};

static void add_node(struct list_of_nodes *list, const char *name, const char *why)
{
    static const char around[] = "; left out: node  (), and 1000000 more";
    size_t used = strlen(list->text);
    size_t needed = strlen(name) + WHY_SHOWN + sizeof around;
    if (list->more != 0 || used + needed > sizeof list->text) {
        list->more++;
        return;
    }
    (void)snprintf(list->text + used, sizeof list->text - used, "%snode %s (%.*s)",
                   list->named == 0 ? "; left out: " : ", ", name, WHY_SHOWN, why);
    list->named++;
}

static bool is_here(const struct ddpi_rounds *rounds, const char *name)
{
    ddpi_list_for_each (at, &rounds->members)
        if (strcmp(ddpi_rounds_member_of(at)->says.name, name) == 0)
            return true;
    return false;
}

/* Nodes in quarantine that have gone: they may be why others wait. */
static void add_gone(const struct ddpi_rounds *rounds, struct list_of_nodes *list)
{
    char why[DDP_ROUND_TEXT_SIZE];
    struct ddpi_table_iter iter = {0};
    for (struct ddpi_table_node *node; (node = ddpi_table_next(&rounds->blamed, &iter)) != NULL;) {
        const struct blamed_name *blamed = ddpi_container_of(node, struct blamed_name, node);
        if (!blamed->blame.left_out || is_here(rounds, blamed->name))
            continue;
        say_blame(&blamed->blame, why);
        add_node(list, blamed->name, why);
    }
}

void ddpi_rounds_say_left_out(const struct ddpi_rounds *rounds, char *text)
{
    char why[DDP_ROUND_TEXT_SIZE];
    struct list_of_nodes list = {0};
    (void)snprintf(list.text, sizeof list.text, "%s", text);
    ddpi_list_for_each (at, &rounds->members) {
        const struct round_member *member = ddpi_rounds_member_of(at);
        if ((member->traits >> ROUND_LEFT_OUT & 1) && ddpi_rounds_why_left_out(rounds, member, why))
            add_node(&list, member->says.name, why);
    }
    add_gone(rounds, &list);
    size_t used = strlen(list.text);
    if (list.more != 0)
        (void)snprintf(list.text + used, sizeof list.text - used, "%s%u more",
                       list.named == 0 ? "; left out: " : ", and ", list.more);
    ddpi_rounds_say(text, "%s", list.text);
}
