/*
 * control.c - fuzzes the control socket of an edge, over a socket pair. Each message that is handed
 * out is a known notice with a sentence that can be printed, or with a card or none (peer_card.h);
 * garbage is never handed out.
 *
 * The input's first byte says in what pieces the rest arrives, from 1 to 256 times four bytes.
 */
#include "control.h"
#include "peer_card.h"

#include "fuzz.h"

#include <ctype.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* As rank 0 takes it: whatever it is, it fits, or is none. */
static void check_card(const char *text)
{
    uint8_t slot[DDPI_CARD_SLOT];
    struct ddpi_card card;
    memcpy(slot, text, sizeof slot);
    if (ddpi_card_get(slot, &card))
        HOLDS(ddpi_card_put(&card, slot));
}

static void check_memo(const struct ddpi_memo *memo)
{
    HOLDS(memo->notice >= DDPI_NOTICE_FAILED && memo->notice <= DDPI_NOTICE_LAST);
    HOLDS(memo->notice != DDPI_NOTICE_HANDOVER); /* which takes a descriptor */
    if (memo->notice == DDPI_NOTICE_CARD) {
        check_card(memo->text);
        return;
    }
    size_t len = strnlen(memo->text, sizeof memo->text);
    HOLDS(len < sizeof memo->text);
    for (size_t i = 0; i < len; i++)
        HOLDS(isprint((unsigned char)memo->text[i]));
}

/* Read until nothing is there; how many messages came. */
static size_t drain(struct ddpi_control *control, enum ddpi_control_event *ret_last)
{
    struct ddpi_memo memo;
    size_t count = 0;
    for (;;) {
        *ret_last = ddpi_control_read(control, &memo);
        HOLDS(control->got < sizeof control->inbox);
        if (*ret_last == DDPI_CONTROL_END || *ret_last == DDPI_CONTROL_GARBLED)
            return count;
        if (*ret_last == DDPI_CONTROL_MEMO) {
            check_memo(&memo);
            count++;
        } else if (recv(control->fd, &memo, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
            return count;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t max = 4 * (1 + (size_t)data[0]);
    int fds[2];
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    struct ddpi_control control;
    ddpi_control_init(&control, fds[0]);
    enum ddpi_control_event last = DDPI_CONTROL_NONE;
    size_t sent = 0, memos = 0;
    for (size_t at = 1; at < size && last == DDPI_CONTROL_NONE;) {
        size_t len = size - at < max ? size - at : max;
        HOLDS(send(fds[1], data + at, len, 0) == (ssize_t)len);
        at += len;
        sent += len;
        memos += drain(&control, &last);
    }
    HOLDS(memos <= sent / sizeof(struct ddpi_sealed_memo));
    HOLDS(last == DDPI_CONTROL_GARBLED || memos == sent / sizeof(struct ddpi_sealed_memo));
    close(fds[1]);
    if (last == DDPI_CONTROL_NONE)
        HOLDS(drain(&control, &last) == 0 && last == DDPI_CONTROL_END);
    ddpi_control_finish(&control);
    return 0;
}
