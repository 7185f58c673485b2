/*
 * edge_none.c - edges that carry no data: one for messages only, and the stand-in for an edge that
 * does not exist yet (attempt.c). To wait for one is allowed; it brings nothing and takes nothing.
 * Owns its control socket.
 */
#include "edge.h"

#include "error.h"
#include "mem.h"

#include <unistd.h>

/* If the peer of an edge that does not exist yet is gone, it may have failed because of a third
 * rank, whose message arrives in a moment. */
enum { NEWS_MS = 250 };

static bool none_arm(struct ddpi_edge *edge, size_t recv_bytes, bool send,
                     struct pollfd ret_polls[DDPI_EDGE_POLLS])
{
    (void)edge;
    (void)recv_bytes;
    (void)send;
    (void)ret_polls;
    return false;
}

static void none_disarm(struct ddpi_edge *edge)
{
    (void)edge;
}

static void none_destroy(struct ddpi_edge *edge)
{
    ddpi_control_finish(&edge->control);
    ddpi_process_finish(&edge->process);
    ddpi_free(edge);
}

const struct ddpi_edge_ops ddpi_edge_none_ops = {
    .name = "none",
    .linger_ms = NEWS_MS,
    .arm = none_arm,
    .disarm = none_disarm,
    .destroy = none_destroy,
};

struct ddpi_edge *ddpi_edge_none(int control_fd, struct ddp_error *err)
{
    struct ddpi_edge *edge = ddpi_calloc(1, sizeof *edge);
    if (edge == NULL) {
        ddpi_error_nomem(err, sizeof *edge);
        close(control_fd);
        return NULL;
    }
    edge->ops = &ddpi_edge_none_ops;
    ddpi_control_init(&edge->control, control_fd);
    edge->process.pidfd = -1;
    if (edge->control.local)
        ddpi_process_find(control_fd, &edge->process);
    return edge;
}
