/*
 * raw.h - a bare TCP connection for tests that say what no client library would.
 */
#ifndef TESTS_RAW_H
#define TESTS_RAW_H

#include "buf.h"
#include "proto.h"

int raw_connect(uint16_t port);
/* -1 if nobody listens there. */
int raw_try_connect(uint16_t port);
/* A listening socket on a free port of 127.0.0.1. */
int raw_listen(uint16_t *ret_port);
/* A socket that holds a free port of 127.0.0.1 and does not listen: connections are refused. */
int raw_bind(uint16_t *ret_port);
int raw_accept(int listen_fd);

/* All of it; a peer that closes meanwhile is no failure. */
void raw_send(int fd, const void *bytes, size_t len);
/* Exactly @len bytes. */
void raw_receive(int fd, void *bytes, size_t len);
/* Drop what comes until the peer has closed. */
void raw_until_closed(int fd);

/* The client's preamble and HELLO. */
void raw_put_greeting(struct ddpi_buf *buf, uint32_t auth);
/* Greet and take the server's answer; as an agent of no job, or of @job. */
void raw_greet(int fd);
void raw_greet_as(int fd, const char *job);
/* The next frame of the server: the payload goes to @payload (DDPI_FRAME_HEADER_SIZE bytes and
 * more are allowed for), which must be large enough. */
struct ddpi_frame raw_frame(int fd, void *payload, size_t size);
void raw_request(int fd, const struct ddpi_message *request);

uint64_t raw_now_ms(void);

#endif
