/*
 * text_file.h - reads small text files: those of the kernel, in /proc and /sys, and those that a
 * user names.
 */
#ifndef DDPI_TEXT_FILE_H
#define DDPI_TEXT_FILE_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>

/* Read as much of the file as fits into @text, and end it with a NUL. Returns false, with an empty
 * @text, if the file cannot be read or is empty. */
bool ddpi_text_file_read(const char *path, char *text, size_t size);

/* Read the whole file, which a user names, into @text, and end it with a NUL. It may have NULs of
 * its own, so *@ret_len has its length. DDP_E_INVALID: it cannot be read, is no regular file, which
 * could let the caller wait, or does not fit. */
DDP_MUST_CHECK ddp_status ddpi_text_file_load(const char *path, char *text, size_t size,
                                              size_t *ret_len, struct ddp_error *err);

#endif
