/*
 * flight_memory.h - the memory of the workers' flight recorders (flight_file.h): a memory file for
 * each worker of a generation, which the worker inherits and the agent keeps after its death, until
 * the next generation begins. An aid only: what fails leaves a worker without a recorder.
 */
#ifndef DAEMON_FLIGHT_MEMORY_H
#define DAEMON_FLIGHT_MEMORY_H

#include "flight_file.h"

struct flight_memory {
    struct ddpi_flight_header **files; /* by local rank; NULL: none */
    uint32_t count;
    uint32_t records; /* of each file; 0: no recorders */
};

/* Prepare for @count workers with @records each, rounded up; 0: none. */
void flight_memory_open(struct flight_memory *memory, uint32_t count, uint32_t records);

/* Free all of them; also after a zeroed struct. */
void flight_memory_close(struct flight_memory *memory);

/* A new generation begins: forget what the last one has recorded. */
void flight_memory_renew(struct flight_memory *memory);

/* Make the file of the worker at @local_rank, and return a descriptor of it for the worker, which
 * the caller closes. 0: there is no file. */
int flight_memory_make(struct flight_memory *memory, uint32_t local_rank);

/* Whether that worker has a file. */
bool flight_memory_has(const struct flight_memory *memory, uint32_t local_rank);

/* Copy the last @last records of that worker; @place says where, and the rest of it is set here. A
 * worker without a file has no records. NULL: memory is short. The caller frees the copy of
 * *@ret_len bytes. */
struct ddpi_flight_header *flight_memory_copy(const struct flight_memory *memory,
                                              uint32_t local_rank, uint32_t last,
                                              const struct ddpi_flight_place *place,
                                              size_t *ret_len);

#endif
