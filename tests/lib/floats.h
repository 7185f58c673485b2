/*
 * floats.h - one float of 8 or 16 bits at a time, by the product's own conversions.
 */
#ifndef TESTS_FLOATS_H
#define TESTS_FLOATS_H

#include <stdint.h>

float float_from_half(uint16_t half);
uint16_t half_from_float(float value);
float float_from_bfloat(uint16_t bfloat);
uint16_t bfloat_from_float(float value);
float float_from_e4m3(uint8_t bits);
uint8_t e4m3_from_float(float value);
float float_from_e5m2(uint8_t bits);
uint8_t e5m2_from_float(float value);

#endif
