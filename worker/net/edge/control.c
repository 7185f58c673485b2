/*
 * control.c - messages on the control socket of an edge. Owns the socket. Checks what arrives
 * before anything else sees it, and makes sentences printable.
 */
#include "control.h"

#include "sockets.h"

#include <assert.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static_assert(sizeof(struct ddpi_sealed_memo) ==
                  sizeof(struct ddpi_memo) + sizeof(uint64_t) + DDPI_SEAL_SIZE,
              "no padding goes over the wire");

enum { MEMO_MAGIC = 0x43504444 /* "DDPC" */ };

void ddpi_control_init(struct ddpi_control *control, int fd)
{
    int domain = 0;
    socklen_t len = sizeof domain;
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    *control = (struct ddpi_control){.fd = fd, .local = domain == AF_UNIX, .inbox_fd = -1};
}

void ddpi_control_finish(struct ddpi_control *control)
{
    for (uint32_t i = 0; i < control->handed_count; i++)
        close(control->handed[i].fd);
    control->handed_count = 0;
    ddpi_close_fd(&control->inbox_fd);
    ddpi_close_fd(&control->fd);
    ddpi_wipe(&control->seals, sizeof control->seals);
}

void ddpi_control_seal(struct ddpi_control *control, const struct ddpi_seals *seals)
{
    control->seals = *seals;
}

/* The code covers the number and the message. */
static void make_seal(const struct ddpi_seals *seals, const struct ddpi_seal *seal,
                      const struct ddpi_sealed_memo *memo, uint8_t ret[DDPI_SEAL_SIZE])
{
    memset(ret, 0, DDPI_SEAL_SIZE);
    if (seals->on)
        ddpi_seal_make(seal, le64toh(memo->number), &memo->memo, sizeof memo->memo, ret);
}

static struct ddpi_sealed_memo memo_seal(struct ddpi_control *control, const struct ddpi_memo *memo)
{
    struct ddpi_sealed_memo sealed = {.memo = *memo,
                                      .number = htole64(atomic_fetch_add(&control->sent, 1))};
    make_seal(&control->seals, &control->seals.out, &sealed, sealed.seal);
    return sealed;
}

/* Whether message @number has not been accepted before, as far as the record goes back. */
static bool is_new(struct ddpi_control *control, uint64_t number)
{
    enum { REMEMBERED = 64 };
    if (number == UINT64_MAX)
        return false;
    if (number >= control->heard) {
        uint64_t ahead = number + 1 - control->heard;
        control->heard_before = ahead < REMEMBERED ? control->heard_before << ahead : 0;
        control->heard_before |= 1;
        control->heard = number + 1;
        return true;
    }
    uint64_t behind = control->heard - 1 - number;
    if (behind >= REMEMBERED || (control->heard_before >> behind & 1) != 0)
        return false;
    control->heard_before |= (uint64_t)1 << behind;
    return true;
}

static bool check_seal(struct ddpi_control *control)
{
    uint8_t wanted[DDPI_SEAL_SIZE];
    make_seal(&control->seals, &control->seals.in, &control->inbox, wanted);
    return sodium_memcmp(wanted, control->inbox.seal, sizeof wanted) == 0 &&
           is_new(control, le64toh(control->inbox.number));
}

void ddpi_memo_fill(struct ddpi_memo *memo, enum ddpi_notice notice, ddp_status status,
                    const char *text)
{
    *memo = (struct ddpi_memo){.magic = htole32(MEMO_MAGIC),
                               .notice = htole32(notice),
                               .status = (int32_t)htole32((uint32_t)status)};
    memcpy(memo->text, text, strnlen(text, sizeof memo->text - 1));
}

/* A call that is refused leaves the communicator usable, so no failure is DDP_E_INVALID. */
ddp_status ddpi_memo_failure(const struct ddpi_memo *memo)
{
#define IS_STATUS(symbol, value, name, text, retry) \
    ((value) != DDP_OK && memo->status == (value)) ||
    bool known = DDP_STATUS_MAP(IS_STATUS) false;
#undef IS_STATUS
    return known && memo->status != DDP_E_INVALID && memo->text[0] != '\0'
               ? (ddp_status)memo->status
               : DDP_E_PROTOCOL;
}

void ddpi_memo_tag(struct ddpi_memo *memo, uint32_t tag)
{
    memo->tag = htole32(tag);
}

/* Of a message, what TCP did not take goes before the next one. False: it still does not fit. */
static bool send_rest(struct ddpi_control *control)
{
    const char *end = (const char *)(&control->outbox + 1);
    if (control->unsent == 0)
        return true;
    ssize_t len =
        send(control->fd, end - control->unsent, control->unsent, MSG_DONTWAIT | MSG_NOSIGNAL);
    control->unsent -= len > 0 ? (uint32_t)len : 0;
    return control->unsent == 0;
}

/* If a message does not arrive, the peer is gone, or has not read for long. A signal handler that
 * comes in between aborts the communicator: its message goes at once. */
