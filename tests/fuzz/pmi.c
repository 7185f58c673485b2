/*
 * pmi.c - fuzzes what MPI ranks and other nodes say to a node's process manager: lines of two
 * ranks, and texts of a second node. Whatever comes, answers are whole lines, to ranks that are
 * still connected.
 *
 * The input is messages, each ended by a byte 0xff. A message's first byte: bit 0, from rank 1; bit
 * 1, a text of the other node instead; bit 2, the rank has ended instead.
 */
#include "pmi_node.h"
#include "pmi_node_exchange.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 2 };

struct seen {
    bool gone[RANKS];
};

static void on_reply(void *ctx, uint32_t local, const char *text, size_t len)
{
    struct seen *seen = ctx;
    HOLDS(local < RANKS && !seen->gone[local]);
    HOLDS(len > 5 && memcmp(text, "cmd=", 4) == 0 && text[len - 1] == '\n');
    HOLDS(memchr(text, '\n', len - 1) == NULL && memchr(text, '\0', len) == NULL);
}

static void on_hang_up(void *ctx, uint32_t local)
{
    struct seen *seen = ctx;
    HOLDS(local < RANKS && !seen->gone[local]);
    seen->gone[local] = true;
}

static void on_aborted(void *ctx, uint32_t local, int exit_code)
{
    (void)ctx;
    (void)exit_code;
    HOLDS(local < RANKS);
}

static ddp_status on_exchange(void *ctx, uint32_t number, const char *text, size_t len,
                              struct ddp_error *err)
{
    (void)ctx;
    (void)number;
    (void)err;
    HOLDS(len == 0 || text[len - 1] == '\n');
    return DDP_OK;
}

static void on_say(void *ctx, const char *line)
{
    (void)ctx;
    for (; *line != '\0'; line++)
        HOLDS((unsigned char)*line >= ' ');
}

static void say(struct pmi_node *node, struct seen *seen, const uint8_t *bytes, size_t len)
{
    uint32_t local = bytes[0] & 1;
    char *text = (char *)fuzz_copy(bytes + 1, len - 1);
    if (bytes[0] & 2) {
        pmi_node_exchange_text(node, 1, text, len - 1);
    } else if (bytes[0] & 4) {
        seen->gone[local] = true;
        pmi_node_gone(node, local);
    } else if (len - 1 <= PMI_LINE_MAX && memchr(text, '\n', len - 1) == NULL) {
        pmi_node_line(node, local, text, len - 1);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen seen = {0};
    const struct pmi_node_hooks hooks = {&seen,      on_reply,    on_hang_up,
                                         on_aborted, on_exchange, on_say};
    const struct pmi_place place = {
        .generation = 1, .nproc = RANKS, .world_size = 2 * RANKS, .nodes = 2};
    struct pmi_node *node = pmi_node_create(&place, &hooks);
    HOLDS(node != NULL);
    while (size > 0) {
        const uint8_t *end = memchr(data, 0xff, size);
        size_t len = end != NULL ? (size_t)(end - data) : size;
        if (len > 0)
            say(node, &seen, data, len);
        len += end != NULL;
        data += len;
        size -= len;
    }
    pmi_node_destroy(node);
    return 0;
}
