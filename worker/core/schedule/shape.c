/*
 * shape.c - see shape.h.
 */
#include "shape.h"

#define SENT(parts, from)                                                                   \
    ((parts) == DDPI_PAIR_PARTS || ((parts) == DDPI_RANK_PARTS && (from) != DDPI_END_NAMED) \
         ? DDPI_EXTENT_ALL                                                                  \
         : DDPI_EXTENT_PART)
#define RECEIVED(parts, from)                                                               \
    ((parts) == DDPI_PAIR_PARTS || ((parts) == DDPI_RANK_PARTS && (from) == DDPI_END_NAMED) \
         ? DDPI_EXTENT_ALL                                                                  \
         : DDPI_EXTENT_PART)

/* A rank that is not the root has a send buffer if all ranks send, or (broadcast) if that is the
 * buffer that it receives into. */
#define MOVES(p, f, t)                                                                          \
    .parts = (p), .from = (f), .to = (t), .has_elements = true, .reduces = (f) == DDPI_END_ALL, \
    .rooted = (f) == DDPI_END_ROOT || (t) == DDPI_END_ROOT,                                     \
    .send = (f) != DDPI_END_ROOT  ? SENT(p, f)                                                  \
            : (t) == DDPI_END_ALL ? DDPI_EXTENT_PART                                            \
                                  : DDPI_EXTENT_NONE,                                           \
    .recv = (t) == DDPI_END_ROOT ? DDPI_EXTENT_NONE : RECEIVED(p, f), .root_send = SENT(p, f),  \
    .root_recv = RECEIVED(p, f),                                                                \
    .sends = (f) == DDPI_END_ROOT                            ? DDPI_ROOT                        \
             : (f) == DDPI_END_NAMED && (t) == DDPI_END_ROOT ? DDPI_OTHERS                      \
                                                             : DDPI_EVERY,                      \
    .takes = (t) == DDPI_END_ROOT   ? DDPI_ROOT                                                 \
             : (f) == DDPI_END_ROOT ? DDPI_OTHERS                                               \
                                    : DDPI_EVERY,                                               \
    .sends_blocks = SENT(p, f) == DDPI_EXTENT_ALL,                                              \
    .takes_of_each = RECEIVED(p, f) == DDPI_EXTENT_ALL
#define RING(kind) .ring = DDPI_RING_##kind, .has_ring = true

/* FINALIZE and ALLOC move nothing: their rows are zero. */
const struct ddpi_shape ddpi_shapes[DDPI_OPERATIONS] = {
    [DDPI_JOIN] = {RING(ALL_GATHER)},
    [DDPI_BARRIER] = {RING(ALL_GATHER)},
    [DDPI_MONITORED] = {.rooted = true},
    [DDPI_BROADCAST] = {MOVES(DDPI_ONE_PART, DDPI_END_ROOT, DDPI_END_ALL), RING(BROADCAST),
                        .in_place = "they must be equal"},
    [DDPI_ALL_REDUCE] = {MOVES(DDPI_ONE_PART, DDPI_END_ALL, DDPI_END_ALL), RING(ALL_REDUCE),
                         .in_place = "they must be equal"},
    [DDPI_REDUCE] = {MOVES(DDPI_ONE_PART, DDPI_END_ALL, DDPI_END_ROOT), RING(REDUCE),
                     .in_place = "they must be equal"},
    [DDPI_ALL_GATHER] = {MOVES(DDPI_RANK_PARTS, DDPI_END_NAMED, DDPI_END_ALL), RING(ALL_GATHER),
                         .in_place = "send must be this rank's part of recv"},
    [DDPI_REDUCE_SCATTER] = {MOVES(DDPI_RANK_PARTS, DDPI_END_ALL, DDPI_END_NAMED),
                             RING(REDUCE_SCATTER),
                             .in_place = "recv must be this rank's part of send"},
    [DDPI_GATHER] = {MOVES(DDPI_RANK_PARTS, DDPI_END_NAMED, DDPI_END_ROOT),
                     .in_place = "send must be the root's part of recv"},
    [DDPI_SCATTER] = {MOVES(DDPI_RANK_PARTS, DDPI_END_ROOT, DDPI_END_NAMED),
                      .in_place = "recv must be the root's part of send"},
    [DDPI_ALL_TO_ALL] = {MOVES(DDPI_PAIR_PARTS, DDPI_END_NAMED, DDPI_END_NAMED)},
    [DDPI_SEND] = {.message = true, .has_elements = true, .send = DDPI_EXTENT_PART},
    [DDPI_RECV] = {.message = true, .has_elements = true, .recv = DDPI_EXTENT_PART},
};
