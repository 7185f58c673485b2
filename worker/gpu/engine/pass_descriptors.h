/*
 * pass_descriptors.h - passes descriptors of virtual memory to its readers, over the control
 * sockets of edges. All ranks know from the offers of an operation which rank reads which memory,
 * and an owner remembers what it has passed to which reader: so both ends know when a descriptor is
 * due.
 */
#ifndef DDPI_PASS_DESCRIPTORS_H
#define DDPI_PASS_DESCRIPTORS_H

#include "device_state.h"
#include "wait.h"

/* An allocation that its owner has passed to a reader. */
struct ddpi_handed {
    uint32_t reader;
    uint64_t allocation;
    uint64_t base;
};

/* Pass to @reader what it lacks of this rank's @offers. */
ddp_status ddpi_pass_descriptors(struct ddpi_device *device, struct ddpi_edge *edge,
                                 uint32_t reader, const struct ddpi_offer *offers, size_t count);

/* Receive what this rank lacks of @offers, which are those of the peer of @edge. */
ddp_status ddpi_receive_descriptors(struct ddpi_device *device, const struct ddpi_wait *wait,
                                    struct ddpi_edge *edge, const struct ddpi_offer *offers,
                                    size_t count);

#endif
