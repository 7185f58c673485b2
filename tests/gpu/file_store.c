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
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_TEXT = 4096, LOOK_MS = 1, LISTED_MAX = 4096 };

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

ddp_status ddp_store_get(ddp_store *store, const char *key, uint32_t timeout_ms, void **ret_value,
                         size_t *ret_len, uint64_t *ret_version, struct ddp_error *err)
{
    char path[PATH_TEXT], *value;
    find_key(store, key, path);
    for (uint64_t end = now_ms() + timeout_ms; !read_file(path, &value, ret_len);
         poll(NULL, 0, LOOK_MS))
        if (now_ms() >= end)
            return ddpi_error_set(err, DDP_E_TIMEOUT, "there is no key '%s' yet", key);
    *ret_value = value;
    if (ret_version != NULL)
        *ret_version = 1;
    return DDP_OK;
}

ddp_status ddp_store_wait(ddp_store *store, const char *const *keys, size_t count,
                          uint32_t timeout_ms, struct ddp_error *err)
{
    uint64_t end = now_ms() + timeout_ms;
    for (size_t i = 0; i < count; i++) {
        char path[PATH_TEXT];
        find_key(store, keys[i], path);
        for (; access(path, F_OK) != 0; poll(NULL, 0, LOOK_MS))
            if (now_ms() >= end)
                return ddpi_error_set(err, DDP_E_TIMEOUT, "there is no key '%s' yet", keys[i]);
    }
    return DDP_OK;
}

ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta, uint32_t timeout_ms,
                         int64_t *ret_sum, struct ddp_error *err)
{
    char path[PATH_TEXT], lock[PATH_TEXT], text[32], *old = NULL;
    size_t len = 0;
    int64_t sum = 0;
    (void)timeout_ms;
    find_key(store, key, path);
    snprintf(lock, sizeof lock, "%s/.lock", store->folder);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        return ddpi_error_sys(err, errno, "cannot lock '%s'", lock);
    if (read_file(path, &old, &len) &&
        ddpi_parse_int(old, INT64_MIN, INT64_MAX, &sum, err) != DDP_OK)
        sum = 0;
    free(old);
    sum += delta;
    int digits = snprintf(text, sizeof text, "%" PRId64, sum);
    ddp_status status = ddp_store_set(store, key, text, (size_t)digits, 0, NULL, err);
    close(fd);
    if (status == DDP_OK && ret_sum != NULL)
        *ret_sum = sum;
    return status;
}

/* One piece of memory: pointers, then names, in the store's spelling again. */
static char **make_list(const struct ddp_store *store, char (*names)[256], size_t count)
{
    size_t skip = strlen(store->prefix);
    char **list = calloc(count + 1, sizeof *list + 256);
    if (list == NULL)
        return NULL;
    char *text = (char *)(list + count + 1);
    for (size_t i = 0; i < count; i++, text += 256) {
        list[i] = text;
        snprintf(text, 256, "%s", names[i] + skip);
        for (char *c = text; *c != '\0'; c++)
            if (*c == '%')
                *c = '/';
    }
    return list;
}

ddp_status ddp_store_list(ddp_store *store, const char *prefix, uint32_t timeout_ms,
                          char ***ret_keys, size_t *ret_count, struct ddp_error *err)
{
    char wanted[PATH_TEXT / 2];
    char(*names)[256] = calloc(LISTED_MAX, sizeof *names);
    size_t count = 0;
    (void)timeout_ms;
    name_key(store, prefix, wanted);
    DIR *folder = opendir(store->folder);
    for (struct dirent *entry; folder != NULL && names != NULL && count < LISTED_MAX &&
                               (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, wanted, strlen(wanted)) == 0)
            snprintf(names[count++], sizeof *names, "%.255s", entry->d_name);
    if (folder != NULL)
        closedir(folder);
    char **list = names != NULL ? make_list(store, names, count) : NULL;
    free(names);
    if (list == NULL)
        return ddpi_error_nomem(err, count * sizeof *names);
    *ret_keys = list;
    *ret_count = count;
    return DDP_OK;
}
