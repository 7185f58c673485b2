/*
 * embed_store.c - a program that finds its peers through a ddprun store.
 *
 *     cc embed_store.c $(pkg-config --cflags --libs ddpstore) -o embed_store
 *     ./embed_store HOST:PORT RANK WORLD_SIZE
 *
 * Each of WORLD_SIZE processes publishes an address, waits until all have, and reads them.
 */
#include <ddprun/store.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_MS = 30000, KEY_SIZE = 32, WORLD_MAX = DDP_STORE_MANY_MAX };

static int fail(const struct ddp_error *err)
{
    fprintf(stderr, "embed_store: %s\n", err->msg);
    return EXIT_FAILURE;
}

/* Publish this rank's address under its own key, and count this rank as arrived. */
static ddp_status publish(ddp_store *store, long rank, struct ddp_error *err)
{
    char key[KEY_SIZE], address[64];
    int64_t arrived;
    snprintf(key, sizeof key, "address/%ld", rank);
    int len = snprintf(address, sizeof address, "10.0.0.%ld:5000", rank + 1);
    ddp_status status = ddp_store_set(store, key, address, (size_t)len, TIMEOUT_MS, NULL, err);
    if (status == DDP_OK)
        status = ddp_store_add(store, "arrived", 1, TIMEOUT_MS, &arrived, err);
    if (status == DDP_OK)
        printf("rank %ld: %" PRId64 " have arrived\n", rank, arrived);
    return status;
}

/* Wait for the keys of all ranks with a single request. */
static ddp_status wait_for_all(ddp_store *store, long world_size, struct ddp_error *err)
{
    char(*names)[KEY_SIZE] = calloc((size_t)world_size, sizeof *names);
    const char **keys = calloc((size_t)world_size, sizeof *keys);
    ddp_status status = DDP_E_NOMEM;
    if (names != NULL && keys != NULL) {
        for (long rank = 0; rank < world_size; rank++) {
            snprintf(names[rank], KEY_SIZE, "address/%ld", rank);
            keys[rank] = names[rank];
        }
        status = ddp_store_wait(store, keys, (size_t)world_size, TIMEOUT_MS, err);
    } else {
        snprintf(err->msg, sizeof err->msg, "out of memory");
    }
    free(keys);
    free(names);
    return status;
}

static ddp_status print_address(ddp_store *store, long of_rank, struct ddp_error *err)
{
    char key[KEY_SIZE];
    void *value;
    size_t len;
    snprintf(key, sizeof key, "address/%ld", of_rank);
    ddp_status status = ddp_store_get(store, key, TIMEOUT_MS, &value, &len, NULL, err);
    if (status != DDP_OK)
        return status;
    printf("rank %ld is at %s\n", of_rank, (const char *)value);
    ddp_store_free(value);
    return DDP_OK;
}

int main(int argc, char **argv)
{
    long rank = argc == 4 ? strtol(argv[2], NULL, 10) : -1;
    long world_size = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (rank < 0 || rank >= world_size || world_size > WORLD_MAX) {
        fprintf(stderr, "usage: embed_store HOST:PORT RANK WORLD_SIZE\n");
        return 2;
    }
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = argv[1], .prefix = "embed_store/"};
    struct ddp_error err;
    ddp_store *store;
    if (ddp_store_connect(&options, &store, &err) != DDP_OK)
        return fail(&err);
    ddp_status status = publish(store, rank, &err);
    if (status == DDP_OK)
        status = wait_for_all(store, world_size, &err);
    for (long other = 0; other < world_size && status == DDP_OK; other++)
        status = print_address(store, other, &err);
    ddp_store_close(store);
    return status == DDP_OK ? EXIT_SUCCESS : fail(&err);
}
