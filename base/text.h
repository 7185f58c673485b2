/*
 * text.h - text that came from outside, made fit to be shown to a person.
 */
#ifndef DDPI_TEXT_H
#define DDPI_TEXT_H

/* Replace control characters, tabs excepted, by '?', so that a text cannot drive a terminal or
 * pretend to be several lines. */
void ddpi_text_mask(char *text);

#endif
