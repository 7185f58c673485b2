/*
 * refusal.c - the TLS alert "access denied" as constant bytes, so that a side without TLS can
 * refuse a TLS connection without loading a library.
 */
#include "tls.h"

const uint8_t ddpi_tls_refusal[DDPI_TLS_REFUSAL_SIZE] = {
    21, 3,  3, 0, 2, /* an alert of two bytes: */
    2,  49,          /* fatal, access_denied */
};
