/*
 * greeting.c - fuzzes what answers at a neighbour's address (handshake.c), over a socket pair. An
 * edge comes of it exactly if the bytes begin with the one greeting that knows our token.
 */
#include "fuzz.h"
#include "handshake.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Magic number, kind ANSWER, rank 1, for the ring (0); then the token. */
static const uint8_t expected[16] = {'D', 'D', 'P', 'G', 4, 0, 0, 0, 1, 0, 0, 0};
static const uint8_t token[DDPI_TOKEN_SIZE] = "the-token-of-us.";

enum { GREETING_SIZE = sizeof expected + sizeof token };

static bool welcome(const uint8_t *data, size_t size)
{
    return size >= GREETING_SIZE && memcmp(data, expected, sizeof expected) == 0 &&
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

    struct ddpi_meeting meeting;
    ddpi_meeting_clear(&meeting);
    memcpy(meeting.card.token, token, sizeof token);
    struct ddpi_attempt *attempt = &meeting.attempt;
    attempt->stage = DDPI_ATTEMPT_ANSWER;
    attempt->answer.fd = control[0];
    attempt->data_fd = bulk[0];
    ddpi_edge_name(&attempt->edge, 1, &attempt->card);
    struct ddpi_edge *edge = NULL;
    struct ddp_error err;
    ddp_status status = ddpi_attempt_push(&meeting, &edge, &err);
    HOLDS((edge != NULL) == welcome(data, size));
    HOLDS(attempt->data_fd == -1 && attempt->answer.fd == -1);
    bool ended = size < GREETING_SIZE;
    HOLDS(attempt->stage == (ended ? DDPI_ATTEMPT_GONE : DDPI_ATTEMPT_NONE));
    HOLDS((attempt->edge.broken != NULL) == ended);
    HOLDS(status == (ended || edge != NULL ? DDP_OK : DDP_E_PROTOCOL));
    if (status != DDP_OK)
        fuzz_check_error(&err, status);
    ddpi_edge_destroy(edge);
    close(bulk[1]);
    return 0;
}
