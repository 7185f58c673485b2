/*
 * test_units.c - jobs cut into units: for every schedule and many sizes, neighbours agree on what
 * goes between them, unit by unit, and each rank has what it passes on when it says so.
 */
#include "check_main.h"
#include "units.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 16, UNITS_MAX = 20000 };

/* Millions of times, for which Check's own is too slow. */
#define REQUIRE(condition)                       \
    do {                                         \
        if (!(condition))                        \
            ck_abort_msg("not: %s", #condition); \
    } while (0)

struct side {
    struct ddpi_ring ring;
    struct ddpi_layout layout;
    struct ddpi_flow flow;
};

static const struct {
    enum ddpi_operation operation;
    bool all; /* a buffer has a part for each rank */
} operations[] = {
    [DDPI_RING_ALL_REDUCE] = {DDPI_ALL_REDUCE, false},
    [DDPI_RING_ALL_GATHER] = {DDPI_ALL_GATHER, true},
    [DDPI_RING_REDUCE_SCATTER] = {DDPI_REDUCE_SCATTER, true},
    [DDPI_RING_BROADCAST] = {DDPI_BROADCAST, false},
    [DDPI_RING_REDUCE] = {DDPI_REDUCE, false},
};

/* Addresses are only counted with. */
static void fill_side(struct side *side, const struct ddpi_call *call, struct ddpi_ring ring,
                      uint32_t rank, size_t piece)
{
    ring.rank = rank;
    side->ring = ring;
    side->layout = (struct ddpi_layout){
        .call = call,
        .ring = &side->ring,
        .send = (const uint8_t *)(uintptr_t)0x100000000,
        .recv = (uint8_t *)(uintptr_t)0x200000000,
        .scratch = (uint8_t *)(uintptr_t)0x300000000,
        .scratch_size = 4096,
        .count = call->count * (operations[ring.kind].all ? ring.nranks : 1),
        .element_size = 4,
    };
    side->flow = (struct ddpi_flow){.layout = &side->layout, .piece = piece};
}

/* All units of one direction; returns how many. */
static uint64_t list_units(const struct ddpi_flow *flow, bool outwards, struct ddpi_unit *units)
{
    uint64_t count = 0, bytes = 0;
    struct ddpi_flow_cursor cursor = ddpi_flow_begin(flow, outwards);
    while (ddpi_flow_unit(flow, &cursor, &units[count])) {
        const struct ddpi_unit *unit = &units[count];
        REQUIRE(cursor.index == count);
        REQUIRE(unit->len > 0 && unit->len <= flow->piece);
        REQUIRE(outwards ? unit->step.sends : unit->step.receives);
        REQUIRE(unit->chunk == (outwards ? unit->step.send_chunk : unit->step.recv_chunk));
        size_t len = ddpi_layout_place(flow->layout, flow->part, unit->chunk).len;
        REQUIRE(unit->offset + unit->len <= len);
        bytes += unit->len;
        count++;
        REQUIRE(count < UNITS_MAX);
        ddpi_flow_advance(flow, &cursor);
    }
    REQUIRE(ddpi_flow_units(flow, outwards) == count);
    REQUIRE(ddpi_flow_bytes(flow, outwards) == bytes);
    return count;
}

static void expect_same_bytes(const struct ddpi_unit *a, const struct ddpi_unit *b)
{
    REQUIRE(a->chunk == b->chunk);
    REQUIRE(a->offset == b->offset);
    REQUIRE(a->len == b->len);
}

static struct ddpi_unit in[UNITS_MAX], out[UNITS_MAX], theirs[UNITS_MAX];

/* What the rank before sends is what this one receives; and the out-units are its own ones, then
 * the in-units as far as they are passed on. */
static void check_part(struct side *side, struct side *previous)
{
    uint64_t ins = list_units(&side->flow, false, in), outs = list_units(&side->flow, true, out);
    REQUIRE(list_units(&previous->flow, true, theirs) == ins);
    for (uint64_t i = 0; i < ins; i++)
        expect_same_bytes(&in[i], &theirs[i]);
    uint64_t own = ddpi_flow_own(&side->flow);
    REQUIRE(own <= outs);
    for (uint64_t i = 0; i < outs; i++) {
        REQUIRE(out[i].first == (i < own));
        if (i < own)
            continue;
        REQUIRE(i - own < ins);
        expect_same_bytes(&out[i], &in[i - own]);
    }
}

static void check_ring(enum ddpi_ring_kind kind, uint32_t nranks, uint32_t root, size_t count,
                       size_t piece)
{
    const struct ddpi_call call = {
        .operation = operations[kind].operation, .count = count, .root = root};
    const struct ddpi_ring ring = {.kind = kind, .nranks = nranks, .root = root};
    for (uint32_t rank = 0; rank < nranks; rank++) {
        struct side side, previous;
        fill_side(&side, &call, ring, rank, piece);
        fill_side(&previous, &call, ring, ddpi_ring_prev(rank, nranks), piece);
        size_t parts = ddpi_layout_parts(&side.layout);
        REQUIRE(ddpi_layout_parts(&previous.layout) == parts);
        uint64_t bytes = 0;
        for (size_t part = 0; part < parts; part++) {
            side.flow.part = previous.flow.part = part;
            check_part(&side, &previous);
            bytes += ddpi_flow_bytes(&side.flow, false);
        }
        if (kind == DDPI_RING_ALL_REDUCE && count % nranks == 0)
            REQUIRE(bytes == 2 * 4 * count / nranks * (nranks - 1));
        if (kind == DDPI_RING_ALL_GATHER || kind == DDPI_RING_REDUCE_SCATTER)
            REQUIRE(bytes == 4 * count * (nranks - 1));
    }
}

START_TEST(neighbours_agree)
{
    static const size_t pieces[] = {8, 64, 1000, 1 << 20};
    const uint32_t nranks = (uint32_t)_i + 1;
    for (enum ddpi_ring_kind kind = 0; kind <= DDPI_RING_REDUCE; kind++)
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            const size_t counts[] = {0, 1, nranks - 1, nranks, nranks + 1, 100, 1024, 1025, 2500};
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                if (counts[c] * 4 / pieces[p] < 200)
                    check_ring(kind, nranks, (uint32_t)(c + p) % nranks, counts[c], pieces[p]);
        }
}
END_TEST

