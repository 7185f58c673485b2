/*
 * text_file.h - reads small text files of the kernel, such as those in /proc and /sys.
 */
#ifndef DDPI_TEXT_FILE_H
#define DDPI_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Read as much of the file as fits into @text, and end it with a NUL. Returns false, with an empty
 * @text, if the file cannot be read or is empty. */
bool ddpi_text_file_read(const char *path, char *text, size_t size);

#endif