void ddpi_control_send(struct ddpi_control *control, const struct ddpi_memo *memo)
{
    int saved_errno = errno;
    struct ddpi_sealed_memo sealed = memo_seal(control, memo);
    bool between = atomic_flag_test_and_set(&control->sending);
    if (between || send_rest(control)) {
        ssize_t len = send(control->fd, &sealed, sizeof sealed, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (!between && len > 0 && (size_t)len < sizeof sealed) {
            control->outbox = sealed;
            control->unsent = (uint32_t)(sizeof sealed - (size_t)len);
        }
    }
    if (!between)
        atomic_flag_clear(&control->sending);
    errno = saved_errno;
}

static void make_printable(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *at = text; *at != '\0'; at++)
        if (!isprint((unsigned char)*at))
            *at = '?';
}

bool ddpi_memo_decode(struct ddpi_memo *memo)
{
    memo->notice = le32toh(memo->notice);
    memo->status = (int32_t)le32toh((uint32_t)memo->status);
    memo->tag = le32toh(memo->tag);
    if (memo->notice != DDPI_NOTICE_CARD)
        make_printable(memo->text, sizeof memo->text);
    return memo->magic == htole32(MEMO_MAGIC) && memo->notice >= DDPI_NOTICE_FAILED &&
           memo->notice <= DDPI_NOTICE_LAST;
}

bool ddpi_control_pass_fd(struct ddpi_control *control, uint32_t tag, int fd)
{
    struct ddpi_memo memo;
    if (!control->local)
        return false;
    ddpi_memo_fill(&memo, DDPI_NOTICE_HANDOVER, DDP_OK, "");
    ddpi_memo_tag(&memo, tag);
    struct ddpi_sealed_memo sealed = memo_seal(control, &memo);
    return ddpi_send_fds(control->fd, &sealed, sizeof sealed, &fd, 1, NULL) == DDP_OK;
}

/* The index of the oldest descriptor with @tag, or handed_count. */
static uint32_t find_handed(const struct ddpi_control *control, uint32_t tag)
{
    uint32_t i = 0;
    while (i < control->handed_count && control->handed[i].tag != tag)
        i++;
    return i;
}

bool ddpi_control_has_fd(const struct ddpi_control *control, uint32_t tag)
{
    return find_handed(control, tag) < control->handed_count;
}

int ddpi_control_take_fd(struct ddpi_control *control, uint32_t tag)
{
    uint32_t i = find_handed(control, tag);
    if (i == control->handed_count)
        return -1;
    int fd = control->handed[i].fd;
    control->handed_count--;
    memmove(&control->handed[i], &control->handed[i + 1],
            (control->handed_count - i) * sizeof *control->handed);
    return fd;
}

/* As recv(2). A descriptor belongs to the message in the inbox. */
static ssize_t control_receive(struct ddpi_control *control)
{
    char *at = (char *)&control->inbox + control->got;
    size_t left = sizeof control->inbox - control->got;
    if (!control->local)
        return recv(control->fd, at, left, MSG_DONTWAIT);
    int fds[DDPI_FDS_MAX];
    size_t nfds = 0;
    ssize_t len = ddpi_recv_fds(control->fd, at, left, fds, &nfds);
    for (size_t i = 0; i < nfds; i++) {
        ddpi_close_fd(&control->inbox_fd);
        control->inbox_fd = fds[i];
    }
    return len;
}

/* A handover comes with a descriptor, and no other message does. */
static bool keep_handover(struct ddpi_control *control)
{
    bool handover = control->inbox.memo.notice == DDPI_NOTICE_HANDOVER;
    if (handover != (control->inbox_fd >= 0))
        return false;
    if (!handover)
        return true;
    if (control->handed_count == DDPI_HANDED_MAX)
        return false;
    control->handed[control->handed_count].tag = control->inbox.memo.tag;
    control->handed[control->handed_count].fd = control->inbox_fd;
    control->handed_count++;
    control->inbox_fd = -1;
    return true;
}

enum ddpi_control_event ddpi_control_read(struct ddpi_control *control, struct ddpi_memo *ret_memo)
{
    ssize_t len;
    do {
        len = control_receive(control);
    } while (len < 0 && errno == EINTR);
    if (len < 0 && errno == EAGAIN)
        return DDPI_CONTROL_NONE;
    if (len < 0 && errno == EMFILE)
        return DDPI_CONTROL_STARVED;
    if (len < 0 && errno == EPROTO)
        return DDPI_CONTROL_GARBLED;
    if (len <= 0)
        return DDPI_CONTROL_END;
    control->got += (uint32_t)len;
    if (control->got < sizeof control->inbox)
        return DDPI_CONTROL_NONE;
    control->got = 0;
    if (!check_seal(control) || !ddpi_memo_decode(&control->inbox.memo) || !keep_handover(control))
        return DDPI_CONTROL_GARBLED;
    *ret_memo = control->inbox.memo;
    return DDPI_CONTROL_MEMO;
}
