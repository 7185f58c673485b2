/*
 * torch_store.c - PyTorch's TCPStore from a client's side, as its libuv back end speaks it. Owns
 * the connection. All numbers are little-endian; a text or a value has its length in 64 bits before
 * it.
 *
 *     VALIDATE  0, magic                 no reply; the first message
 *     SET       1, key, value            no reply
 *     GET       3, key                   value
 *     CHECK     5, count, keys           0: all exist; 1
 *     WAIT      6, count, keys           0, when all exist; the server sets no limit
 *     DELETE    8, key                   64 bits: how many were deleted
 *     CANCEL   12                        1; 0 before that, if the wait had ended
 *
 * An empty CHECK is a round trip: after VALIDATE it shows that a store is there, and after a SET
 * that other clients see it. PyTorch's own client puts "/" before each key.
 */
#include "torch_store.h"

#include "clock.h"
#include "directory.h"
#include "error.h"
#include "mem.h"
#include "sockets.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    TORCH_VALIDATE = 0,
    TORCH_SET = 1,
    TORCH_GET = 3,
    TORCH_CHECK = 5,
    TORCH_WAIT = 6,
    TORCH_DELETE = 8,
    TORCH_CANCEL = 12,
};

enum { TORCH_MAGIC = 0x3C85F7CE, TORCH_VALUE_MAX = 8 << 20 };
enum { REPLY_MS = 30000, DIAL_AGAIN_MS = 100, REQUEST_MAX = 1024 };

#define KEY_PREFIX "/ddprun/"

struct ddpi_torch_store {
    int fd;
    char name[DDPI_HOST_MAX + 8]; /* "host:port" */
};

/* ---- bytes ---- */

struct request {
    uint8_t bytes[REQUEST_MAX];
    size_t len;
    bool too_long;
};

static void put_bytes(struct request *request, const void *bytes, size_t len)
{
    if (len > sizeof request->bytes - request->len) {
        request->too_long = true;
        return;
    }
    memcpy(request->bytes + request->len, bytes, len);
    request->len += len;
}

static void put_u64(struct request *request, uint64_t number)
{
    uint64_t wire = htole64(number);
    put_bytes(request, &wire, sizeof wire);
}

static void put_value(struct request *request, const void *value, size_t len)
{
    put_u64(request, len);
    put_bytes(request, value, len);
}

static void put_key(struct request *request, const char *key)
{
    size_t prefix_len = strlen(KEY_PREFIX), len = strlen(key);
    put_u64(request, prefix_len + len);
    put_bytes(request, KEY_PREFIX, prefix_len);
    put_bytes(request, key, len);
}

static struct request request_of(uint8_t op)
{
    return (struct request){.bytes = {op}, .len = 1};
}

/* @key NULL: none. */
static struct request request_on_keys(uint8_t op, const char *key)
{
    struct request request = request_of(op);
    put_u64(&request, key != NULL);
    if (key != NULL)
        put_key(&request, key);
    return request;
}

static ddp_status torch_lost(const struct ddpi_torch_store *store, int error, struct ddp_error *err)
{
    if (error != 0)
        return ddpi_error_sys(err, error, "PyTorch store at %s", store->name);
    return ddpi_error_set(err, DDP_E_CLOSED, "the PyTorch store at %s closed the connection",
                          store->name);
}

static bool may_wait(int error)
{
    return error == EAGAIN || error == EINTR;
}

static ddp_status torch_send(const struct ddpi_torch_store *store, const struct request *request,
                             struct ddp_error *err)
{
    uint64_t deadline_ms = ddpi_monotonic_ms() + REPLY_MS;
    if (request->too_long)
        return ddpi_error_set(err, DDP_E_LIMIT, "a request of more than %d bytes", REQUEST_MAX);
    for (size_t sent = 0; sent < request->len;) {
        ssize_t count = send(store->fd, request->bytes + sent, request->len - sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && !may_wait(errno))
            return torch_lost(store, errno, err);
        sent += count > 0 ? (size_t)count : 0;
        struct pollfd pollfd = {.fd = store->fd, .events = POLLOUT};
        if (count < 0 && poll(&pollfd, 1, ddpi_remaining_ms(ddpi_monotonic_ms(), deadline_ms)) == 0)
            return ddpi_error_set(err, DDP_E_UNREACHABLE, "the PyTorch store at %s takes nothing",
                                  store->name);
    }
    return DDP_OK;
}

