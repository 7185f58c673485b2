/*
 * memory.c - the memory types that a communicator has opened. Owns them.
 */
#include "memory.h"

void ddpi_memories_init(struct ddpi_memories *memories, const struct ddpi_memory_type *const *types)
{
    unsigned last = 0;
    *memories = (struct ddpi_memories){.types = types};
    while (types[last]->library != NULL)
        last++;
    memories->host = (struct ddpi_memory){.type = types[last]};
    memories->open[last] = &memories->host;
}

void ddpi_memories_read_stats(const struct ddpi_memories *memories, struct ddp_comm_stats *stats)
{
    for (unsigned i = 0; memories->types[i]->library != NULL; i++)
        if (memories->open[i] != NULL && memories->types[i]->read_stats != NULL)
            memories->types[i]->read_stats(memories->open[i], stats);
}

ddp_status ddpi_memories_check(const struct ddpi_memories *memories, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (unsigned i = 0; memories->types[i]->library != NULL && status == DDP_OK; i++)
        if (memories->open[i] != NULL && memories->types[i]->check != NULL)
            status = memories->types[i]->check(memories->open[i], err);
    return status;
}

void ddpi_memories_destroy(struct ddpi_memories *memories)
{
    for (unsigned i = 0; memories->types[i]->library != NULL; i++) {
        if (memories->open[i] != NULL)
            memories->types[i]->destroy(memories->open[i]);
        memories->open[i] = NULL;
    }
}
