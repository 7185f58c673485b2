/*
 * data_tls.h - TLS on the data connection of two ranks: tls.h on a socket that does not block.
 * Neither closes nor waits.
 *
 * The key follows from what both sides have proven on this very connection (greeting.h), so an
 * attacker between them cannot splice two connections. The side that connected begins at once; the
 * other one answers when it is in an operation.
 */
#ifndef DDPI_DATA_TLS_H
#define DDPI_DATA_TLS_H

#include "proof.h"
#include "tls.h"

struct ddpi_data_tls {
    struct ddpi_tls *tls;
    struct ddpi_tls_key key; /* of the accepting side; TLS asks it for the key */
    struct ddpi_buf arrived; /* plaintext */
    struct ddpi_buf leaving; /* ciphertext */
    size_t owed;             /* bytes in `leaving` that send() has not accepted yet */
};

/* @connects: this side connected. @seals are those of the greeting. After a failure there is
 * nothing to finish. */
ddp_status ddpi_data_tls_init(struct ddpi_data_tls *data, const struct ddpi_tls_engine *engine,
                              const struct ddpi_seals *seals, bool connects, int fd,
                              struct ddp_error *err);
void ddpi_data_tls_finish(struct ddpi_data_tls *data);

/* As send(2) and recv(2), but they never wait: return how many of the @len bytes. Bytes count as
 * sent when the kernel has them all; pass the others again. When the connection is broken,
 * *@ret_broken is set to how. */
size_t ddpi_data_tls_send(struct ddpi_data_tls *data, int fd, const void *bytes, size_t len,
                          const char **ret_broken);
size_t ddpi_data_tls_receive(struct ddpi_data_tls *data, int fd, void *dst, size_t len,
                             const char **ret_broken);

/* The events to poll(2) for. */
short ddpi_data_tls_events(const struct ddpi_data_tls *data, bool receives, bool sends);

#endif