/* DDP_E_TIMEOUT, without a sentence: not all @len bytes came until @deadline_ms. */
static ddp_status torch_read_until(const struct ddpi_torch_store *store, void *bytes, size_t len,
                                   uint64_t deadline_ms, struct ddp_error *err)
{
    for (size_t got = 0; got < len;) {
        ssize_t count = recv(store->fd, (char *)bytes + got, len - got, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && !may_wait(errno)))
            return torch_lost(store, count == 0 ? 0 : errno, err);
        got += count > 0 ? (size_t)count : 0;
        struct pollfd pollfd = {.fd = store->fd, .events = POLLIN};
        if (count < 0 && poll(&pollfd, 1, ddpi_remaining_ms(ddpi_monotonic_ms(), deadline_ms)) == 0)
            return DDP_E_TIMEOUT;
    }
    return DDP_OK;
}

static ddp_status torch_read(const struct ddpi_torch_store *store, void *bytes, size_t len,
                             struct ddp_error *err)
{
    ddp_status status = torch_read_until(store, bytes, len, ddpi_monotonic_ms() + REPLY_MS, err);
    if (status != DDP_E_TIMEOUT)
        return status;
    return ddpi_error_set(err, DDP_E_UNREACHABLE,
                          "the PyTorch store at %s has not answered for %d s", store->name,
                          REPLY_MS / 1000);
}

static ddp_status torch_odd(const struct ddpi_torch_store *store, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_PROTOCOL,
                          "the program at %s does not answer as a PyTorch store does", store->name);
}

/* Send @request and read the @len bytes of its reply. */
static ddp_status torch_ask(const struct ddpi_torch_store *store, const struct request *request,
                            void *reply, size_t len, struct ddp_error *err)
{
    ddp_status status = torch_send(store, request, err);
    return status == DDP_OK ? torch_read(store, reply, len, err) : status;
}

/* @key NULL: a round trip. DDP_E_NOT_FOUND, without a sentence: it does not exist. */
static ddp_status torch_check(const struct ddpi_torch_store *store, const char *key,
                              struct ddp_error *err)
{
    struct request request = request_on_keys(TORCH_CHECK, key);
    uint8_t answer;
    ddp_status status = torch_ask(store, &request, &answer, sizeof answer, err);
    if (status != DDP_OK)
        return status;
    if (answer > 1 || (key == NULL && answer != 0))
        return torch_odd(store, err);
    return answer == 0 ? DDP_OK : DDP_E_NOT_FOUND;
}

/* ---- <ddprun/kv.h> ---- */

static ddp_status torch_set(void *ctx, const char *key, const void *value, size_t len,
                            struct ddp_error *err)
{
    const struct ddpi_torch_store *store = ctx;
    struct request request = request_of(TORCH_SET);
    put_key(&request, key);
    put_value(&request, value, len);
    ddp_status status = torch_send(store, &request, err);
    return status == DDP_OK ? torch_check(store, NULL, err) : status;
}

/* What does not fit into @size bytes is read and dropped. */
static ddp_status read_value(const struct ddpi_torch_store *store, size_t len, uint8_t *buffer,
                             size_t size, struct ddp_error *err)
{
    uint8_t rest[REQUEST_MAX];
    size_t kept = len < size ? len : size;
    ddp_status status = torch_read(store, buffer, kept, err);
    for (size_t left = len - kept; status == DDP_OK && left > 0;) {
        size_t part = left < sizeof rest ? left : sizeof rest;
        status = torch_read(store, rest, part, err);
        left -= part;
    }
    return status;
}

