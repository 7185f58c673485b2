/*
 * memhook.c - the product's answer to every allocation: yes. A file of its own, so that a test
 * can put another in its place at link time.
 */
#include "memhook.h"

bool ddpi_alloc_allowed(void)
{
    return true;
}
