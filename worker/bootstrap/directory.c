/*
 * directory.c - what all kinds of directories share. Owns nothing.
 */
#include "directory.h"

#include "sockets.h"

#include <stdio.h>
#include <string.h>

void ddpi_directory_key(const struct ddpi_config *config, char key[DDPI_HOST_KEY])
{
    snprintf(key, DDPI_HOST_KEY, "comm/%s/host", config->name);
}

bool ddpi_entry_fill(struct ddpi_entry *entry, const struct ddpi_card *card)
{
    struct ddpi_buf wire;
    ddpi_buf_init(&wire, sizeof entry->card);
    bool fits = ddpi_card_encode(card, &wire);
    if (fits) {
        entry->len = ddpi_buf_len(&wire);
        memcpy(entry->card, ddpi_buf_head(&wire), entry->len);
    }
    ddpi_buf_finish(&wire);
    return fits;
}

void ddpi_directory_close(struct ddpi_directory *directory)
{
    if (directory == NULL)
        return;
    ddpi_close_fd(&directory->door);
    ddpi_wipe(&directory->key, sizeof directory->key);
    directory->ops->close(directory);
}
