/*
 * memory_file.h - files in memory that processes share: without a name, so nothing is left behind
 * when all of them are killed, and sealed against resizing, so none can take memory away from
 * others.
 */
#ifndef DDPI_MEMORY_FILE_H
#define DDPI_MEMORY_FILE_H

#include <ddprun/comm.h>

/* A file of @size bytes, of which the first @now are allocated at once; the caller closes it. @name
 * is for /proc. DDP_E_SYSTEM: a limit of this process forbids it, or there is no memory. */
ddp_status ddpi_memory_file_make(const char *name, size_t size, size_t now, int *ret_fd,
                                 struct ddp_error *err);

/* DDP_E_PROTOCOL unless @fd is a sealed file of @size bytes, as another process has made it for
 * @what. */
ddp_status ddpi_memory_file_check(int fd, size_t size, const char *what, struct ddp_error *err);

/* Allocate @len bytes at @at, so that a shortage is an error now and no SIGBUS later. */
ddp_status ddpi_memory_file_allocate(int fd, size_t at, size_t len, struct ddp_error *err);

/* Map all of it. */
ddp_status ddpi_memory_file_map(int fd, size_t size, uint8_t **ret_map, struct ddp_error *err);

#endif
