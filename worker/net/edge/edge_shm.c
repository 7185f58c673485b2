/*
 * edge_shm.c - edges through shared memory: a memory file with a single-producer, single-consumer
 * byte ring for each direction. Owns the file, its mapping, the control socket, and the descriptors
 * of the peer's bell and process.
 *
 * The file has no name, so nothing is left behind when both processes are killed. Its memory is
 * allocated at once (a shortage is an error then, not a SIGBUS later), and sealed against resizing.
 * Each ring is mapped twice in a row, so that its content is contiguous and the reduction can read
 * it in place.
 *
 * The peer can write anything into the shared pages: a rank keeps its own positions to itself, and
 * checks those of the peer each time.
 */
#include "edge.h"

#include "error.h"
#include "list.h"
#include "mem.h"
#include "memory_file.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    RING_SIZE = 512 * 1024,  /* about half a core's second-level cache */
    HEADER_SIZE = 64 * 1024, /* a multiple of every page size */
    FILE_SIZE = HEADER_SIZE + 2 * RING_SIZE,
    MAP_SIZE = HEADER_SIZE + 4 * RING_SIZE,
};

/* Positions count all bytes since the start; modulo RING_SIZE they are offsets. Each has one writer
 * and a cache line of its own. */
struct ring_header {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t consumed;
    _Alignas(64) _Atomic uint32_t reader_sleeps;
    _Alignas(64) _Atomic uint32_t writer_sleeps;
};

struct ddpi_shm_segment {
    int fd;
    uint8_t *map;
};

struct shm_edge {
    struct ddpi_edge edge;
    struct ddpi_shm_segment *segment;
    struct ring_header *out_header, *in_header;
    uint8_t *out_bytes;
    const uint8_t *in_bytes;
    uint64_t out_written; /* bytes written so far, whatever the shared page says */
    uint64_t in_consumed;
    int peer_bell;
};

static struct shm_edge *shm_of(struct ddpi_edge *edge)
{
    return ddpi_container_of(edge, struct shm_edge, edge);
}

static ddp_status map_file(struct ddpi_shm_segment *segment, struct ddp_error *err)
{
    uint8_t *map = mmap(NULL, MAP_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return ddpi_error_sys(err, errno, "reserve %d bytes of addresses", MAP_SIZE);
    segment->map = map;
    const struct {
        size_t at, len, file_offset;
    } parts[] = {{0, HEADER_SIZE + RING_SIZE, 0},
                 {HEADER_SIZE + RING_SIZE, RING_SIZE, HEADER_SIZE},
                 {HEADER_SIZE + 2 * RING_SIZE, RING_SIZE, HEADER_SIZE + RING_SIZE},
                 {HEADER_SIZE + 3 * RING_SIZE, RING_SIZE, HEADER_SIZE + RING_SIZE}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (mmap(map + parts[i].at, parts[i].len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 segment->fd, (off_t)parts[i].file_offset) == MAP_FAILED)
            return ddpi_error_sys(err, errno, "map %zu bytes of shared memory", parts[i].len);
    return DDP_OK;
}

ddp_status ddpi_shm_create(struct ddpi_shm_segment **ret_segment, struct ddp_error *err)
{
    struct ddpi_shm_segment *segment = ddpi_calloc(1, sizeof *segment);
    if (segment == NULL)
        return ddpi_error_nomem(err, sizeof *segment);
    segment->fd = -1;
    ddp_status status = ddpi_memory_file_make("ddprun-edge", FILE_SIZE, FILE_SIZE, DDPI_SEALS_FIXED,
                                              &segment->fd, err);
    if (status == DDP_OK)
        status = map_file(segment, err);
    if (status != DDP_OK) {
        ddpi_shm_destroy(segment);
        return status;
    }
    *ret_segment = segment;
    return DDP_OK;
}

ddp_status ddpi_shm_attach(int fd, struct ddpi_shm_segment **ret_segment, struct ddp_error *err)
{
    struct ddpi_shm_segment *segment = ddpi_calloc(1, sizeof *segment);
    if (segment == NULL) {
        close(fd);
        return ddpi_error_nomem(err, sizeof *segment);
    }
    segment->fd = fd;
    ddp_status status = ddpi_memory_file_has(fd, FILE_SIZE, DDPI_SEALS_FIXED)
                            ? map_file(segment, err)
                            : ddpi_error_set(err, DDP_E_PROTOCOL,
                                             "the shared memory that was received is not a ddprun "
                                             "edge");
    if (status != DDP_OK) {
        ddpi_shm_destroy(segment);
        return status;
    }
    *ret_segment = segment;
    return DDP_OK;
}

int ddpi_shm_fd(const struct ddpi_shm_segment *segment)
{
    return segment->fd;
}

void ddpi_shm_destroy(struct ddpi_shm_segment *segment)
{
    if (segment == NULL)
        return;
    if (segment->map != NULL)
        munmap(segment->map, MAP_SIZE);
    if (segment->fd >= 0)
        close(segment->fd);
    ddpi_free(segment);
}

/* The fence pairs with the one in shm_arm(): either this side sees that the peer sleeps, or the
 * peer sees what was just published. */
static void wake_if_asleep(struct shm_edge *shm, _Atomic uint32_t *sleeps)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(sleeps, memory_order_relaxed) == 0)
        return;
    atomic_store_explicit(sleeps, 0, memory_order_relaxed);
    const uint64_t one = 1;
    (void)!write(shm->peer_bell, &one,
                 sizeof one); /* if the counter is full, it has woken the peer already */
}

