/*
 * always_reads.c - see always_reads.h. Owns the switch.
 */
#include "always_reads.h"

#include "copy_choice.h"

bool always_reads;

struct ddpi_copy_way __real_ddpi_copy_next(struct ddpi_copy_choice *choice, size_t bytes,
                                           unsigned paths, enum ddpi_copy_meeting more_ns);
struct ddpi_copy_way __wrap_ddpi_copy_next(struct ddpi_copy_choice *choice, size_t bytes,
                                           unsigned paths, enum ddpi_copy_meeting more_ns);

struct ddpi_copy_way __wrap_ddpi_copy_next(struct ddpi_copy_choice *choice, size_t bytes,
                                           unsigned paths, enum ddpi_copy_meeting more_ns)
{
    if (always_reads && (paths >> DDPI_COPY_KERNEL & 1) != 0)
        return (struct ddpi_copy_way){.path = DDPI_COPY_KERNEL};
    return __real_ddpi_copy_next(choice, bytes, paths, more_ns);
}
