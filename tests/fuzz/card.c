/*
 * card.c - fuzzes the card that a rank finds in the store. A decoded card keeps its length
 * when it is encoded, comes back the same, and its texts can be printed.
 */
#include "peer_card.h"
#include "sockets.h"

#include "fuzz.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void printable(const char *text, size_t size)
{
    size_t len = strnlen(text, size);
    HOLDS(len < size);
    for (size_t i = 0; i < len; i++)
        HOLDS(isgraph((unsigned char)text[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddpi_card card, again;
    uint8_t *exact = fuzz_copy(data, size);
    bool good = ddpi_card_decode(exact, size, &card);
    free(exact);
    if (!good)
        return 0;
    printable(card.machine, sizeof card.machine);
    printable(card.node, sizeof card.node);
    printable(card.local, sizeof card.local);
    char address[DDPI_ADDRESS_TEXT];
    ddpi_address_text(&card.tcp, address);
    HOLDS(strlen(address) > 0 && address[0] != '?' && address[1] != '?');
    HOLDS(ddpi_address_len(&card.tcp) <= sizeof card.tcp);

    struct ddpi_buf wire;
    ddpi_buf_init(&wire, DDPI_CARD_WIRE_MAX);
    HOLDS(ddpi_card_encode(&card, &wire));
    HOLDS(ddpi_buf_len(&wire) == size);
    HOLDS(ddpi_card_decode(ddpi_buf_head(&wire), ddpi_buf_len(&wire), &again));
    ddpi_buf_finish(&wire);
    HOLDS(strcmp(card.machine, again.machine) == 0 && strcmp(card.node, again.node) == 0 &&
          strcmp(card.local, again.local) == 0);
    HOLDS(memcmp(card.id, again.id, sizeof card.id) == 0 && card.keyed == again.keyed);
    HOLDS(card.world_size == again.world_size && card.pid == again.pid && card.shm == again.shm);
    HOLDS(card.sockets == again.sockets && card.sockets >= 1 && card.sockets <= DDPI_SOCKETS_MAX);
    HOLDS(memcmp(&card.tcp, &again.tcp, sizeof card.tcp) == 0);
    HOLDS(ddpi_card_share_memory(&card, &again) == (card.shm && card.machine[0] != '\0'));
    return 0;
}