static size_t shm_room(struct shm_edge *shm)
{
    uint64_t consumed = atomic_load_explicit(&shm->out_header->consumed, memory_order_acquire);
    uint64_t used = shm->out_written - consumed;
    if (used <= RING_SIZE)
        return RING_SIZE - used;
    shm->edge.broken = "wrote impossible positions into the shared memory";
    return 0;
}

static size_t shm_available(struct shm_edge *shm)
{
    uint64_t written = atomic_load_explicit(&shm->in_header->written, memory_order_acquire);
    uint64_t unread = written - shm->in_consumed;
    if (unread <= RING_SIZE)
        return unread;
    shm->edge.broken = "wrote impossible positions into the shared memory";
    return 0;
}

static size_t shm_send(struct ddpi_edge *edge, const void *bytes, size_t len)
{
    struct shm_edge *shm = shm_of(edge);
    size_t free_bytes = shm_room(shm);
    if (len > free_bytes)
        len = free_bytes;
    if (len == 0)
        return 0;
    memcpy(shm->out_bytes + shm->out_written % RING_SIZE, bytes, len);
    shm->out_written += len;
    atomic_store_explicit(&shm->out_header->written, shm->out_written, memory_order_release);
    wake_if_asleep(shm, &shm->out_header->reader_sleeps);
    return len;
}

static size_t shm_peek(struct ddpi_edge *edge, size_t want, const uint8_t **ret_bytes)
{
    (void)want; /* everything that has arrived is contiguous */
    struct shm_edge *shm = shm_of(edge);
    *ret_bytes = shm->in_bytes + shm->in_consumed % RING_SIZE;
    return shm_available(shm);
}

static void shm_consume(struct ddpi_edge *edge, size_t len)
{
    struct shm_edge *shm = shm_of(edge);
    shm->in_consumed += len;
    atomic_store_explicit(&shm->in_header->consumed, shm->in_consumed, memory_order_release);
    wake_if_asleep(shm, &shm->in_header->writer_sleeps);
}

static size_t shm_recv(struct ddpi_edge *edge, void *dst, size_t len)
{
    const uint8_t *bytes;
    size_t there = shm_peek(edge, 1, &bytes);
    if (len > there)
        len = there;
    if (len == 0)
        return 0;
    memcpy(dst, bytes, len);
    shm_consume(edge, len);
    return len;
}

static bool shm_arm(struct ddpi_edge *edge, size_t recv_bytes, bool send,
                    struct pollfd ret_polls[DDPI_EDGE_POLLS])
{
    struct shm_edge *shm = shm_of(edge);
    (void)ret_polls;
    if (recv_bytes > 0)
        atomic_store_explicit(&shm->in_header->reader_sleeps, 1, memory_order_relaxed);
    if (send)
        atomic_store_explicit(&shm->out_header->writer_sleeps, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return (recv_bytes > 0 && shm_available(shm) >= recv_bytes) || (send && shm_room(shm) > 0);
}

static void shm_disarm(struct ddpi_edge *edge)
{
    struct shm_edge *shm = shm_of(edge);
    atomic_store_explicit(&shm->in_header->reader_sleeps, 0, memory_order_relaxed);
    atomic_store_explicit(&shm->out_header->writer_sleeps, 0, memory_order_relaxed);
}

static size_t shm_untaken(struct ddpi_edge *edge)
{
    struct shm_edge *shm = shm_of(edge);
    size_t room = shm_room(shm);
    return edge->broken == NULL ? RING_SIZE - room : 0;
}

static void shm_destroy(struct ddpi_edge *edge)
{
    struct shm_edge *shm = shm_of(edge);
    ddpi_control_finish(&edge->control);
    ddpi_process_finish(&edge->process);
    close(shm->peer_bell);
    ddpi_shm_destroy(shm->segment);
    ddpi_free(shm);
}

struct ddpi_edge *ddpi_edge_shm(struct ddpi_shm_segment *segment, unsigned side, int peer_bell,
                                int control_fd, struct ddp_error *err)
{
    static const struct ddpi_edge_ops ops = {
        .name = "shared memory",
        .send = shm_send,
        .recv = shm_recv,
        .peek = shm_peek,
        .consume = shm_consume,
        .untaken = shm_untaken,
        .arm = shm_arm,
        .disarm = shm_disarm,
        .destroy = shm_destroy,
    };
    struct shm_edge *shm = ddpi_calloc(1, sizeof *shm);
    if (shm == NULL) {
        ddpi_error_nomem(err, sizeof *shm);
        close(control_fd);
        close(peer_bell);
        ddpi_shm_destroy(segment);
        return NULL;
    }
    shm->edge.ops = &ops;
    ddpi_control_init(&shm->edge.control, control_fd);
    ddpi_process_find(control_fd, &shm->edge.process);
    shm->segment = segment;
    shm->peer_bell = peer_bell;
    struct ring_header *headers = (void *)segment->map;
    shm->out_header = &headers[side];
    shm->in_header = &headers[1 - side];
    uint8_t *rings = segment->map + HEADER_SIZE;
    shm->out_bytes = rings + (size_t)side * 2 * RING_SIZE;
    shm->in_bytes = rings + (size_t)(1 - side) * 2 * RING_SIZE;
    return &shm->edge;
}
