/*
 * print_message.h - ddprun's own messages.
 */
#ifndef CMD_PRINT_MESSAGE_H
#define CMD_PRINT_MESSAGE_H

/* Print one line on stderr. Control characters are masked: names and values come from outside, and
 * must not drive the terminal. */
__attribute__((format(printf, 1, 2))) void print_message(const char *format, ...);

#endif
