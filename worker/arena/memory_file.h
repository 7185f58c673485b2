/*
 * memory_file.h - files in memory that processes share: without a name, so nothing is left behind
 * when all of them are killed, and sealed against shrinking, so none can take memory away from
 * others.
 */
#ifndef DDPI_MEMORY_FILE_H
#define DDPI_MEMORY_FILE_H

#include <ddprun/comm.h>
#include <stdbool.h>

/* From this size on memory should lie in pages of this size, in the file and where it is mapped. */
enum { DDPI_HUGE_PAGE = 2 * 1024 * 1024 };

/* A file of @size bytes, of which the first @now are allocated at once; the caller closes it. @name
 * is for /proc. DDP_E_SYSTEM: a limit of this process forbids it, or there is no memory. */
ddp_status ddpi_memory_file_make(const char *name, size_t size, size_t now, int *ret_fd,
                                 struct ddp_error *err);

/* Whether @fd is a sealed file of at least @size bytes. */
bool ddpi_memory_file_has(int fd, size_t size);

/* The same of one that another process has made for @what, else DDP_E_PROTOCOL; DDP_E_SYSTEM: this
 * process may not have such a file. */
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
