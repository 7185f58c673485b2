/*
 * shared_buffer.h - device memory that other ranks may read: what a rank offers, and what it has
 * opened of others' offers. Owns the mappings: each is opened once and kept until the communicator
 * ends, its owner frees the allocation and offers another one at its place, or too many are open.
 * As the driver closes one only when all streams have come to rest, and during an operation one of
 * them waits for us, closing is put off until ddpi_shares_tidy().
 */
#ifndef DDPI_SHARED_BUFFER_H
#define DDPI_SHARED_BUFFER_H

#include "driver.h"

#include <stdatomic.h>
#include <stdint.h>

/* How an allocation can be opened by another process. */
enum ddpi_share_way {
    DDPI_SHARE_NONE, /* not at all: it has to be copied through the host */
    DDPI_SHARE_IPC,  /* CUDA IPC: a handle of 64 bytes */
    DDPI_SHARE_FD,   /* virtual memory (cuMemCreate): a descriptor, handed over separately */
};

/* Who opens a buffer of CUDA IPC: rank 0, for one kernel, or the next rank of the ring. */
enum ddpi_readers { DDPI_READERS_FIRST = 1, DDPI_READERS_NEXT = 2 };

/* One buffer, as its owner describes it to ranks of the same machine; others do not look at it. */
struct ddpi_offer {
    uint64_t process;    /* a number that only one process of the machine has */
    uint64_t address;    /* of the buffer, for ranks that are threads of that process */
    uint64_t context;    /* likewise: the one it belongs to */
    uint64_t offset;     /* of the buffer in its allocation */
    uint64_t size;       /* of the allocation */
    uint64_t allocation; /* tells it apart from all others of that process, earlier ones too */
    uint32_t rank;       /* who offers */
    uint16_t way;
    uint16_t known; /* enum ddpi_readers: they have opened it, as everybody has heard */
    uint8_t handle[64];
};

/* How many mappings of CUDA IPC are kept: for each rank, but at least for so many. */
enum { DDPI_SHARES_PER_RANK = 16, DDPI_SHARES_RANKS = 8 };

struct ddpi_share {
    uint64_t process;
    uint64_t allocation;
    uint64_t owner_base; /* where it begins for its owner */
    ddpi_cu_deviceptr base;
    uint64_t size;   /* of what its owner offered */
    uint64_t mapped; /* bytes, if it was imported from a descriptor; 0: CUDA IPC */
    uint64_t used;   /* when, counted in uses */
    bool stale;      /* to be closed */
};

/* What this rank has offered, and who has opened it. */
struct ddpi_known {
    uint64_t allocation;
    uint64_t base;
    unsigned readers;
};

struct ddpi_shares {
    const struct ddpi_cuda *cuda;
    ddpi_cu_context context; /* our own */
    uint64_t process;        /* our own */
    uint64_t uses;
    uint32_t count;
    uint32_t capacity;
    uint32_t most;            /* that are not stale, of CUDA IPC */
    _Atomic uint32_t stale;   /* of them; any thread may read it */
    _Atomic uint32_t refused; /* times that the driver did not open one since the last tidying */
    struct ddpi_share *open;
    uint32_t known_count;
    struct ddpi_known *known;
};

void ddpi_shares_init(struct ddpi_shares *shares, const struct ddpi_cuda *cuda,
                      ddpi_cu_context context, uint32_t ranks);
/* Closes all. Needs the context current, and nothing under way that uses them. */
void ddpi_shares_finish(struct ddpi_shares *shares);

/* Describe the @len bytes at @address, which are part of allocation @allocation. Cannot fail: what
 * cannot be shared is offered as DDPI_SHARE_NONE. A NULL address is that, too. */
void ddpi_share_offer(const struct ddpi_shares *shares, uint32_t rank, const void *address,
                      size_t len, uint64_t allocation, struct ddpi_offer *ret_offer);

/* Everybody has heard that @readers have opened @offer, which is an own one: they need not be asked
 * again. */
void ddpi_share_known(struct ddpi_shares *shares, const struct ddpi_offer *offer,
                      enum ddpi_readers readers);

/* A descriptor for the allocation of an own offer of DDPI_SHARE_FD; the caller closes it. */
ddp_status ddpi_share_export(const struct ddpi_shares *shares, const struct ddpi_offer *offer,
                             int *ret_fd, struct ddp_error *err);

/* Whether @offer can be opened only with a descriptor that has still to be imported. */
bool ddpi_share_awaits(struct ddpi_shares *shares, const struct ddpi_offer *offer);

/* Map what @fd, which stays the caller's, stands for: the allocation of @offer. */
ddp_status ddpi_share_import(struct ddpi_shares *shares, const struct ddpi_offer *offer, int fd,
                             struct ddp_error *err);

/* Whether the rank that made offer @reader can open @offer, as far as one can tell without trying;
 * so can everybody what is no buffer at all. The same answer wherever it is asked. */
bool ddpi_offer_suits(const struct ddpi_offer *offer, const struct ddpi_offer *reader);

/* The address of the offered buffer here. Needs the context current. DDP_E_CUDA: the driver does
 * not want to, which containers, missing peer access and a mapping of what was there before can be
 * the cause of. */
ddp_status ddpi_share_open(struct ddpi_shares *shares, const struct ddpi_offer *offer,
                           ddpi_cu_deviceptr *ret_address, struct ddp_error *err);

/* It is not needed any more: have it closed by the next ddpi_shares_tidy(). */
void ddpi_share_drop(struct ddpi_shares *shares, const struct ddpi_offer *offer);

/* Close what is stale. Needs the context current, and waits for all its streams. */
void ddpi_shares_tidy(struct ddpi_shares *shares);

#endif
