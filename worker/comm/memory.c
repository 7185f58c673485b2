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

bool ddpi_memories_are_busy(const struct ddpi_memories *memories)
{
    for (unsigned i = 0; memories->types[i]->library != NULL; i++)
        if (memories->open[i] != NULL && memories->open[i]->type->is_busy(memories->open[i]))
            return true;
    return false;
}

void ddpi_memories_read_stats(const struct ddpi_memories *memories, const struct ddp_comm *comm,
                              struct ddp_comm_stats *stats)
{
    unsigned first = 0; /* a type with a thread knows how to lock it out */
    while (memories->open[first] == NULL)
        first++;
    memories->open[first]->type->read_stats(memories->open[first], comm, stats);
}

void ddpi_memories_drain(const struct ddpi_memories *memories, const struct ddpi_memory *but)
{
    for (unsigned i = 0; memories->types[i]->library != NULL; i++)
        if (memories->open[i] != NULL && memories->open[i] != but)
            memories->open[i]->type->drain(memories->open[i]);
}

void ddpi_memories_stop(const struct ddpi_memories *memories)
{
    for (unsigned i = 0; memories->types[i]->library != NULL; i++)
        if (memories->open[i] != NULL)
            memories->open[i]->type->stop(memories->open[i]);
}

void ddpi_memories_destroy(struct ddpi_memories *memories)
{
    for (unsigned i = 0; memories->types[i]->library != NULL; i++) {
        if (memories->open[i] != NULL)
            memories->open[i]->type->destroy(memories->open[i]);
        memories->open[i] = NULL;
    }
}
