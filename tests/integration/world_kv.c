/*
 * world_kv.c - see world_kv.h. Owns the shared memory.
 */
#include "world_kv.h"

#include "check_main.h"
#include "world.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { KEYS = 16, KEY_TEXT = 200, VALUE_MAX = 600 };

struct row {
    bool used;
    char key[KEY_TEXT];
    uint8_t value[VALUE_MAX];
    size_t len;
};

struct world_kv {
    pthread_mutex_t lock;
    struct row rows[KEYS];
};

struct world_kv *world_kv_open(void)
{
    struct world_kv *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    return shared;
}

void world_kv_close(struct world_kv *shared)
{
    if (shared != NULL)
        munmap(shared, sizeof *shared);
}

static void lock_table(struct world_kv *shared)
{
    if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&shared->lock);
}

/* Call under the lock. The row of @key, or with @make a free one; NULL: none. */
static struct row *row_of(struct world_kv *shared, const char *key, bool make)
{
    struct row *unused = NULL;
    for (int i = 0; i < KEYS; i++) {
        struct row *row = &shared->rows[i];
        if (row->used && strcmp(row->key, key) == 0)
            return row;
        if (!row->used && unused == NULL)
            unused = row;
    }
    if (!make || unused == NULL)
        return NULL;
    snprintf(unused->key, sizeof unused->key, "%s", key);
    unused->len = 0;
    return unused;
}

static ddp_status shared_set(void *ctx, const char *key, const void *value, size_t len,
                             struct ddp_error *err)
{
    struct world_kv *shared = ctx;
    (void)err;
    lock_table(shared);
    struct row *row = row_of(shared, key, true);
    CHECK(row != NULL && len <= VALUE_MAX);
    memcpy(row->value, value, len);
    row->len = len;
    row->used = true;
    pthread_mutex_unlock(&shared->lock);
    return DDP_OK;
}

static ddp_status shared_get(void *ctx, const char *key, void *buffer, size_t size, size_t *ret_len,
                             struct ddp_error *err)
{
    struct world_kv *shared = ctx;
    (void)err;
    lock_table(shared);
    const struct row *row = row_of(shared, key, false);
    if (row != NULL) {
        memcpy(buffer, row->value, row->len < size ? row->len : size);
        *ret_len = row->len;
    }
    pthread_mutex_unlock(&shared->lock);
    return row != NULL ? DDP_OK : DDP_E_NOT_FOUND;
}

static ddp_status shared_wait(void *ctx, const char *key, uint32_t timeout_ms,
                              struct ddp_error *err)
{
    struct world_kv *shared = ctx;
    uint64_t deadline = now_us() + (uint64_t)timeout_ms * 1000;
    (void)err;
    for (;;) {
        lock_table(shared);
        bool there = row_of(shared, key, false) != NULL;
        pthread_mutex_unlock(&shared->lock);
        if (there)
            return DDP_OK;
        if (now_us() >= deadline)
            return DDP_E_TIMEOUT;
        poll(NULL, 0, 1);
    }
}

static ddp_status shared_remove(void *ctx, const char *key, struct ddp_error *err)
{
    (void)err;
    world_kv_remove(ctx, key);
    return DDP_OK;
}

struct ddp_kv world_kv_functions(struct world_kv *shared, bool can_remove)
{
    return (struct ddp_kv){.size = sizeof(struct ddp_kv),
                           .ctx = shared,
                           .set = shared_set,
                           .get = shared_get,
                           .wait = shared_wait,
                           .remove = can_remove ? shared_remove : NULL};
}

unsigned world_kv_count(struct world_kv *shared)
{
    unsigned count = 0;
    lock_table(shared);
    for (int i = 0; i < KEYS; i++)
        count += shared->rows[i].used;
    pthread_mutex_unlock(&shared->lock);
    return count;
}

bool world_kv_has(struct world_kv *shared, const char *key)
{
    lock_table(shared);
    const struct row *row = row_of(shared, key, false);
    bool has = row != NULL && row->len > 0;
    pthread_mutex_unlock(&shared->lock);
    return has;
}

void world_kv_remove(struct world_kv *shared, const char *key)
{
    lock_table(shared);
    struct row *row = row_of(shared, key, false);
    if (row != NULL)
        row->used = false;
    pthread_mutex_unlock(&shared->lock);
}
