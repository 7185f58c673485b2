/*
 * control.c - messages on the control socket of an edge. Owns the socket. What arrives is checked
 * before anybody sees it; a sentence is made printable.
 */
#include "control.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MEMO_MAGIC = 0x43504444 /* "DDPC" */ };

void ddpi_control_init(struct ddpi_control *control, int fd)
{
    *control = (struct ddpi_control){.fd = fd};
}

void ddpi_control_finish(struct ddpi_control *control)
{
    if (control->fd >= 0)
        close(control->fd);
    control->fd = -1;
}

void ddpi_memo_fill(struct ddpi_memo *memo, enum ddpi_notice notice, ddp_status status,
                    const char *text)
{
    *memo = (struct ddpi_memo){.magic = htole32(MEMO_MAGIC),
                               .notice = htole32(notice),
                               .status = (int32_t)htole32((uint32_t)status)};
    memcpy(memo->text, text, strnlen(text, sizeof memo->text - 1));
}

void ddpi_control_send(const struct ddpi_control *control, const struct ddpi_memo *memo)
{
    int saved_errno = errno;
    /* Whether it arrives is the peer's affair: if it is gone, there is nobody to be told. */
    (void)!send(control->fd, memo, sizeof *memo, MSG_DONTWAIT | MSG_NOSIGNAL);
    errno = saved_errno;
}

static bool memo_check(struct ddpi_memo *memo)
{
    memo->notice = le32toh(memo->notice);
    memo->status = (int32_t)le32toh((uint32_t)memo->status);
    memo->text[sizeof memo->text - 1] = '\0';
    for (char *at = memo->text; *at != '\0'; at++)
        if (!isprint((unsigned char)*at))
            *at = '?';
    return memo->magic == htole32(MEMO_MAGIC) && memo->notice >= DDPI_NOTICE_FAILED &&
           memo->notice <= DDPI_NOTICE_WAITING;
}

enum ddpi_control_event ddpi_control_read(struct ddpi_control *control, struct ddpi_memo *ret_memo)
{
    ssize_t len;
    do {
        len = recv(control->fd, (char *)&control->inbox + control->got,
                   sizeof control->inbox - control->got, MSG_DONTWAIT);
    } while (len < 0 && errno == EINTR);
    if (len < 0 && errno == EAGAIN)
        return DDPI_CONTROL_NONE;
    if (len <= 0)
        return DDPI_CONTROL_END;
    control->got += (uint32_t)len;
    if (control->got < sizeof control->inbox)
        return DDPI_CONTROL_NONE;
    control->got = 0;
    if (!memo_check(&control->inbox))
        return DDPI_CONTROL_GARBLED;
    *ret_memo = control->inbox;
    return DDPI_CONTROL_MEMO;
}
