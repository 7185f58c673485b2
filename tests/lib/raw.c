/*
 * raw.c - bare TCP connections for tests.
 */
#include "raw.h"

#include "check_main.h"
#include "clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t raw_now_ms(void)
{
    return ddpi_monotonic_ms();
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void await(int fd, short events)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int ready;
    do
        ready = poll(&poll_fd, 1, -1);
    while (ready < 0 && errno == EINTR);
    ck_assert_int_eq(ready, 1);
}

int raw_try_connect(uint16_t port)
{
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int raw_connect(uint16_t port)
{
    int fd = raw_try_connect(port);
    ck_assert_int_ge(fd, 0);
    return fd;
}

int raw_bind(uint16_t *ret_port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

int raw_listen(uint16_t *ret_port)
{
    int fd = raw_bind(ret_port);
    ck_assert_int_eq(listen(fd, 8), 0);
    return fd;
}

int raw_accept(int listen_fd)
{
    await(listen_fd, POLLIN);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

void raw_send(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN) {
            await(fd, POLLOUT);
            continue;
        }
        if (sent < 0)
            return;
        at += sent;
        len -= (size_t)sent;
    }
}

void raw_receive(int fd, void *bytes, size_t len)
{
    uint8_t *at = bytes;
    while (len > 0) {
        await(fd, POLLIN);
        ssize_t got = recv(fd, at, len, 0);
        ck_assert_msg(got > 0, "closed with %zu bytes still wanted", len);
        at += got;
        len -= (size_t)got;
    }
}

void raw_until_closed(int fd)
{
    char dropped[65536];
    do
        await(fd, POLLIN);
    while (recv(fd, dropped, sizeof dropped, 0) > 0);
}

void raw_put_greeting(struct ddpi_buf *buf, uint32_t auth)
{
    struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_hello hello = {.auth = auth};
    ck_assert(ddpi_preamble_put(buf, &preamble) && ddpi_hello_put(buf, 0, &hello));
}

void raw_greet(int fd)
{
    raw_greet_as(fd, "");
}

void raw_greet_as(int fd, const char *job)
{
    struct ddpi_buf buf;
    struct ddpi_preamble preamble_of_ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_hello hello = {.auth = DDPI_AUTH_NONE};
    ddpi_buf_init(&buf, 1024);
    snprintf(hello.identity.job, sizeof hello.identity.job, "%s", job);
    ck_assert(ddpi_preamble_put(&buf, &preamble_of_ours) && ddpi_hello_put(&buf, 0, &hello));
    raw_send(fd, ddpi_buf_head(&buf), ddpi_buf_len(&buf));
    ddpi_buf_finish(&buf);
    uint8_t preamble[DDPI_PREAMBLE_SIZE], payload[DDPI_HELLO_MAX];
    raw_receive(fd, preamble, sizeof preamble);
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    ck_assert_int_eq(frame.type, DDPI_FRAME_HELLO);
    ck_assert_int_eq(frame.status, DDP_OK);
}

struct ddpi_frame raw_frame(int fd, void *payload, size_t size)
{
    uint8_t header[DDPI_FRAME_HEADER_SIZE];
    struct ddpi_frame frame;
    raw_receive(fd, header, sizeof header);
    ck_assert(ddpi_frame_get(header, &frame));
    ck_assert_uint_le(frame.payload_len, size);
    raw_receive(fd, payload, frame.payload_len);
    return frame;
}

void raw_request(int fd, const struct ddpi_message *request)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 64 * 1024 * 1024);
    ck_assert(ddpi_request_put(&buf, request));
    raw_send(fd, ddpi_buf_head(&buf), ddpi_buf_len(&buf));
    ddpi_buf_finish(&buf);
}
