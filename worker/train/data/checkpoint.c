/*
 * checkpoint.c - <ddprun/ddp_checkpoint.h>: the files of a folder, how they are written, renamed
 * and read. Owns the descriptors that a call opens. It must not interpret heads, which
 * checkpoint_head.c does, nor keep anything between calls.
 */
#include <ddprun/ddp_checkpoint.h>

#include "buf.h"
#include "checkpoint_head.h"
#include "checksum.h"
#include "error.h"
#include "mem.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes that are summed and written at a time, so that the second finds them in a cache. */
enum { PIECE = 1 << 18, FILE_MODE = 0666 };

static const char newest[] = "newest", previous[] = "previous";
static const char writing[] = "writing";   /* until its content is on the disk */
static const char replaced[] = "replaced"; /* the newest one, until the next has its name */

static ddp_status refused(const struct ddp_checkpoint *checkpoint, const char *what,
                          const char *name, struct ddp_error *err)
{
    return ddpi_error_sys(err, errno, "cannot %s %s/%s", what, checkpoint->folder, name);
}

static ddp_status open_folder(const struct ddp_checkpoint *checkpoint, int *ret_folder,
                              struct ddp_error *err)
{
    ddp_status status = ddpi_checkpoint_check(checkpoint, err);
    if (status != DDP_OK)
        return status;
    *ret_folder = open(checkpoint->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_folder >= 0)
        return DDP_OK;
    status =
        ddpi_error_sys(err, errno, "cannot open the folder of checkpoints %s", checkpoint->folder);
    return ddpi_error_advise_descriptors(err, status);
}

/* ---- writing ---- */

static bool write_bytes(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t done = write(fd, at, len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        len -= (size_t)done;
    }
    return true;
}

static bool write_blob(int fd, const struct ddp_checkpoint_blob *blob)
{
    struct ddpi_checksum sum;
    const char *at = blob->data;
    size_t left = blob->bytes;
    ddpi_checksum_start(&sum);
    for (; left > PIECE; at += PIECE, left -= PIECE) {
        ddpi_checksum_add(&sum, at, PIECE);
        if (!write_bytes(fd, at, PIECE))
            return false;
    }
    uint64_t wire = htole64(ddpi_checksum_end(&sum, at, left));
    return write_bytes(fd, at, left) && write_bytes(fd, &wire, sizeof wire);
}

static bool write_content(int fd, const struct ddp_checkpoint *checkpoint,
                          const struct ddpi_buf *head)
{
    bool good = write_bytes(fd, ddpi_buf_head(head), ddpi_buf_len(head));
    for (size_t i = 0; i < checkpoint->count && good; i++)
        good = write_blob(fd, &checkpoint->blobs[i]);
    return good && fsync(fd) == 0;
}

