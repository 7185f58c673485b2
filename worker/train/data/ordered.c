/*
 * ordered.c - <ddprun/ddp_ordered.h>: a message of one byte goes from rank to rank. Owns nothing.
 */
#include <ddprun/ddp_ordered.h>

static ddp_status pass_turn(ddp_comm *comm, ddp_kind kind, uint32_t peer, uint32_t timeout_ms,
                            struct ddp_error *err)
{
    uint8_t turn = 0;
    const struct ddp_operation message = {.size = sizeof message,
                                          .kind = kind,
                                          .send = &turn,
                                          .recv = &turn,
                                          .count = 1,
                                          .dtype = DDP_BYTE,
                                          .peer = peer,
                                          .tag = DDP_ORDERED_TAG,
                                          .timeout_ms = timeout_ms};
    return ddp_run(comm, &message, err);
}

ddp_status ddp_ordered_begin(ddp_comm *comm, uint32_t timeout_ms, struct ddp_error *err)
{
    uint32_t rank = ddp_comm_rank(comm);
    return rank == 0 ? DDP_OK : pass_turn(comm, DDP_KIND_RECV, rank - 1, timeout_ms, err);
}

ddp_status ddp_ordered_end(ddp_comm *comm, struct ddp_error *err)
{
    uint32_t next = ddp_comm_rank(comm) + 1;
    return next == ddp_comm_world_size(comm) ? DDP_OK
                                             : pass_turn(comm, DDP_KIND_SEND, next, 0, err);
}
