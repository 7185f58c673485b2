/*
 * text_file.h - reads a small text that the kernel makes, as those in /proc and /sys.
 */
#ifndef DAEMON_TEXT_FILE_H
#define DAEMON_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* As much of it as fits into @text, with a NUL behind it. false: it cannot be read, or is empty. */
bool text_read(const char *path, char *text, size_t size);

#endif
