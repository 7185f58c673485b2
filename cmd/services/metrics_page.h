/*
 * metrics_page.h - metrics_page.html as text, made by scripts/embed.py.
 */
#ifndef CMD_METRICS_PAGE_H
#define CMD_METRICS_PAGE_H

#include <stddef.h>

extern const char metrics_page[];
extern const size_t metrics_page_len;

#endif
