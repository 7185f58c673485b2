/*
 * linebuf.c - fuzzes how a worker's output is cut into lines. The lines, one behind the other, are
 * the input; each but the last ends where a line ends; and how the input arrived does not matter.
 *
 * The input's first byte: bit 0, '\r' ends a line too; the rest, the longest piece (0: one byte).
 */
#include "linebuf.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

struct lines {
    const uint8_t *input; /* what is to come next */
    size_t left;
    size_t count;
    uint64_t ends; /* where the lines end, as a sum that depends on the order */
    bool split_at_cr;
    bool flushing; /* a line without an end may come */
};

static void on_line(void *ctx, const char *text, size_t len)
{
    struct lines *lines = ctx;
    HOLDS(len > 0 && len <= lines->left);
    HOLDS(memcmp(text, lines->input, len) == 0);
    HOLDS(memchr(text, '\n', len - 1) == NULL);
    if (lines->split_at_cr && len > 1) {
        const char *cr = memchr(text, '\r', len - 1);
        HOLDS(cr == NULL || (cr == text + len - 2 && text[len - 1] == '\n'));
    }
    char last = text[len - 1];
    HOLDS(last == '\n' || (lines->split_at_cr && last == '\r') || lines->flushing);
    lines->input += len;
    lines->left -= len;
    /* "\r\n" is one end. */
    HOLDS(!lines->split_at_cr || last != '\r' || lines->left == 0 || *lines->input != '\n');
    lines->count++;
    lines->ends = lines->ends * 31 + lines->left;
}

static struct lines cut(const uint8_t *bytes, size_t len, bool split_at_cr, size_t piece_max)
{
    struct linebuf buf;
    struct lines lines = {.input = bytes, .left = len, .split_at_cr = split_at_cr};
    uint32_t state = (uint32_t)piece_max;
    linebuf_init(&buf, split_at_cr);
    for (size_t at = 0; at < len;) {
        state = state * 1664525u + 1013904223u;
        size_t piece = 1 + (state >> 16) % piece_max;
        piece = piece < len - at ? piece : len - at;
        uint8_t *exact = fuzz_copy(bytes + at, piece);
        linebuf_feed(&buf, (const char *)exact, piece, 0, on_line, &lines);
        free(exact);
        at += piece;
    }
    lines.flushing = true;
    linebuf_flush(&buf, on_line, &lines);
    HOLDS(lines.left == 0);
    linebuf_finish(&buf);
    return lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    bool split_at_cr = data[0] & 1;
    struct lines pieces = cut(data + 1, size - 1, split_at_cr, 1 + data[0] / 2);
    struct lines whole = cut(data + 1, size - 1, split_at_cr, size * 65536);
    HOLDS(pieces.count == whole.count && pieces.ends == whole.ends);
    return 0;
}
