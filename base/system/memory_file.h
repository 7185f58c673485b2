/*
 * memory_file.h - files in memory that processes share: without a name, so nothing is left behind
 * when all of them are killed, and sealed against shrinking, so none can take memory away from
 * others. Such a file counts against RLIMIT_FSIZE; beyond that limit the kernel would send a signal
 * that kills.
 */
#ifndef DDPI_MEMORY_FILE_H
#define DDPI_MEMORY_FILE_H

#include <ddprun/status.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From this size on memory should lie in pages of this size, in the file and where it is mapped. */
enum { DDPI_HUGE_PAGE = 2 * 1024 * 1024 };

/* The seals of a file that may grow, and of one that keeps its size. */
enum {
    DDPI_SEALS_GROWING = F_SEAL_SHRINK | F_SEAL_SEAL,
    DDPI_SEALS_FIXED = DDPI_SEALS_GROWING | F_SEAL_GROW,
};

/* A file of @size bytes with @seals, of which the first @now are allocated at once; the caller
 * closes it. @name is for /proc. DDP_E_SYSTEM: a limit of this process forbids it, or there is no
 * memory. */
DDP_MUST_CHECK ddp_status ddpi_memory_file_make(const char *name, size_t size, size_t now,
                                                int seals, int *ret_fd, struct ddp_error *err);

/* A file that holds the @len @bytes and cannot be changed, for a secret that another process
 * inherits; the caller closes it. -1: errno says why there is none. It does not look at
 * RLIMIT_FSIZE: with SIGXFSZ ignored a file that is too large is EFBIG. */
int ddpi_memory_file_keep(const char *name, const void *bytes, size_t len);

/* Whether @fd is a file of at least @size bytes with all of @seals. */
bool ddpi_memory_file_has(int fd, size_t size, int seals);

/* The same of a growing one that another process has made for @what, else DDP_E_PROTOCOL;
 * DDP_E_SYSTEM: this process may not have such a file. */
ddp_status ddpi_memory_file_check(int fd, size_t size, const char *what, struct ddp_error *err);

/* DDP_E_SYSTEM: a limit, or the size of the machine, forbids @len bytes at @at of any file. */
ddp_status ddpi_memory_file_may_allocate(size_t at, size_t len, struct ddp_error *err);

/* Allocate @len bytes at @at, so that a shortage is an error now and no SIGBUS later. The file
 * grows if they are beyond its end. */
ddp_status ddpi_memory_file_allocate(int fd, size_t at, size_t len, struct ddp_error *err);

/* Give the memory of @len bytes at @at back to the system, wherever they are mapped; they are zeros
 * from now on. false: the kernel cannot do that. */
bool ddpi_memory_file_release(int fd, size_t at, size_t len);

/* Map @len bytes at @at. */
ddp_status ddpi_memory_file_map(int fd, size_t at, size_t len, uint8_t **ret_map,
                                struct ddp_error *err);

#endif
