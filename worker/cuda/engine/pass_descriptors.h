/*
 * pass_descriptors.h - descriptors of virtual memory on their way to those who read it, over the
 * control sockets of edges. Everybody knows from the offers of an operation who reads whose memory,
 * and an owner remembers what it has handed to whom: so both ends know when one is due.
 */
#ifndef DDPI_PASS_DESCRIPTORS_H
#define DDPI_PASS_DESCRIPTORS_H

#include "device_state.h"
#include "wait.h"

/* What an owner has handed over to whom. */
struct ddpi_handed {
    uint32_t reader;
    uint64_t allocation;
    uint64_t base;
};

/* Hand what @reader lacks of this rank's @offers over to it. */
ddp_status ddpi_hand_over(struct ddpi_device *device, struct ddpi_edge *edge, uint32_t reader,
                          const struct ddpi_offer *offers, size_t count);

/* Take over what this rank lacks of @offers, which are those of the peer of @edge. */
ddp_status ddpi_take_over(struct ddpi_device *device, const struct ddpi_wait *wait,
                          struct ddpi_edge *edge, const struct ddpi_offer *offers, size_t count);

/* Whether any of @offers is one that has to be handed over to process @reader, once at least. */
bool ddpi_handover_concerns(const struct ddpi_offer *offers, size_t count, uint64_t reader);

#endif
