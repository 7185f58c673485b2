/*
 * file_store.c - the calls of <ddprun/store.h> that libddpcomm makes, on files below a folder: for
 * machines that have a GPU and neither libuv nor libsodium. One machine only.
 *
 * A store is the folder DDP_FILE_STORE/PORT, where PORT is that of its endpoint; nothing listens
 * there. A key is a file, named after it with '%' for '/'. Waiting is looking again.
 */
#include "error.h"
#include "parse.h"

#include <ddprun/store.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_TEXT = 4096, LOOK_MS = 1 };

struct ddp_store {
    char folder[PATH_TEXT / 2];
    char prefix[512];
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void name_key(const struct ddp_store *store, const char *key, char name[PATH_TEXT / 2])
{
    snprintf(name, PATH_TEXT / 2, "%s%s", store->prefix, key);
    for (char *c = name; *c != '\0'; c++)
        if (*c == '/')
            *c = '%';
}

static void find_key(const struct ddp_store *store, const char *key, char path[PATH_TEXT])
{
    char name[PATH_TEXT / 2];
    name_key(store, key, name);
    snprintf(path, PATH_TEXT, "%s/%s", store->folder, name);
}

ddp_status ddp_store_connect(const struct ddp_store_options *options, ddp_store **ret_store,
                             struct ddp_error *err)
{
    struct ddpi_endpoint endpoint;
    ddp_status status = ddpi_parse_endpoint(options->endpoint, &endpoint, err);
    if (status != DDP_OK)
        return status;
    const char *root = getenv("DDP_FILE_STORE");
    struct ddp_store *store = calloc(1, sizeof *store);
    if (store == NULL || root == NULL) {
        free(store);
        return ddpi_error_set(err, DDP_E_INVALID, "DDP_FILE_STORE names no folder");
    }
    snprintf(store->folder, sizeof store->folder, "%s/%u", root, (unsigned)endpoint.port);
    snprintf(store->prefix, sizeof store->prefix, "%s", options->prefix ? options->prefix : "");
    if (mkdir(store->folder, 0700) != 0 && errno != EEXIST) {
        status = ddpi_error_sys(err, errno, "cannot make '%s'", store->folder);
        free(store);
        return status;
    }
    *ret_store = store;
    return DDP_OK;
}

void ddp_store_close(ddp_store *store)
{
    free(store);
}

void ddp_store_free(void *memory)
{
    free(memory);
}

/* A reader sees the file whole or not at all. */
ddp_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t value_len,
                         uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err)
{
    char path[PATH_TEXT], fresh[PATH_TEXT];
    (void)timeout_ms;
    find_key(store, key, path);
    snprintf(fresh, sizeof fresh, "%s/.fresh-%d", store->folder, (int)getpid());
    FILE *file = fopen(fresh, "we");
    bool written = file != NULL && fwrite(value, 1, value_len, file) == value_len;
    if ((file != NULL && fclose(file) != 0) || !written || rename(fresh, path) != 0)
        return ddpi_error_sys(err, errno, "cannot write '%s'", path);
    if (ret_version != NULL)
        *ret_version = 1;
    return DDP_OK;
}

static bool read_file(const char *path, char **ret, size_t *ret_len)
{
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    char *value = fstat(fd, &stat) == 0 ? calloc(1, (size_t)stat.st_size + 1) : NULL;
    bool whole = value != NULL && read(fd, value, (size_t)stat.st_size) == stat.st_size;
    close(fd);
    if (!whole) {
        free(value);
        return false;
    }
    *ret = value;
    *ret_len = (size_t)stat.st_size;
    return true;
}

ddp_status ddp_store_try_get(ddp_store *store, const char *key, uint32_t timeout_ms,
                             void **ret_value, size_t *ret_len, uint64_t *ret_version,
                             struct ddp_error *err)
{
    char path[PATH_TEXT], *value;
    (void)timeout_ms;
    find_key(store, key, path);
    if (!read_file(path, &value, ret_len))
        return ddpi_error_set(err, DDP_E_NOT_FOUND, "there is no key '%s'", key);
    *ret_value = value;
    if (ret_version != NULL)
        *ret_version = 1;
    return DDP_OK;
}

ddp_status ddp_store_get(ddp_store *store, const char *key, uint32_t timeout_ms, void **ret_value,
                         size_t *ret_len, uint64_t *ret_version, struct ddp_error *err)
{
    for (uint64_t end = now_ms() + timeout_ms;; poll(NULL, 0, LOOK_MS)) {
        ddp_status status = ddp_store_try_get(store, key, 0, ret_value, ret_len, ret_version, err);
        if (status != DDP_E_NOT_FOUND)
            return status;
        if (now_ms() >= end)
            return ddpi_error_set(err, DDP_E_TIMEOUT, "there is no key '%s' yet", key);
    }
}

/* Only "if it has this value, then remove it", which is all that is asked for; one of those who do
 * so at the same time does. */
ddp_status ddp_store_transact(ddp_store *store, const struct ddp_store_clause *clauses,
                              size_t count, uint32_t timeout_ms, uint64_t *ret_version,
                              struct ddp_error *err)
{
    char path[PATH_TEXT], *value;
    size_t len;
    (void)timeout_ms;
    if (count != 2 || clauses[0].kind != DDP_STORE_IF_VALUE ||
        clauses[1].kind != DDP_STORE_THEN_DELETE)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "this store knows no such transaction");
    find_key(store, clauses[0].key, path);
    if (!read_file(path, &value, &len))
        return ddpi_error_set(err, DDP_E_CONFLICT, "there is no key '%s'", clauses[0].key);
    bool same = len == clauses[0].value_len && memcmp(value, clauses[0].value, len) == 0;
    free(value);
    if (!same || unlink(path) != 0)
        return ddpi_error_set(err, DDP_E_CONFLICT, "key '%s' has another value", clauses[0].key);
    if (ret_version != NULL)
        *ret_version = 2;
    return DDP_OK;
}
