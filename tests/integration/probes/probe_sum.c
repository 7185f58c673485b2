/*
 * probe_sum.c - a worker: an all-reduce adds up rank + 1 of all ranks.
 *
 *     probe_sum [DIR]
 *
 * With DIR the ranks meet as those of PyTorch's back end "ddp": through functions of a key-value
 * store, here the files in DIR, of which the library knows no more than MASTER_ADDR.
 */
#include <ddprun/comm.h>
#include <ddprun/kv.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 512, LOOK_MS = 5 };

static void path_of(const char *dir, const char *key, char path[PATH_SIZE])
{
    size_t len = (size_t)snprintf(path, PATH_SIZE, "%s/", dir);
    snprintf(path + len, PATH_SIZE - len, "%s", key);
    for (char *at = path + len; (at = strchr(at, '/')) != NULL;)
        *at = '.';
}

static ddp_status set(void *ctx, const char *key, const void *value, size_t len,
                      struct ddp_error *err)
{
    char path[PATH_SIZE], made[PATH_SIZE + 8];
    (void)err;
    path_of(ctx, key, path);
    snprintf(made, sizeof made, "%s.new", path);
    FILE *file = fopen(made, "w");
    if (file == NULL)
        return DDP_E_SYSTEM;
    bool done = fwrite(value, 1, len, file) == len;
    done = fclose(file) == 0 && done;
    return done && rename(made, path) == 0 ? DDP_OK : DDP_E_SYSTEM;
}

static ddp_status get(void *ctx, const char *key, void *buffer, size_t size, size_t *ret_len,
                      struct ddp_error *err)
{
    char path[PATH_SIZE];
    (void)err;
    path_of(ctx, key, path);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return DDP_E_NOT_FOUND;
    *ret_len = fread(buffer, 1, size, file);
    fclose(file);
    return DDP_OK;
}

static ddp_status await(void *ctx, const char *key, uint32_t timeout_ms, struct ddp_error *err)
{
    char path[PATH_SIZE];
    (void)err;
    path_of(ctx, key, path);
    for (uint32_t ms = 0; ms < timeout_ms; ms += LOOK_MS) {
        if (access(path, F_OK) == 0)
            return DDP_OK;
        poll(NULL, 0, LOOK_MS);
    }
    return DDP_E_TIMEOUT;
}

static ddp_status forget(void *ctx, const char *key, struct ddp_error *err)
{
    char path[PATH_SIZE];
    (void)err;
    path_of(ctx, key, path);
    (void)unlink(path);
    return DDP_OK;
}

static void expect(ddp_status status, const struct ddp_error *err)
{
    if (status == DDP_OK)
        return;
    fprintf(stderr, "probe_sum: %s\n", err->msg);
    exit(1);
}

int main(int argc, char **argv)
{
    const struct ddp_kv kv = {
        .size = sizeof kv, .ctx = argv[1], .set = set, .get = get, .wait = await, .remove = forget};
    const struct ddp_comm_options options = {.size = sizeof options, .kv = argc > 1 ? &kv : NULL};
    struct ddp_error err = {0};
    ddp_comm *comm;
    expect(ddp_comm_init(&options, &comm, &err), &err);
    float number = (float)ddp_comm_rank(comm) + 1.0F, sum = 0;
    expect(ddp_all_reduce(comm, &number, &sum, 1, DDP_FLOAT32, DDP_SUM, NULL, &err), &err);
    printf("rank %u: the sum is %g, MASTER_ADDR is %s\n", ddp_comm_rank(comm), sum,
           getenv("MASTER_ADDR"));
    ddp_comm_destroy(comm);
    return 0;
}
