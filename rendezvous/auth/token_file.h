/*
 * token_file.h - secrets from outside: token files, role keys, and random bytes. The only file of
 * the store that opens files; both sides of the wire use it.
 *
 * A token file has 64 hexadecimal digits and a newline. In its place may stand the key of one
 * identity at one store, "ddprun-key 2 ROLE JOB EPOCH STORE HEX" and a newline, with "-" for no
 * job, and the store's number in 16 hexadecimal digits. Either is the secret of one user, so a file
 * that others can read, or could have put there, is refused; the sentence names the command that
 * repairs it.
 */
#ifndef DDPI_TOKEN_FILE_H
#define DDPI_TOKEN_FILE_H

#include "proof.h"

enum { DDPI_KEY_LINE = 256 }; /* bytes that the longest line fits into, with its NUL */

/* Read the file at @path, which must be a regular one of this user, or root's, and of nobody else
 * to read. DDP_E_NOT_FOUND: there is none. DDP_E_DENIED: it may not be trusted. DDP_E_INVALID: it
 * has something else in it. */
DDP_MUST_CHECK ddp_status ddpi_token_read(const char *path, struct ddpi_credential *ret,
                                          struct ddp_error *err);

/* The same from an open descriptor, such as a sealed memfd; from its beginning, without moving it,
 * so that several may read it. Who has handed it over is trusted. It is close-on-exec afterwards:
 * what this program executes gets no key by accident. */
DDP_MUST_CHECK ddp_status ddpi_token_read_fd(int fd, struct ddpi_credential *ret,
                                             struct ddp_error *err);

/* Read the token at @path; make it, and the directories above it, where there is none. Of several
 * processes that do so at once one makes it, and all have the same. */
DDP_MUST_CHECK ddp_status ddpi_token_obtain(const char *path, struct ddpi_credential *ret,
                                            struct ddp_error *err);

/* Where a user's token is: "ddprun/token" in @config_home, or if that is no absolute path in
 * ".config" in
 * @home. *@ret is the caller's to free. DDP_E_INVALID: neither is given. */
DDP_MUST_CHECK ddp_status ddpi_token_default_path(const char *config_home, const char *home,
                                                  char **ret, struct ddp_error *err);

/* A store's number as people write it: 16 hexadecimal digits. DDP_E_INVALID: it is none. */
enum { DDPI_STORE_NUMBER = 17 };
void ddpi_store_number_put(uint64_t number, char ret[DDPI_STORE_NUMBER]);
DDP_MUST_CHECK ddp_status ddpi_store_number_get(const char *text, uint64_t *ret,
                                                struct ddp_error *err);

/* The line that stands for the key of @identity, with its newline. */
DDP_MUST_CHECK ddp_status ddpi_token_key_line(const struct ddpi_credential *token,
                                              const struct ddpi_identity *identity,
                                              char ret[DDPI_KEY_LINE], struct ddp_error *err);

/* A copy of @credential in memory that is left out of core dumps and, as far as the limit on locked
 * memory goes, of swap; NULL: there is no memory. ddpi_token_drop() wipes it; NULL is allowed. */
struct ddpi_credential *ddpi_token_keep(const struct ddpi_credential *credential);
void ddpi_token_drop(struct ddpi_credential *kept);

/* Random bytes. Any thread. */
void ddpi_token_random(void *bytes, size_t len);

#endif
