/*
 * test_hierarchy.c - nodes of ranks, and the all-reduce between them for every way to divide up to
 * eight ranks among nodes, run with sets of ranks instead of elements.
 */
#include "check_main.h"
#include "hierarchy.h"
#include "sample.h"

#include <string.h>

enum { MAX_RANKS = 8, MAX_COUNT = 41 };

/* Bit r of @ctx: rank r shares memory with the one before it. */
static bool bit_joins(const void *ctx, uint32_t rank)
{
    return *(const uint32_t *)ctx >> rank & 1;
}

struct ranks {
    uint32_t count;
    struct ddpi_nodes nodes[MAX_RANKS];
    uint32_t firsts[MAX_RANKS][MAX_RANKS + 1];
    uint8_t held[MAX_RANKS][MAX_COUNT]; /* the ranks whose elements are in each partial result */
};

static void find_nodes(struct ranks *ranks, uint32_t count, uint32_t layout)
{
    ranks->count = count;
    for (uint32_t rank = 0; rank < count; rank++)
        ddpi_nodes_find(&ranks->nodes[rank], ranks->firsts[rank], rank, count, bit_joins, &layout);
}

START_TEST(nodes_are_rows_of_ranks)
{
    struct ranks ranks;
    uint32_t layout = 0xb6; /* 0 1 2 | 3 4 5 | 6 7, bit 0 does not matter */
    find_nodes(&ranks, 8, layout);
    for (uint32_t rank = 0; rank < 8; rank++) {
        const struct ddpi_nodes *nodes = &ranks.nodes[rank];
        ck_assert_uint_eq(nodes->count, 3);
        ck_assert_uint_eq(nodes->width, 2);
        ck_assert_uint_eq(nodes->most, 3);
        ck_assert_uint_eq(nodes->own, rank / 3);
        ck_assert_uint_eq(ddpi_node_first(nodes), rank / 3 * 3);
        ck_assert_uint_eq(ddpi_node_ranks(nodes), rank < 6 ? 3 : 2);
        ck_assert(ddpi_node_has(nodes, rank));
        ck_assert_int_eq(ddpi_node_has(nodes, 5), rank / 3 == 1);
    }
}
END_TEST

static uint8_t *at(struct ranks *ranks, uint32_t rank, size_t element)
{
    if (element >= MAX_COUNT) /* ck_assert() takes longer than the whole test */
        ck_abort_msg("element %zu does not exist", element);
    return &ranks->held[rank][element];
}

/* Each part gets what the ranks of the node have. */
static void reduce_inside(struct ranks *ranks, const struct ddpi_hierarchy *all, size_t index)
{
    uint8_t before[MAX_RANKS][MAX_COUNT];
    memcpy(before, ranks->held, sizeof before);
    for (uint32_t rank = 0; rank < ranks->count; rank++) {
        struct ddpi_chunk slice = ddpi_hierarchy_slice(&all[rank], index);
        struct ddpi_chunk part = ddpi_hierarchy_part(&all[rank], &slice, all[rank].index);
        ck_assert(part.count == 0 || ddpi_hierarchy_crosses(&all[rank]));
        for (size_t i = part.first; i < part.first + part.count; i++)
            for (uint32_t other = 0; other < ranks->count; other++)
                if (ddpi_node_has(&ranks->nodes[rank], other) && other != rank)
                    *at(ranks, rank, i) |= before[other][i];
    }
}

/* What @rank sends to @peer: the share of the peer's node, or its own. */
static struct ddpi_chunk share_for(const struct ddpi_hierarchy *rank, size_t index, uint32_t node)
{
    struct ddpi_chunk slice = ddpi_hierarchy_slice(rank, index);
    struct ddpi_chunk part = ddpi_hierarchy_part(rank, &slice, rank->index);
    return ddpi_hierarchy_share(rank, &part, node);
}

