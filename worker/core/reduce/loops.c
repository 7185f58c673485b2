/*
 * loops.c - which tables of loops this processor can run. Pure: what the processor has was asked by
 * the compiler's library when the process started.
 */
#include "loops.h"

#ifdef __x86_64__
/* clang has no name for F16C; processors with AVX2 have it. */
#ifdef __clang__
#define SUPPORTS_F16C true
#else
#define SUPPORTS_F16C __builtin_cpu_supports("f16c")
#endif

static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && SUPPORTS_F16C;
}

static bool runs_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && runs_avx2();
}
#endif

static bool runs_always(void)
{
    return true;
}

static const struct {
    const struct ddpi_loops *loops;
    bool (*runs)(void);
} tables[] = {
    {&ddpi_loops_plain, runs_always},
#ifdef __x86_64__
    {&ddpi_loops_avx2, runs_avx2},
    {&ddpi_loops_avx512, runs_avx512},
#endif
#ifdef __aarch64__
    {&ddpi_loops_neon, runs_always},
#endif
};

enum { TABLES = sizeof tables / sizeof *tables };

const struct ddpi_loops *ddpi_loops_variant(size_t index)
{
    for (size_t i = 0; i < TABLES; i++)
        if (tables[i].runs() && index-- == 0)
            return tables[i].loops;
    return NULL;
}

const struct ddpi_loops *ddpi_loops_best(void)
{
    size_t last = TABLES - 1;
    while (!tables[last].runs())
        last--;
    return tables[last].loops;
}
