/*
 * checkpoint_head.c - writes, bounds and compares heads of checkpoint files. Pure: what it reads
 * may come from anywhere. Owns nothing.
 */
#include "checkpoint_head.h"

#include "buf.h"
#include "checksum.h"
#include "error.h"

#include <string.h>

enum { VERSION = 1, ENTRY = 2 + 8 }; /* bytes before the name of a blob */

static const uint8_t magic[8] = {'D', 'D', 'P', 'C', 'H', 'E', 'C', 'K'};

/* ---- what a caller sets ---- */

static ddp_status check_blob(const struct ddp_checkpoint_blob *blob, size_t i,
                             const struct ddpi_blob_limits *limits, uint64_t *all,
                             struct ddp_error *err)
{
    size_t len = blob->name != NULL ? strnlen(blob->name, DDP_CHECKPOINT_NAME + 1) : 0;
    if (len == 0 || len > DDP_CHECKPOINT_NAME)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the name of blob %zu of the %s must have 1 to %d bytes", i,
                              limits->of, DDP_CHECKPOINT_NAME);
    if (blob->data == NULL && blob->bytes > 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "blob '%s' of the %s has %zu bytes, but its data is NULL", blob->name,
                              limits->of, blob->bytes);
    if (blob->bytes > limits->most - *all)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "blob '%s' makes the %s larger than any %s: it has %zu bytes",
                              blob->name, limits->of, limits->in, blob->bytes);
    *all += blob->bytes;
    return DDP_OK;
}

ddp_status ddpi_blobs_check(const struct ddp_checkpoint_blob *blobs, size_t count,
                            const struct ddpi_blob_limits *limits, struct ddp_error *err)
{
    if (blobs == NULL || count == 0 || count > DDP_CHECKPOINT_BLOBS)
        return ddpi_error_set(err, DDP_E_INVALID, "the %s has %zu blobs: it needs 1 to %d",
                              limits->of, blobs == NULL ? 0 : count, DDP_CHECKPOINT_BLOBS);
    uint64_t all = 0;
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        status = check_blob(&blobs[i], i, limits, &all, err);
    return status;
}

ddp_status ddpi_checkpoint_check(const struct ddp_checkpoint *checkpoint, struct ddp_error *err)
{
    if (checkpoint->size != sizeof *checkpoint)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the size of the ddp_checkpoint is %zu, not %zu: set it to "
                              "sizeof(struct ddp_checkpoint)",
                              checkpoint->size, sizeof *checkpoint);
    if (checkpoint->folder == NULL || *checkpoint->folder == '\0')
        return ddpi_error_set(err, DDP_E_INVALID, "the checkpoint has no folder");
    if (checkpoint->run_bytes > DDP_CHECKPOINT_RUN ||
        (checkpoint->run == NULL && checkpoint->run_bytes > 0))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "run_bytes of the checkpoint is %zu: at most %d, and 0 without run",
                              checkpoint->run_bytes, DDP_CHECKPOINT_RUN);
    /* 4 GiB are more than the rest of a file can have. */
    const struct ddpi_blob_limits limits = {"checkpoint", "file", INT64_MAX - (INT64_C(1) << 32)};
    return ddpi_blobs_check(checkpoint->blobs, checkpoint->count, &limits, err);
}

/* ---- writing ---- */

static uint64_t head_bytes(const struct ddp_checkpoint *checkpoint)
{
    uint64_t all = DDPI_CHECKPOINT_FIXED + checkpoint->run_bytes + DDPI_CHECKPOINT_SUM;
    for (size_t i = 0; i < checkpoint->count; i++)
        all += ENTRY + strlen(checkpoint->blobs[i].name);
    return all;
}

uint64_t ddpi_checkpoint_file_bytes(const struct ddp_checkpoint *checkpoint, uint64_t head)
{
    uint64_t all = head;
    for (size_t i = 0; i < checkpoint->count; i++)
        all += checkpoint->blobs[i].bytes + DDPI_CHECKPOINT_SUM;
    return all;
}

static uint64_t sum_of(const uint8_t *bytes, size_t len)
{
    struct ddpi_checksum sum;
    ddpi_checksum_start(&sum);
    return ddpi_checksum_end(&sum, bytes, len);
}

