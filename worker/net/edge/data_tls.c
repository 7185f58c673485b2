/*
 * data_tls.c - TLS on a socket. Owns the TLS state and its two buffers; the socket is the edge's.
 */
#include "data_tls.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum {
    PIECE = 64 * 1024,        /* read, or encrypted, at once */
    ARRIVED_MAX = 256 * 1024, /* read no more when this much is buffered */
    BUFFER_MAX = 1024 * 1024,
};

static const char changed[] =
    "has sent data that is not TLS with our key (was one of the two started without "
    "DDPRUN_TLS_RANKS, or is the connection changed on the way?)";

/* ---- the key ---- */

static bool tls_find_key(void *ctx, const uint8_t *identity, size_t len,
                         uint8_t ret_secret[DDPI_TLS_KEY_SIZE])
{
    const struct ddpi_tls_key *key = ctx;
    if (len != key->identity_len || memcmp(identity, key->identity, len) != 0)
        return false;
    memcpy(ret_secret, key->secret, sizeof key->secret);
    return true;
}

static void make_key(const struct ddpi_seals *seals, bool connects, struct ddpi_tls_key *ret)
{
    static const char name[] = "ddprun ranks 1";
    const struct ddpi_seal *sides[] = {connects ? &seals->out : &seals->in,
                                       connects ? &seals->in : &seals->out};
    uint8_t both[2 * sizeof seals->out.keys], extracted[DDPI_KEY_SIZE];
    for (size_t i = 0; i < 2; i++)
        memcpy(both + i * sizeof seals->out.keys, sides[i]->keys, sizeof seals->out.keys);
    ddpi_hkdf_extract("", 0, both, sizeof both, extracted);
    ddpi_hkdf_expand(extracted, name, sizeof name - 1, ret->secret, sizeof ret->secret);
    memcpy(ret->identity, name, sizeof name - 1);
    ret->identity_len = sizeof name - 1;
    ddpi_wipe(both, sizeof both);
    ddpi_wipe(extracted, sizeof extracted);
}

/* ---- bytes ---- */

static bool tls_would_block(int error)
{
    return error == EAGAIN || error == EINTR;
}

/* Send what is encrypted; false: something is left. */
static bool tls_flush(struct ddpi_data_tls *data, int fd, const char **ret_broken)
{
    while (ddpi_buf_len(&data->leaving) > 0) {
        ssize_t sent = send(fd, ddpi_buf_head(&data->leaving), ddpi_buf_len(&data->leaving),
                            MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && !tls_would_block(errno))
            *ret_broken = "has lost its data connection";
        if (sent < 0)
            return false;
        ddpi_buf_consume(&data->leaving, (size_t)sent);
    }
    return true;
}

/* Read from the socket once. */
static void tls_pull(struct ddpi_data_tls *data, int fd, const char **ret_broken)
{
    uint8_t bytes[PIECE];
    if (ddpi_buf_len(&data->arrived) >= ARRIVED_MAX)
        return;
    ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0)
        *ret_broken = "has closed its data connection";
    else if (got < 0 && !tls_would_block(errno))
        *ret_broken = "has lost its data connection";
    if (got <= 0)
        return;
    ddp_status status =
        ddpi_tls_take(data->tls, bytes, (size_t)got, &data->arrived, &data->leaving, NULL);
    if (status != DDP_OK)
        *ret_broken = status == DDP_E_NOMEM ? "cannot be read from: out of memory" : changed;
    (void)tls_flush(data, fd, ret_broken);
}

/* ---- for the edge ---- */

ddp_status ddpi_data_tls_init(struct ddpi_data_tls *data, const struct ddpi_tls_engine *engine,
                              const struct ddpi_seals *seals, bool connects, int fd,
                              struct ddp_error *err)
{
    const char *broken = NULL;
    struct ddpi_buf nothing = {0};
    *data = (struct ddpi_data_tls){0};
    ddpi_buf_init(&data->arrived, BUFFER_MAX);
    ddpi_buf_init(&data->leaving, BUFFER_MAX);
    make_key(seals, connects, &data->key);
    ddp_status status = connects
                            ? ddpi_tls_connect(engine, &data->key, &data->tls, err)
                            : ddpi_tls_accept(engine, tls_find_key, &data->key, &data->tls, err);
    if (status == DDP_OK)
        status = ddpi_tls_put(data->tls, &nothing, 0, &data->leaving, err);
    if (status == DDP_OK)
        (void)tls_flush(data, fd, &broken); /* a failure shows when the connection is used */
    else
        ddpi_data_tls_finish(data);
    return status;
}

void ddpi_data_tls_finish(struct ddpi_data_tls *data)
{
    ddpi_tls_destroy(data->tls);
    ddpi_buf_finish(&data->arrived);
    ddpi_buf_finish(&data->leaving);
    ddpi_wipe(data, sizeof *data);
}

static size_t tls_pay(struct ddpi_data_tls *data, size_t len)
{
    size_t paid = data->owed < len ? data->owed : len;
    data->owed -= paid;
    return paid;
}

size_t ddpi_data_tls_send(struct ddpi_data_tls *data, int fd, const void *bytes, size_t len,
                          const char **ret_broken)
{
    if (!ddpi_tls_is_open(data->tls))
        tls_pull(data, fd, ret_broken);
    if (*ret_broken != NULL || !tls_flush(data, fd, ret_broken) || !ddpi_tls_is_open(data->tls))
        return 0;
    if (data->owed > 0 || len == 0)
        return tls_pay(data, len);
    struct ddpi_buf plain;
    size_t piece = len < PIECE ? len : PIECE;
    ddpi_buf_init(&plain, PIECE);
    bool put = ddpi_buf_append(&plain, bytes, piece) &&
               ddpi_tls_put(data->tls, &plain, piece, &data->leaving, NULL) == DDP_OK;
    ddpi_buf_finish(&plain);
    if (!put) {
        *ret_broken = "cannot be written to: out of memory";
        return 0;
    }
    data->owed = piece;
    return tls_flush(data, fd, ret_broken) ? tls_pay(data, len) : 0;
}

size_t ddpi_data_tls_receive(struct ddpi_data_tls *data, int fd, void *dst, size_t len,
                             const char **ret_broken)
{
    if (ddpi_buf_len(&data->arrived) == 0) {
        (void)tls_flush(data, fd, ret_broken);
        tls_pull(data, fd, ret_broken);
    }
    size_t there = ddpi_buf_len(&data->arrived);
    if (len > there)
        len = there;
    if (len > 0)
        memcpy(dst, ddpi_buf_head(&data->arrived), len);
    ddpi_buf_consume(&data->arrived, len);
    return len;
}

short ddpi_data_tls_events(const struct ddpi_data_tls *data, bool receives, bool sends)
{
    bool open = ddpi_tls_is_open(data->tls), rest = ddpi_buf_len(&data->leaving) > 0;
    return (short)((receives || !open ? POLLIN : 0) | (rest || (sends && open) ? POLLOUT : 0));
}