static void pass_shares(struct ranks *ranks, const struct ddpi_hierarchy *all, size_t index,
                        bool gathers)
{
    uint8_t before[MAX_RANKS][MAX_COUNT];
    memcpy(before, ranks->held, sizeof before);
    for (uint32_t rank = 0; rank < ranks->count; rank++) {
        uint32_t own = ranks->nodes[rank].own;
        for (uint32_t node = 0; node < ranks->nodes[rank].count; node++) {
            if (!ddpi_hierarchy_crosses(&all[rank]) || node == own)
                continue;
            uint32_t peer = ddpi_hierarchy_peer(&all[rank], node);
            ck_assert_uint_lt(peer, ranks->count);
            ck_assert_uint_eq(ddpi_hierarchy_peer(&all[peer], own), rank);
            struct ddpi_chunk sent = share_for(&all[rank], index, gathers ? own : node);
            struct ddpi_chunk taken = share_for(&all[peer], index, gathers ? own : node);
            ck_assert(sent.first == taken.first && sent.count == taken.count);
            for (size_t i = sent.first; i < sent.first + sent.count; i++) {
                if (!gathers && (*at(ranks, peer, i) & before[rank][i]) != 0)
                    ck_abort_msg("rank %u gets element %zu twice", peer, i);
                *at(ranks, peer, i) =
                    gathers ? before[rank][i] : *at(ranks, peer, i) | before[rank][i];
            }
        }
    }
}

static void spread_inside(struct ranks *ranks, const struct ddpi_hierarchy *all, size_t index)
{
    for (uint32_t rank = 0; rank < ranks->count; rank++)
        for (uint32_t i = 0; i < ddpi_node_ranks(&ranks->nodes[rank]); i++) {
            uint32_t other = ddpi_node_first(&ranks->nodes[rank]) + i;
            struct ddpi_chunk slice = ddpi_hierarchy_slice(&all[rank], index);
            struct ddpi_chunk part = ddpi_hierarchy_part(&all[rank], &slice, i);
            for (size_t at_element = part.first; at_element < part.first + part.count; at_element++)
                *at(ranks, rank, at_element) = *at(ranks, other, at_element);
        }
}

static void run_all(struct ranks *ranks, size_t count, size_t room)
{
    struct ddpi_hierarchy all[MAX_RANKS];
    size_t seen = 0;
    for (uint32_t rank = 0; rank < ranks->count; rank++) {
        all[rank] = ddpi_hierarchy_of(&ranks->nodes[rank], rank, count, room);
        memset(ranks->held[rank], 1 << rank, MAX_COUNT);
    }
    for (size_t index = 0; index < ddpi_hierarchy_slices(&all[0]); index++) {
        struct ddpi_chunk slice = ddpi_hierarchy_slice(&all[0], index);
        struct ddpi_chunk part = ddpi_hierarchy_part(&all[0], &slice, 0);
        ck_assert_uint_eq(slice.first, seen);
        seen += slice.count;
        struct ddpi_chunk share = ddpi_hierarchy_share(&all[0], &part, 0); /* the longest one */
        ck_assert_uint_le(share.count * ranks->nodes[0].count, room);
        reduce_inside(ranks, all, index);
        pass_shares(ranks, all, index, false);
        pass_shares(ranks, all, index, true);
        spread_inside(ranks, all, index);
    }
    ck_assert_uint_eq(seen, count);
    for (uint32_t rank = 0; rank < ranks->count; rank++)
        for (size_t i = 0; i < MAX_COUNT; i++)
            if (ranks->held[rank][i] != (i < count ? (1U << ranks->count) - 1 : 1U << rank))
                ck_abort_msg("rank %u has element %zu of ranks %x", rank, i, ranks->held[rank][i]);
}

START_TEST(every_rank_ends_with_all)
{
    static const size_t counts[] = {0, 1, 7, 40, MAX_COUNT};
    uint32_t count = (uint32_t)_i;
    for (uint32_t layout = 0; layout < 1U << count; layout += 2) {
        struct ranks ranks;
        find_nodes(&ranks, count, layout);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (size_t room = ranks.nodes[0].count; room < 24; room += 9)
                run_all(&ranks, counts[i], room);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("hierarchy");
    TCase *tcase = tcase_create("hierarchy");
    tcase_add_test(tcase, nodes_are_rows_of_ranks);
    add_sample(tcase, every_rank_ends_with_all, 1, MAX_RANKS + 1);
    suite_add_tcase(suite, tcase);
    return suite;
}