/* A reader who lacks a unit must not be told that it is there: run all ranks, each as far as the
 * rule lets it, and see that all come to the end. */
START_TEST(the_rule_lets_everybody_finish)
{
    const uint32_t nranks = (uint32_t)_i + 2;
    for (enum ddpi_ring_kind kind = 0; kind <= DDPI_RING_REDUCE; kind++) {
        const struct ddpi_call call = {.operation = operations[kind].operation, .count = 50};
        const struct ddpi_ring ring = {.kind = kind, .nranks = nranks};
        struct side sides[RANKS_MAX + 1];
        uint64_t sent[RANKS_MAX + 1] = {0}, received[RANKS_MAX + 1] = {0};
        for (uint32_t rank = 0; rank < nranks; rank++)
            fill_side(&sides[rank], &call, ring, rank, 8);
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t rank = 0; rank < nranks; rank++) {
                uint64_t units = ddpi_flow_units(&sides[rank].flow, true);
                if (sent[rank] < units &&
                    sent[rank] < ddpi_flow_own(&sides[rank].flow) + received[rank]) {
                    sent[rank]++;
                    received[ddpi_ring_next(rank, nranks)]++;
                    moved = true;
                }
            }
        }
        for (uint32_t rank = 0; rank < nranks; rank++) {
            REQUIRE(sent[rank] == ddpi_flow_units(&sides[rank].flow, true));
            REQUIRE(received[rank] == ddpi_flow_units(&sides[rank].flow, false));
        }
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("units");
    TCase *tcase = tcase_create("units");
    tcase_add_loop_test(tcase, neighbours_agree, 0, RANKS_MAX);
    tcase_add_loop_test(tcase, the_rule_lets_everybody_finish, 0, RANKS_MAX - 1);
    suite_add_tcase(suite, tcase);
    return suite;
}