static ddp_status torch_get(void *ctx, const char *key, void *buffer, size_t size, size_t *ret_len,
                            struct ddp_error *err)
{
    const struct ddpi_torch_store *store = ctx;
    struct request request = request_of(TORCH_GET);
    uint64_t wire;
    put_key(&request, key);
    ddp_status status = torch_check(store, key, err);
    if (status == DDP_OK)
        status = torch_ask(store, &request, &wire, sizeof wire, err);
    if (status != DDP_OK)
        return status;
    if (le64toh(wire) > TORCH_VALUE_MAX)
        return torch_odd(store, err);
    status = read_value(store, le64toh(wire), buffer, size, err);
    if (status == DDP_OK)
        *ret_len = le64toh(wire);
    return status;
}

/* End a wait whose time is over: exactly one 1 comes for it, after the 0 of a wait that has ended
 * meanwhile. */
static ddp_status cancel_wait(const struct ddpi_torch_store *store, struct ddp_error *err)
{
    struct request request = request_of(TORCH_CANCEL);
    uint8_t answer;
    ddp_status status = torch_ask(store, &request, &answer, sizeof answer, err);
    bool ended = status == DDP_OK && answer == 0;
    if (ended)
        status = torch_read(store, &answer, sizeof answer, err);
    if (status != DDP_OK)
        return status;
    if (answer != 1)
        return torch_odd(store, err);
    return ended ? DDP_OK : DDP_E_TIMEOUT;
}

static ddp_status torch_wait(void *ctx, const char *key, uint32_t timeout_ms, struct ddp_error *err)
{
    const struct ddpi_torch_store *store = ctx;
    struct request request = request_on_keys(TORCH_WAIT, key);
    uint64_t deadline_ms = ddpi_monotonic_ms() + timeout_ms;
    uint8_t answer;
    ddp_status status = torch_send(store, &request, err);
    if (status == DDP_OK)
        status = torch_read_until(store, &answer, sizeof answer, deadline_ms, err);
    if (status == DDP_E_TIMEOUT)
        return cancel_wait(store, err);
    return status != DDP_OK || answer == 0 ? status : torch_odd(store, err);
}

static ddp_status torch_remove(void *ctx, const char *key, struct ddp_error *err)
{
    const struct ddpi_torch_store *store = ctx;
    struct request request = request_of(TORCH_DELETE);
    uint64_t count;
    put_key(&request, key);
    return torch_ask(store, &request, &count, sizeof count, err);
}

struct ddp_kv ddpi_torch_store_kv(struct ddpi_torch_store *store)
{
    return (struct ddp_kv){.size = sizeof(struct ddp_kv),
                           .ctx = store,
                           .set = torch_set,
                           .get = torch_get,
                           .wait = torch_wait,
                           .remove = torch_remove};
}

/* ---- connecting ---- */

/* 0, or the errno; @store->fd is -1 then. */
static int dial_address(struct ddpi_torch_store *store, const struct addrinfo *at, int wait_ms)
{
    struct sockaddr_storage address = {0};
    memcpy(&address, at->ai_addr, at->ai_addrlen);
    int error = ddpi_begin_tcp(&address, &store->fd);
    if (error == EINPROGRESS) {
        struct pollfd pollfd = {.fd = store->fd, .events = POLLOUT};
        (void)!poll(&pollfd, 1, wait_ms);
        error = ddpi_connect_result(store->fd);
    }
    if (error != 0)
        ddpi_close_fd(&store->fd);
    else
        ddpi_tune_tcp(store->fd);
    return error == EINPROGRESS ? ETIMEDOUT : error;
}

static bool is_ip(const struct addrinfo *at)
{
    return at->ai_family == AF_INET || at->ai_family == AF_INET6;
}

/* Each address once, for its share of the time that is left: one that does not answer must not hide
 * the others. 0, or the errno of the last. */
