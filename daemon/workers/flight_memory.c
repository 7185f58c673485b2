/*
 * flight_memory.c - see flight_memory.h. Owns the mappings. A worker can write to its file, so
 * nothing that the header says is used here.
 */
#include "flight_memory.h"

#include "clock.h"
#include "mem.h"
#include "memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

void flight_memory_open(struct flight_memory *memory, uint32_t count, uint32_t records)
{
    *memory = (struct flight_memory){.count = count};
    if (records == 0)
        return;
    memory->files = ddpi_calloc(count, sizeof *memory->files);
    memory->records = memory->files != NULL ? ddpi_flight_capacity(records) : 0;
}

static void drop_file(const struct flight_memory *memory, uint32_t local_rank)
{
    if (memory->files[local_rank] != NULL)
        munmap(memory->files[local_rank], ddpi_flight_size(memory->records));
    memory->files[local_rank] = NULL;
}

void flight_memory_renew(struct flight_memory *memory)
{
    for (uint32_t i = 0; memory->files != NULL && i < memory->count; i++)
        drop_file(memory, i);
}

void flight_memory_close(struct flight_memory *memory)
{
    flight_memory_renew(memory);
    ddpi_free(memory->files);
    *memory = (struct flight_memory){0};
}

/* Pages are allocated as they are used. Nobody can change the size, so reading never fails. */
int flight_memory_make(struct flight_memory *memory, uint32_t local_rank)
{
    int fd;
    size_t size = ddpi_flight_size(memory->records);
    if (memory->records == 0 ||
        ddpi_memory_file_make("ddprun-flight", size, 0, DDPI_FLIGHT_SEALS, &fd, NULL) != DDP_OK)
        return 0;
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        close(fd);
        return 0;
    }
    drop_file(memory, local_rank);
    memory->files[local_rank] = mapped;
    ddpi_flight_format(memory->files[local_rank], memory->records);
    return fd;
}

bool flight_memory_has(const struct flight_memory *memory, uint32_t local_rank)
{
    return memory->files != NULL && memory->files[local_rank] != NULL;
}

struct ddpi_flight_header *flight_memory_copy(const struct flight_memory *memory,
                                              uint32_t local_rank, uint32_t last,
                                              const struct ddpi_flight_place *place,
                                              size_t *ret_len)
{
    bool has = flight_memory_has(memory, local_rank);
    uint32_t most = !has ? 0 : last < memory->records ? last : memory->records;
    struct ddpi_flight_header *copy = ddpi_calloc(ddpi_flight_size(most), 1);
    if (copy == NULL)
        return NULL;
    struct ddpi_flight_place now = *place;
    now.read_ns = 1000 * ddpi_monotonic_us();
    now.read_real_ns = ddpi_now_real_ns();
    now.no_recorder = !has;
    if (has) {
        *ret_len = ddpi_flight_copy(memory->files[local_rank], memory->records, most, &now, copy);
        return copy;
    }
    ddpi_flight_format(copy, 0);
    copy->place = now;
    *ret_len = ddpi_flight_size(0);
    return copy;
}
