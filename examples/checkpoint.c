/*
 * checkpoint.c - checkpoint files: a header, the model, its velocity and a checksum of these, in
 * the byte order of the machine.
 */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

enum { PARTS = 4, PATH_SIZE = 4096 };

static const char magic[8] = "ddpck01";

struct header {
    char magic[sizeof magic];
    struct checkpoint_run run;
    int64_t step;
};

/* A file consists of these parts, in this order. */
static void list_parts(const struct checkpoint *checkpoint, struct header *header, uint64_t *sum,
                       struct iovec parts[PARTS])
{
    parts[0] = (struct iovec){header, sizeof *header};
    parts[1] = (struct iovec){checkpoint->model, sizeof *checkpoint->model};
    parts[2] = (struct iovec){checkpoint->velocity, sizeof *checkpoint->velocity};
    parts[3] = (struct iovec){sum, sizeof *sum};
}

static uint64_t checksum(const struct iovec parts[PARTS])
{
    uLong sum = crc32(0, NULL, 0);
    for (int i = 0; i < PARTS - 1; i++)
        sum = crc32(sum, parts[i].iov_base, (uInt)parts[i].iov_len);
    return sum;
}

static bool explain(char *why, size_t why_size, const char *what, const char *path)
{
    snprintf(why, why_size, "cannot %s %s: %s", what, path, strerror(errno));
    return false;
}

/* ---- writing ---- */

static bool write_all(int fd, const struct iovec *part)
{
    size_t done = 0;
    while (done < part->iov_len) {
        ssize_t len = write(fd, (const char *)part->iov_base + done, part->iov_len - done);
        if (len < 0 && errno == EINTR)
            continue;
        if (len <= 0)
            return false;
        done += (size_t)len;
    }
    return true;
}

/* Write the whole file to the disk, under a temporary name. */
static bool write_file(const char *path, const struct checkpoint *checkpoint)
{
    struct header header = {.run = checkpoint->run, .step = checkpoint->step};
    uint64_t sum;
    struct iovec parts[PARTS];
    memcpy(header.magic, magic, sizeof magic);
    list_parts(checkpoint, &header, &sum, parts);
    sum = checksum(parts);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    bool good = true;
    for (int i = 0; i < PARTS && good; i++)
        good = write_all(fd, &parts[i]);
    good = good && fsync(fd) == 0;
    return close(fd) == 0 && good;
}

/* Make the renames permanent on the disk. */
static bool sync_folder(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = fsync(fd) == 0;
    close(fd);
    return good;
}

bool checkpoint_write(const char *dir, const struct checkpoint *checkpoint, char *why,
                      size_t why_size)
{
    char writing[PATH_SIZE], newest[PATH_SIZE], previous[PATH_SIZE];
    snprintf(writing, sizeof writing, "%s/writing", dir);
    snprintf(newest, sizeof newest, "%s/newest", dir);
    snprintf(previous, sizeof previous, "%s/previous", dir);
    if (!write_file(writing, checkpoint))
        return explain(why, why_size, "write", writing);
    if (rename(newest, previous) != 0 && errno != ENOENT)
        return explain(why, why_size, "rename", newest);
    if (rename(writing, newest) != 0)
        return explain(why, why_size, "rename", writing);
    return sync_folder(dir) || explain(why, why_size, "write", dir);
}

/* ---- reading ---- */

static bool read_all(int fd, const struct iovec *part)
{
    size_t done = 0;
    while (done < part->iov_len) {
        ssize_t len = read(fd, (char *)part->iov_base + done, part->iov_len - done);
        if (len < 0 && errno == EINTR)
            continue;
        if (len <= 0)
            return false;
        done += (size_t)len;
    }
    return true;
}

static bool read_file(int fd, const struct checkpoint *checkpoint, struct header *header)
{
    uint64_t sum;
    struct iovec parts[PARTS];
    list_parts(checkpoint, header, &sum, parts);
    for (int i = 0; i < PARTS; i++)
        if (!read_all(fd, &parts[i]))
            return false;
    return memcmp(header->magic, magic, sizeof magic) == 0 && sum == checksum(parts);
}

enum checkpoint_found checkpoint_read(const char *dir, const char *name,
                                      struct checkpoint *checkpoint, char *why, size_t why_size)
{
    char path[PATH_SIZE];
    struct header header;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return CHECKPOINT_NONE;
    if (fd < 0) {
        explain(why, why_size, "read", path);
        return CHECKPOINT_BAD;
    }
    bool good = read_file(fd, checkpoint, &header);
    close(fd);
    if (!good) {
        snprintf(why, why_size, "%s is damaged", path);
        return CHECKPOINT_BAD;
    }
    if (memcmp(&header.run, &checkpoint->run, sizeof header.run) != 0) {
        snprintf(why, why_size, "%s belongs to a run with other options", path);
        return CHECKPOINT_FOREIGN;
    }
    checkpoint->step = header.step;
    return CHECKPOINT_GOOD;
}
