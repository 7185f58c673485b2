/*
 * target_impl.h - DDPI_TARGET("avx2"): compile what follows for processors that have more than the
 * build asks for, up to DDPI_TARGET_END. No header with code for all processors may stand between.
 */
#ifndef DDPI_TARGET_IMPL_H
#define DDPI_TARGET_IMPL_H

#define DDPI_PRAGMA(text) _Pragma(#text)

#ifdef __clang__
#define DDPI_TARGET(names) \
    DDPI_PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define DDPI_TARGET_END DDPI_PRAGMA(clang attribute pop)
#else
#define DDPI_TARGET(names) DDPI_PRAGMA(GCC push_options) DDPI_PRAGMA(GCC target(names))
#define DDPI_TARGET_END    DDPI_PRAGMA(GCC pop_options)
#endif

#endif
