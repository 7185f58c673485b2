/*
 * say.h - ddprun's own messages.
 */
#ifndef CMD_SAY_H
#define CMD_SAY_H

/* Print one line on stderr. Control characters are masked: names and values come from outside, and
 * must not drive the terminal. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

#endif
