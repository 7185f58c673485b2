/*
 * store_trouble.c - see store_trouble.h. Looks whether the token file exists; owns nothing, prints
 * nothing.
 */
#include "store_trouble.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What the other program answers to is not known. */
static void not_a_store(const struct multi_node_config *config, const char *why,
                        char text[STORE_TROUBLE_TEXT])
{
    snprintf(text, STORE_TROUBLE_TEXT,
             "the program at %s is no store that this ddprun can use: %s; give another "
             "--rdzv-endpoint, or another port to that program",
             config->store, why);
}

/* A server that denies says no more than this word (SECURITY.md). For a node that has a token, the
 * likely cause is that the tokens differ. */
static void denied(const struct multi_node_config *config, const char *why,
                   char text[STORE_TROUBLE_TEXT])
{
    static const char copy[] = "copy the file that 'ddpctl token show-path' names on the store's "
                               "node";
    const char *file = config->token_file;
    if (file != NULL && access(file, F_OK) != 0)
        snprintf(text, STORE_TROUBLE_TEXT,
                 "nodes need a token for the store at %s, and this one has none: %s to %s here",
                 config->store, copy, file);
    else if (file != NULL && strcmp(why, "denied") == 0)
        snprintf(text, STORE_TROUBLE_TEXT,
                 "the store at %s refuses this node: most likely its token differs from %s; %s "
                 "over this one",
                 config->store, file, copy);
    else
        snprintf(text, STORE_TROUBLE_TEXT, "the store at %s refuses this node: %s", config->store,
                 why);
}

void store_trouble_refused(const struct multi_node_config *config, ddp_status status,
                           const char *why, char text[STORE_TROUBLE_TEXT])
{
    if (status == DDP_E_PROTOCOL)
        not_a_store(config, why, text);
    else if (status == DDP_E_DENIED)
        denied(config, why, text);
    else
        snprintf(text, STORE_TROUBLE_TEXT, "the store at %s refuses this node: %s", config->store,
                 why);
}

void store_trouble_lost(const struct multi_node_config *config, uint64_t patience_ms,
                        const char *why, char text[STORE_TROUBLE_TEXT])
{
    if (patience_ms == 0)
        snprintf(text, STORE_TROUBLE_TEXT, "the store at %s: %s; trying again", config->store, why);
    else
        snprintf(text, STORE_TROUBLE_TEXT,
                 "job '%s' waits for its store at %s, at most %" PRIu64 " s (--join-timeout): %s",
                 config->job, config->store, patience_ms / 1000, why);
}
