/*
 * cutter.c - one thread and poll(2) over all pairs of sockets. A cut is an end of file or a reset,
 * by chance, in the middle of whatever is on its way.
 */
#include "cutter.h"

#include "check_main.h"
#include "raw.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum { PAIRS_MAX = 16, BYTES_MIN = 60, BYTES_SPREAD = 1500, LOOK_MS = 20 };

struct pair {
    int fds[2]; /* client, server; -1: unused */
    size_t left;
};

struct cutter {
    int listen_fd;
    uint16_t port, target;
    uint64_t random;
    atomic_bool stop, rest;
    atomic_uint cuts;
    struct pair pairs[PAIRS_MAX];
    uv_thread_t thread;
};

static uint64_t next(struct cutter *cutter)
{
    cutter->random = cutter->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return cutter->random >> 33;
}

static void drop(struct pair *pair, bool reset)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < 2; i++) {
        if (reset)
            setsockopt(pair->fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(pair->fds[i]);
        pair->fds[i] = -1;
    }
}

static void admit(struct cutter *cutter)
{
    int fd = raw_accept(cutter->listen_fd);
    for (int i = 0; i < PAIRS_MAX; i++) {
        struct pair *pair = &cutter->pairs[i];
        if (pair->fds[0] >= 0)
            continue;
        pair->fds[1] = raw_try_connect(cutter->target);
        if (pair->fds[1] < 0)
            break; /* the server is being replaced */
        pair->fds[0] = fd;
        pair->left = BYTES_MIN + next(cutter) % BYTES_SPREAD;
        return;
    }
    close(fd);
}

/* What side @from has to say, as far as it may. */
static void carry(struct cutter *cutter, struct pair *pair, int from)
{
    char bytes[512];
    bool rest = atomic_load(&cutter->rest);
    size_t most = rest || pair->left > sizeof bytes ? sizeof bytes : pair->left;
    ssize_t got = recv(pair->fds[from], bytes, most, 0);
    if (got <= 0) {
        drop(pair, false);
        return;
    }
    raw_send(pair->fds[!from], bytes, (size_t)got);
    pair->left -= rest ? 0 : (size_t)got;
    if (pair->left > 0)
        return;
    drop(pair, next(cutter) % 2);
    atomic_fetch_add(&cutter->cuts, 1);
}

static void run(void *arg)
{
    struct cutter *cutter = arg;
    while (!atomic_load(&cutter->stop)) {
        struct pollfd fds[1 + 2 * PAIRS_MAX] = {{.fd = cutter->listen_fd, .events = POLLIN}};
        for (int i = 0; i < 2 * PAIRS_MAX; i++)
            fds[1 + i] = (struct pollfd){.fd = cutter->pairs[i / 2].fds[i % 2], .events = POLLIN};
        if (poll(fds, 1 + 2 * PAIRS_MAX, LOOK_MS) <= 0)
            continue;
        for (int i = 0; i < 2 * PAIRS_MAX; i++)
            if (fds[1 + i].revents != 0 && cutter->pairs[i / 2].fds[0] >= 0)
                carry(cutter, &cutter->pairs[i / 2], i % 2);
        if (fds[0].revents != 0)
            admit(cutter);
    }
}

struct cutter *cutter_start(uint16_t port, uint64_t seed)
{
    struct cutter *cutter = calloc(1, sizeof *cutter);
    ck_assert_ptr_nonnull(cutter);
    cutter->target = port;
    cutter->random = seed * 2 + 1;
    cutter->listen_fd = raw_listen(&cutter->port);
    for (int i = 0; i < PAIRS_MAX; i++)
        cutter->pairs[i].fds[0] = cutter->pairs[i].fds[1] = -1;
    ck_assert_int_eq(uv_thread_create(&cutter->thread, run, cutter), 0);
    return cutter;
}

uint16_t cutter_port(const struct cutter *cutter)
{
    return cutter->port;
}

unsigned cutter_cuts(struct cutter *cutter)
{
    return atomic_load(&cutter->cuts);
}

void cutter_rest(struct cutter *cutter)
{
    atomic_store(&cutter->rest, true);
}

void cutter_stop(struct cutter *cutter)
{
    atomic_store(&cutter->stop, true);
    uv_thread_join(&cutter->thread);
    for (int i = 0; i < PAIRS_MAX; i++)
        if (cutter->pairs[i].fds[0] >= 0)
            drop(&cutter->pairs[i], false);
    close(cutter->listen_fd);
    free(cutter);
}
