/*
 * parent_call.h - what the ranks of a communicator tell each other while they make another one:
 * operations of the parent, and whether each rank could do its part.
 */
#ifndef DDPI_PARENT_CALL_H
#define DDPI_PARENT_CALL_H

#include "communicator.h"

/* Carry out operation @call of @parent on bytes in host memory. Blocks. */
ddp_status ddpi_parent_call(struct ddp_comm *parent, const struct ddpi_call *call, const void *send,
                            void *recv, struct ddp_error *err);

/* This rank has no memory for @bytes, and cannot take part: @parent fails, so that no rank waits
 * for it. */
ddp_status ddpi_parent_give_up(struct ddp_comm *parent, unsigned long long bytes,
                               struct ddp_error *err);

enum { DDPI_FINDING_TEXT = 196 };

/* How a rank's part has ended, as bytes. */
struct ddpi_finding {
    uint8_t status[4];
    char text[DDPI_FINDING_TEXT];
};

void ddpi_finding_fill(struct ddpi_finding *finding, ddp_status status, const char *text);

/* The same as a result. Whatever a rank sends that is no failure of a call is DDP_E_PROTOCOL. */
ddp_status ddpi_finding_result(const struct ddpi_finding *finding, struct ddp_error *err);

/* Numbers as bytes, the lowest first. */
void ddpi_put32(uint8_t bytes[4], uint32_t value);
uint32_t ddpi_get32(const uint8_t bytes[4]);

#endif
