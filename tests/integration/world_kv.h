/*
 * world_kv.h - a key-value store in memory that the processes of a test share, as a table of
 * functions for ddp_comm_init(). A process that is killed in one of them leaves it usable.
 */
#ifndef TESTS_WORLD_KV_H
#define TESTS_WORLD_KV_H

#include <ddprun/kv.h>
#include <stdbool.h>

struct world_kv;

struct world_kv *world_kv_open(void);
void world_kv_close(struct world_kv *shared);

/* The functions; without @can_remove, a store that cannot delete keys. */
struct ddp_kv world_kv_functions(struct world_kv *shared, bool can_remove);

/* For the test: how many keys there are; whether @key has a value that is not empty; remove it. */
unsigned world_kv_count(struct world_kv *shared);
bool world_kv_has(struct world_kv *shared, const char *key);
void world_kv_remove(struct world_kv *shared, const char *key);

#endif