static int dial_each(struct ddpi_torch_store *store, const struct addrinfo *found,
                     uint64_t deadline_ms)
{
    int error = ENETUNREACH, rest = 0;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next)
        rest += is_ip(at);
    for (const struct addrinfo *at = found; at != NULL && error != 0; at = at->ai_next)
        if (is_ip(at)) {
            int left_ms = ddpi_remaining_ms(ddpi_monotonic_ms(), deadline_ms);
            error = dial_address(store, at, left_ms / rest--);
        }
    return error;
}

/* All addresses of the host, again and again until one answers or the time is over. */
static ddp_status dial_store(struct ddpi_torch_store *store, const struct addrinfo *found,
                             uint64_t deadline_ms, struct ddp_error *err)
{
    int error;
    for (;;) {
        error = dial_each(store, found, deadline_ms);
        if (error == 0)
            return DDP_OK;
        int left_ms = ddpi_remaining_ms(ddpi_monotonic_ms(), deadline_ms);
        if (left_ms == 0)
            break;
        (void)!poll(NULL, 0, left_ms < DIAL_AGAIN_MS ? left_ms : DIAL_AGAIN_MS);
    }
    return ddpi_error_set(err, DDP_E_UNREACHABLE,
                          "no PyTorch store answers at %s (MASTER_ADDR, MASTER_PORT): %s; "
                          "TORCHELASTIC_USE_AGENT_STORE=True says that there is one",
                          store->name, strerrordesc_np(error));
}

static ddp_status connect_store(struct ddpi_torch_store *store,
                                const struct ddpi_endpoint *endpoint, uint32_t timeout_ms,
                                struct ddp_error *err)
{
    char service[8];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    snprintf(service, sizeof service, "%u", endpoint->port);
    int failure = getaddrinfo(endpoint->host, service, &hints, &found);
    if (failure != 0)
        return ddpi_error_set(err, DDP_E_UNREACHABLE, "MASTER_ADDR: resolve '%s': %s",
                              endpoint->host, gai_strerror(failure));
    ddp_status status =
        dial_store(store, found, ddpi_deadline(ddpi_monotonic_ms(), timeout_ms), err);
    freeaddrinfo(found);
    if (status != DDP_OK)
        return status;
    struct request request = request_of(TORCH_VALIDATE);
    uint32_t magic = htole32(TORCH_MAGIC);
    put_bytes(&request, &magic, sizeof magic);
    status = torch_send(store, &request, err);
    return status == DDP_OK ? torch_check(store, NULL, err) : status;
}

ddp_status ddpi_torch_store_open(const struct ddpi_endpoint *endpoint, uint32_t timeout_ms,
                                 struct ddpi_torch_store **ret, struct ddp_error *err)
{
    struct ddpi_torch_store *store = ddpi_calloc(1, sizeof *store);
    if (store == NULL)
        return ddpi_error_nomem(err, sizeof *store);
    store->fd = -1;
    snprintf(store->name, sizeof store->name, "%s:%u", endpoint->host, endpoint->port);
    ddp_status status = connect_store(store, endpoint, timeout_ms, err);
    if (status == DDP_OK)
        *ret = store;
    else
        ddpi_torch_store_close(store);
    return status;
}

void ddpi_torch_store_close(void *ctx)
{
    struct ddpi_torch_store *store = ctx;
    ddpi_close_fd(&store->fd);
    ddpi_free(store);
}

ddp_status ddpi_directory_open_torch(const struct ddpi_config *config, uint32_t timeout_ms,
                                     struct ddpi_directory **ret, struct ddp_error *err)
{
    struct ddpi_torch_store *store;
    ddp_status status = ddpi_torch_store_open(&config->master, timeout_ms, &store, err);
    if (status != DDP_OK)
        return status;
    const struct ddp_kv kv = ddpi_torch_store_kv(store);
    status = ddpi_directory_open_over(config, &kv, ddpi_torch_store_close, ret, err);
    if (status == DDP_OK)
        ddpi_server_place(&config->master, &(*ret)->place);
    return status;
}
