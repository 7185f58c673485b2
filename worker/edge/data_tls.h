/*
 * data_tls.h - TLS on the data connection of two ranks: what tls.h does, on a socket that does not
 * block. It neither closes nor waits.
 *
 * Its key follows from what both have proven on this very connection (greeting.h), so that two
 * connections cannot be joined crosswise by somebody between. Who connected begins, at once; the
 * other one answers when it is in an operation.
 */
#ifndef DDPI_DATA_TLS_H
#define DDPI_DATA_TLS_H

#include "proof.h"
#include "tls.h"

struct ddpi_data_tls {
    struct ddpi_tls *tls;
    struct ddpi_tls_key key; /* of who is connected to, whom TLS asks for it */
    struct ddpi_buf arrived; /* plaintext */
    struct ddpi_buf leaving; /* ciphertext */
    size_t owed;             /* bytes that are in `leaving`, and that send() has not taken yet */
};

/* @connects: on this side. @seals are those of the greeting. On failure there is nothing to finish.
 */
ddp_status ddpi_data_tls_init(struct ddpi_data_tls *data, const struct ddpi_tls_engine *engine,
                              const struct ddpi_seals *seals, bool connects, int fd,
                              struct ddp_error *err);
void ddpi_data_tls_finish(struct ddpi_data_tls *data);

/* As send(2) and recv(2) that never wait: how many of the @len bytes. Bytes count as sent when the
 * kernel has them all; of those that do not, the same come again. *@ret_broken is set when it is
 * over, to what the peer has done. */
size_t ddpi_data_tls_send(struct ddpi_data_tls *data, int fd, const void *bytes, size_t len,
                          const char **ret_broken);
size_t ddpi_data_tls_receive(struct ddpi_data_tls *data, int fd, void *dst, size_t len,
                             const char **ret_broken);

/* What to poll(2) for. */
short ddpi_data_tls_events(const struct ddpi_data_tls *data, bool receives, bool sends);

#endif
