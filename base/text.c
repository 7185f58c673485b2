/*
 * text.c - makes foreign text harmless. Pure.
 */
#include "text.h"

void ddpi_text_mask(char *text)
{
    for (; *text != '\0'; text++)
        if (((unsigned char)*text < 0x20 && *text != '\t') || *text == 0x7f)
            *text = '?';
}
