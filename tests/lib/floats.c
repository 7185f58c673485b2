/*
 * floats.c - see floats.h.
 */
#include "floats.h"

#include "floats_impl.h"

float float_from_half(uint16_t half)
{
    return half_to_float(half);
}

uint16_t half_from_float(float value)
{
    return float_to_half(value);
}

float float_from_bfloat(uint16_t bfloat)
{
    return bfloat_to_float(bfloat);
}

uint16_t bfloat_from_float(float value)
{
    return float_to_bfloat(value);
}

float float_from_e4m3(uint8_t bits)
{
    return e4m3_to_float(bits);
}

uint8_t e4m3_from_float(float value)
{
    return float_to_e4m3(value);
}

float float_from_e5m2(uint8_t bits)
{
    return e5m2_to_float(bits);
}

uint8_t e5m2_from_float(float value)
{
    return float_to_e5m2(value);
}
