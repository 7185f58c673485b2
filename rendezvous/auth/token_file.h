/*
 * token_file.h - secrets from outside: token files, keys of roles, and random bytes. The only file
 * of the store that opens files; used by clients and servers.
 *
 * A token file holds 64 hexadecimal digits and a newline. Instead it can hold the key of one
 * identity at one store, "ddprun-key 2 ROLE JOB EPOCH STORE HEX" and a newline, with "-" for no
 * job, and the number of the store in 16 hexadecimal digits. Both are secrets of one user, so a
 * file that others can read or could have written is refused; the error names the command that
 * repairs it. A file of root's may be read by a group: root has decided who is in it.
 */
#ifndef DDPI_TOKEN_FILE_H
#define DDPI_TOKEN_FILE_H

#include "proof.h"

enum { DDPI_KEY_LINE = 256 }; /* size of the longest line, with its NUL */

/* Read the file at @path; "/dev/fd/N" is the open descriptor N, as for ddpi_token_read_fd(). Else
 * it must be a regular file of this user that no other user can access, or one of root's that its
 * group may read.
 * DDP_E_NOT_FOUND: it does not exist. DDP_E_DENIED: it cannot be trusted. DDP_E_INVALID: it holds
 * neither a token nor a key, or the descriptor is of a pipe, which cannot be read twice. */
DDP_MUST_CHECK ddp_status ddpi_token_read(const char *path, struct ddpi_credential *ret,
                                          struct ddp_error *err);

/* The same from an open descriptor, such as a sealed memfd, whose origin is trusted. Reads from its
 * beginning without moving its offset, so that several processes can read it, and makes it
 * close-on-exec, so that programs that this one executes do not inherit the key. */
DDP_MUST_CHECK ddp_status ddpi_token_read_fd(int fd, struct ddpi_credential *ret,
                                             struct ddp_error *err);

/* Read the token at @path; create it if it does not exist, with its folder and the one above. If
 * several processes do so at once, one creates it and all get the same. */
DDP_MUST_CHECK ddp_status ddpi_token_obtain(const char *path, struct ddpi_credential *ret,
                                            struct ddp_error *err);

/* The path of a user's token: "ddprun/token" in @config_home, or if that is not an absolute path,
 * in ".config" in @home. Free *@ret. DDP_E_INVALID: neither is an absolute path. */
DDP_MUST_CHECK ddp_status ddpi_token_default_path(const char *config_home, const char *home,
                                                  char **ret, struct ddp_error *err);

/* The number of a store as text: 16 hexadecimal digits. DDP_E_INVALID: @text is not one. */
enum { DDPI_STORE_NUMBER = 17 };
void ddpi_store_number_put(uint64_t number, char ret[DDPI_STORE_NUMBER]);
DDP_MUST_CHECK ddp_status ddpi_store_number_get(const char *text, uint64_t *ret,
                                                struct ddp_error *err);

/* The line of a key file for @identity, with its newline. */
DDP_MUST_CHECK ddp_status ddpi_token_key_line(const struct ddpi_credential *token,
                                              const struct ddpi_identity *identity,
                                              char ret[DDPI_KEY_LINE], struct ddp_error *err);

/* A copy of @credential in memory that is excluded from core dumps and, within the limit on locked
 * memory, from swap; NULL: out of memory. ddpi_token_drop() wipes it; NULL is allowed. */
struct ddpi_credential *ddpi_token_keep(const struct ddpi_credential *credential);
void ddpi_token_drop(struct ddpi_credential *kept);

/* Random bytes. Thread-safe. */
void ddpi_token_random(void *bytes, size_t len);

#endif
