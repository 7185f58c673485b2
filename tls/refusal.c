/*
 * refusal.c - TLS's word for "access denied", a record of two bytes: who does not speak TLS can say
 * so without a library.
 */
#include "tls.h"

const uint8_t ddpi_tls_refusal[DDPI_TLS_REFUSAL_SIZE] = {
    21, 3,  3, 0, 2, /* an alert of two bytes: */
    2,  49,          /* fatal, access_denied */
};