ddp_status ddpi_checkpoint_encode(const struct ddp_checkpoint *checkpoint, struct ddpi_buf *buf,
                                  struct ddp_error *err)
{
    uint64_t all = head_bytes(checkpoint);
    bool good = ddpi_buf_append(buf, magic, sizeof magic) && ddpi_buf_put_u32(buf, VERSION) &&
                ddpi_buf_put_u32(buf, (uint32_t)checkpoint->count) && ddpi_buf_put_u64(buf, all) &&
                ddpi_buf_put_u64(buf, checkpoint->run_bytes);
    if (checkpoint->run_bytes > 0)
        good = good && ddpi_buf_append(buf, checkpoint->run, checkpoint->run_bytes);
    for (size_t i = 0; i < checkpoint->count && good; i++) {
        const struct ddp_checkpoint_blob *blob = &checkpoint->blobs[i];
        size_t len = strlen(blob->name);
        good = ddpi_buf_put_u16(buf, (uint16_t)len) && ddpi_buf_put_u64(buf, blob->bytes) &&
               ddpi_buf_append(buf, blob->name, len);
    }
    good = good && ddpi_buf_put_u64(buf, sum_of(ddpi_buf_head(buf), ddpi_buf_len(buf)));
    return good ? DDP_OK : ddpi_error_nomem(err, all);
}

/* ---- reading ---- */

uint64_t ddpi_checkpoint_head_bytes(const uint8_t *fixed, uint64_t file, struct ddp_error *err)
{
    const uint64_t most = DDPI_CHECKPOINT_FIXED + DDP_CHECKPOINT_RUN + DDPI_CHECKPOINT_SUM +
                          (uint64_t)DDP_CHECKPOINT_BLOBS * (ENTRY + DDP_CHECKPOINT_NAME);
    struct ddpi_rd rd = ddpi_rd_of(fixed, DDPI_CHECKPOINT_FIXED);
    const uint8_t *begin = ddpi_rd_bytes(&rd, sizeof magic);
    uint32_t version = ddpi_rd_u32(&rd);
    (void)ddpi_rd_u32(&rd); /* blobs: ddpi_checkpoint_compare() counts them */
    uint64_t bytes = ddpi_rd_u64(&rd);
    if (memcmp(begin, magic, sizeof magic) != 0)
        ddpi_error_set(err, DDP_E_PROTOCOL, "it does not begin as a checkpoint");
    else if (version != VERSION)
        ddpi_error_set(err, DDP_E_PROTOCOL, "it has version %u of the format, not %d", version,
                       VERSION);
    else if (bytes > most || bytes > file || bytes < DDPI_CHECKPOINT_FIXED + DDPI_CHECKPOINT_SUM)
        ddpi_error_set(err, DDP_E_PROTOCOL, "its head cannot have %llu bytes",
                       (unsigned long long)bytes);
    else
        return bytes;
    return 0;
}

static ddp_status compare_blob(const struct ddp_checkpoint_blob *blob, struct ddpi_rd *rd,
                               struct ddp_error *err)
{
    uint16_t len = ddpi_rd_u16(rd);
    uint64_t bytes = ddpi_rd_u64(rd);
    const uint8_t *name = ddpi_rd_bytes(rd, len);
    if (rd->failed)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "its list of blobs ends early");
    if (len != strlen(blob->name) || memcmp(name, blob->name, len) != 0)
        return ddpi_error_set(err, DDP_E_MISMATCH,
                              "where the program has the blob '%s', it has '%.*s'", blob->name,
                              (int)len, (const char *)name);
    if (bytes != blob->bytes)
        return ddpi_error_set(err, DDP_E_MISMATCH,
                              "its blob '%s' has %llu bytes, that of the program has %zu",
                              blob->name, (unsigned long long)bytes, blob->bytes);
    return DDP_OK;
}

ddp_status ddpi_checkpoint_compare(const struct ddp_checkpoint *checkpoint, const uint8_t *head,
                                   size_t len, struct ddp_error *err)
{
    size_t summed = len - DDPI_CHECKPOINT_SUM;
    struct ddpi_rd sum = ddpi_rd_of(head + summed, DDPI_CHECKPOINT_SUM);
    if (ddpi_rd_u64(&sum) != sum_of(head, summed))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the checksum of its head is wrong");
    struct ddpi_rd rd = ddpi_rd_of(head, summed);
    (void)ddpi_rd_bytes(&rd, sizeof magic + 4);
    uint32_t count = ddpi_rd_u32(&rd);
    (void)ddpi_rd_u64(&rd);
    uint64_t run_bytes = ddpi_rd_u64(&rd);
    if (run_bytes > rd.left)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "its identification of the run ends early");
    const uint8_t *run = ddpi_rd_bytes(&rd, (size_t)run_bytes);
    if (run_bytes != checkpoint->run_bytes ||
        (run_bytes > 0 && memcmp(run, checkpoint->run, checkpoint->run_bytes) != 0))
        return ddpi_error_set(err, DDP_E_MISMATCH, "it belongs to a run with other options");
    if (count != checkpoint->count)
        return ddpi_error_set(err, DDP_E_MISMATCH, "it has %u blobs, the program has %zu", count,
                              checkpoint->count);
    for (size_t i = 0; i < count; i++) {
        ddp_status status = compare_blob(&checkpoint->blobs[i], &rd, err);
        if (status != DDP_OK)
            return status;
    }
    if (!ddpi_rd_done(&rd))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "its head is longer than its list of blobs");
    return DDP_OK;
}
