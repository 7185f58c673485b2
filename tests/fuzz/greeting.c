/*
 * greeting.c - fuzzes what answers at a neighbour's address (handshake.c), over a socket pair. An
 * edge comes of it exactly if the bytes begin with the one greeting that knows our token.
 */
#include "fuzz.h"
#include "handshake.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Magic number, kind ANSWER, rank 1, zero; then the token. The zero is not looked at. */
static const uint8_t expected[16] = {'D', 'D', 'P', 'G', 4, 0, 0, 0, 1, 0, 0, 0};
static const uint8_t token[DDPI_TOKEN_SIZE] = "the-token-of-us.";

enum { ZERO_AT = 12, GREETING_SIZE = sizeof expected + sizeof token };

static bool welcome(const uint8_t *data, size_t size)
{
    return size >= GREETING_SIZE && memcmp(data, expected, ZERO_AT) == 0 &&
           memcmp(data + sizeof expected, token, sizeof token) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int control[2], bulk[2];
    size = size < 2 * GREETING_SIZE ? size : 2 * GREETING_SIZE; /* always fits the socket */
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, control) == 0);
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, bulk) == 0);
    HOLDS(size == 0 || send(control[1], data, size, 0) == (ssize_t)size);
    close(control[1]);

    struct ddpi_meeting meeting = {.bell = -1, .tcp_listener = -1, .local_listener = -1};
    memcpy(meeting.card.token, token, sizeof token);
    const struct ddpi_peer next = {.rank = 1, .card.node = "node"};
    struct ddpi_half_edge half = {.control_fd = control[0], .data_fd = bulk[0]};
    struct ddpi_edge *edge = NULL;
    struct ddp_error err;
    ddp_status status = ddpi_meeting_confirm(&meeting, &next, &half, UINT64_MAX, &edge, &err);
    HOLDS((status == DDP_OK) == welcome(data, size) && (edge != NULL) == (status == DDP_OK));
    HOLDS(half.control_fd == -1 && half.data_fd == -1);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        HOLDS(status == (size < GREETING_SIZE ? DDP_E_PEER_DEAD : DDP_E_PROTOCOL));
    }
    ddpi_edge_destroy(edge);
    close(bulk[1]);
    return 0;
}