/* Write the whole file to the disk, under its temporary name. */
static ddp_status write_file(const struct ddp_checkpoint *checkpoint, int folder,
                             struct ddp_error *err)
{
    struct ddpi_buf head;
    ddpi_buf_init(&head, SIZE_MAX);
    ddp_status status = ddpi_checkpoint_encode(checkpoint, &head, err);
    if (status != DDP_OK) {
        ddpi_buf_finish(&head);
        return status;
    }
    (void)unlinkat(folder, writing, 0); /* of a writer that was killed */
    int fd = openat(folder, writing, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    bool good = fd >= 0 && write_content(fd, checkpoint, &head);
    if (!good)
        status = refused(checkpoint, "write", writing, err);
    if (fd >= 0 && close(fd) != 0 && good)
        status = refused(checkpoint, "write", writing, err);
    if (status != DDP_OK && fd >= 0)
        (void)unlinkat(folder, writing, 0);
    ddpi_buf_finish(&head);
    return status;
}

/* Give the new file its name. The newest one gets a second name first, so at each moment there is a
 * newest one, and the previous one stays until the new one is in place. A file system without hard
 * links has to do with two renames: between them only the previous one is there. */
static ddp_status rename_file(const struct ddp_checkpoint *checkpoint, int folder,
                              struct ddp_error *err)
{
    (void)unlinkat(folder, replaced, 0);
    bool linked = linkat(folder, newest, folder, replaced, 0) == 0;
    if (!linked && errno != ENOENT && renameat(folder, newest, folder, previous) != 0)
        return refused(checkpoint, "rename", newest, err);
    if (renameat(folder, writing, folder, newest) != 0)
        return refused(checkpoint, "rename", writing, err);
    if (linked && renameat(folder, replaced, folder, previous) != 0)
        return refused(checkpoint, "rename", replaced, err);
    return fsync(folder) == 0 ? DDP_OK : refused(checkpoint, "sync the folder of", newest, err);
}

ddp_status ddp_checkpoint_write(const struct ddp_checkpoint *checkpoint, struct ddp_error *err)
{
    int folder = -1;
    ddp_status status = open_folder(checkpoint, &folder, err);
    if (status != DDP_OK)
        return status;
    status = write_file(checkpoint, folder, err);
    if (status == DDP_OK)
        status = rename_file(checkpoint, folder, err);
    close(folder);
    return status;
}

/* ---- reading: DDP_E_PROTOCOL means that the file is damaged ---- */

static ddp_status read_bytes(int fd, void *bytes, size_t len, struct ddp_error *err)
{
    char *at = bytes;
    while (len > 0) {
        ssize_t done = read(fd, at, len < PIECE ? len : PIECE);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return ddpi_error_set(err, DDP_E_PROTOCOL, "it cannot be read: %s", strerror(errno));
        if (done == 0)
            return ddpi_error_set(err, DDP_E_PROTOCOL, "it ends early, by %zu bytes", len);
        at += done;
        len -= (size_t)done;
    }
    return DDP_OK;
}

static ddp_status read_blob(int fd, const struct ddp_checkpoint_blob *blob, struct ddp_error *err)
{
    struct ddpi_checksum sum;
    char *at = blob->data;
    size_t left = blob->bytes;
    ddp_status status = DDP_OK;
    ddpi_checksum_start(&sum);
    for (; left > PIECE && status == DDP_OK; at += PIECE, left -= PIECE) {
        status = read_bytes(fd, at, PIECE, err);
        ddpi_checksum_add(&sum, at, PIECE);
    }
    uint64_t wire;
    if (status == DDP_OK)
        status = read_bytes(fd, at, left, err);
    if (status == DDP_OK)
        status = read_bytes(fd, &wire, sizeof wire, err);
    if (status == DDP_OK && le64toh(wire) != ddpi_checksum_end(&sum, at, left))
        status = ddpi_error_set(err, DDP_E_PROTOCOL, "the checksum of its blob '%s' is wrong",
                                blob->name);
    return status;
}

/* Read the head and compare it; the file has @file bytes. */
static ddp_status read_head(int fd, const struct ddp_checkpoint *checkpoint, uint64_t file,
                            struct ddp_error *err)
{
    uint8_t fixed[DDPI_CHECKPOINT_FIXED];
    ddp_status status = read_bytes(fd, fixed, sizeof fixed, err);
    if (status != DDP_OK)
        return status;
    uint64_t bytes = ddpi_checkpoint_head_bytes(fixed, file, err);
    if (bytes == 0)
        return DDP_E_PROTOCOL;
    uint8_t *head = ddpi_calloc((size_t)bytes, 1);
    if (head == NULL)
        return ddpi_error_nomem(err, bytes);
    memcpy(head, fixed, sizeof fixed);
    status = read_bytes(fd, head + sizeof fixed, (size_t)bytes - sizeof fixed, err);
    if (status == DDP_OK)
        status = ddpi_checkpoint_compare(checkpoint, head, (size_t)bytes, err);
    ddpi_free(head);
    uint64_t expected = ddpi_checkpoint_file_bytes(checkpoint, bytes);
    if (status == DDP_OK && file != expected)
        status = ddpi_error_set(err, DDP_E_PROTOCOL, "it has %llu bytes instead of %llu",
                                (unsigned long long)file, (unsigned long long)expected);
    return status;
}

static ddp_status read_content(int fd, const struct ddp_checkpoint *checkpoint,
                               struct ddp_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return ddpi_error_sys(err, errno, "cannot tell its size");
    if (!S_ISREG(info.st_mode))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "it is no ordinary file");
    ddp_status status = read_head(fd, checkpoint, (uint64_t)info.st_size, err);
    for (size_t i = 0; i < checkpoint->count && status == DDP_OK; i++)
        status = read_blob(fd, &checkpoint->blobs[i], err);
    return status;
}

/* DDP_E_NOT_FOUND: there is no file @name. O_NONBLOCK: opening a pipe must not wait. */
static ddp_status read_file(const struct ddp_checkpoint *checkpoint, int folder, const char *name,
                            struct ddp_error *err)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return DDP_E_NOT_FOUND;
    if (fd < 0)
        return ddpi_error_advise_descriptors(err, refused(checkpoint, "read", name, err));
    struct ddp_error why;
    ddp_status status = read_content(fd, checkpoint, &why);
    close(fd);
    if (status == DDP_OK)
        return DDP_OK;
    return ddpi_error_set(err, status, "%s/%s %s: %s", checkpoint->folder, name,
                          status == DDP_E_PROTOCOL ? "is damaged" : "cannot be used", why.msg);
}

static ddp_status read_either(const struct ddp_checkpoint *checkpoint, int folder,
                              ddp_checkpoint_found *ret_found, struct ddp_error *skipped,
                              struct ddp_error *err)
{
    static const struct {
        const char *name;
        ddp_checkpoint_found found;
    } files[] = {{newest, DDP_CHECKPOINT_NEWEST}, {previous, DDP_CHECKPOINT_PREVIOUS}};
    ddp_checkpoint_found found = DDP_CHECKPOINT_NONE;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct ddp_error why;
        ddp_status status = read_file(checkpoint, folder, files[i].name, &why);
        if (status == DDP_OK) {
            *ret_found = files[i].found;
            return DDP_OK;
        }
        if (status == DDP_E_NOT_FOUND)
            continue;
        if (status != DDP_E_PROTOCOL)
            return ddpi_error_set(err, status, "%s", why.msg);
        if (found == DDP_CHECKPOINT_NONE)
            *skipped = why;
        found = DDP_CHECKPOINT_DAMAGED;
    }
    *ret_found = found;
    return DDP_OK;
}

ddp_status ddp_checkpoint_read(const struct ddp_checkpoint *checkpoint,
                               ddp_checkpoint_found *ret_found, struct ddp_error *ret_skipped,
                               struct ddp_error *err)
{
    int folder = -1;
    ddp_status status = open_folder(checkpoint, &folder, err);
    if (status != DDP_OK)
        return status;
    struct ddp_error skipped = {.status = DDP_OK};
    status = read_either(checkpoint, folder, ret_found, &skipped, err);
    close(folder);
    if (ret_skipped != NULL)
        *ret_skipped = skipped;
    return status;
}
