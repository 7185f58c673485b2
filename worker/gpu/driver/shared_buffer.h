/*
 * shared_buffer.h - device memory that other ranks may read: what a rank offers, and the offers of
 * others that it has opened. Owns the mappings: each is opened once and kept until the communicator
 * ends, its owner frees the allocation and offers another one at its place, or too many are open.
 * The driver closes a mapping only when all streams are idle, and during an operation a stream
 * waits for this thread; so closing is deferred to ddpi_shares_tidy().
 */
#ifndef DDPI_SHARED_BUFFER_H
#define DDPI_SHARED_BUFFER_H

#include "driver.h"

#include <stdatomic.h>
#include <stdint.h>

/* How another process can open an allocation. */
enum ddpi_share_way {
    DDPI_SHARE_NONE, /* not at all: it has to be copied through the host */
    DDPI_SHARE_IPC,  /* CUDA IPC: a handle of 64 bytes */
    DDPI_SHARE_FD,   /* virtual memory (cuMemCreate): a descriptor, handed over separately */
};

/* One buffer, as its owner describes it to ranks of the same machine; others do not look at it. */
struct ddpi_offer {
    uint64_t process;    /* a number that only one process of the machine has */
    uint64_t address;    /* of the buffer, for ranks that are threads of that process */
    uint64_t context;    /* likewise: the one it belongs to */
    uint64_t offset;     /* of the buffer in its allocation */
    uint64_t size;       /* of the allocation */
    uint64_t allocation; /* different for every allocation of that process, ever */
    uint32_t rank;       /* of the owner */
    uint16_t way;
    uint16_t known; /* 1: its reader, the next rank of the ring, has opened it, as all ranks know;
                       0: CUDA IPC, and it has not */
    uint8_t handle[64];
};

/* How many mappings of CUDA IPC are kept: for each rank, and for at least this many ranks. */
enum { DDPI_SHARES_PER_RANK = 16, DDPI_SHARES_RANKS = 8 };

struct ddpi_share {
    uint64_t process;
    uint64_t allocation;
    uint64_t owner_base; /* where it begins in the owner's address space */
    ddpi_cu_deviceptr base;
    uint64_t size;   /* of what its owner offered */
    uint64_t mapped; /* bytes, if it was imported from a descriptor; 0: CUDA IPC */
    uint64_t used;   /* when it was last used, in uses */
    bool stale;      /* to be closed by ddpi_shares_tidy() */
};

/* An allocation that this rank has offered, and that its reader has opened. */
struct ddpi_known {
    uint64_t allocation;
    uint64_t base;
};

struct ddpi_shares {
    const struct ddpi_cuda *cuda;
    ddpi_cu_context context; /* our own */
    uint64_t process;        /* our own */
    uint64_t uses;
    uint32_t count;
    uint32_t capacity;
    uint32_t most;            /* limit of mappings of CUDA IPC that are not stale */
    _Atomic uint32_t stale;   /* stale ones; any thread may read it */
    _Atomic uint32_t refused; /* failures to open an offer since the last tidying */
    struct ddpi_share *open;
    uint32_t known_count;
    struct ddpi_known *known;
};

void ddpi_shares_init(struct ddpi_shares *shares, const struct ddpi_cuda *cuda,
                      ddpi_cu_context context, uint32_t ranks);
/* Close all mappings. Needs the context current; nothing may use them any more. */
void ddpi_shares_finish(struct ddpi_shares *shares);

/* Describe the @len bytes at @address, which are part of allocation @allocation. Cannot fail:
 * memory that cannot be shared, or a NULL address, is offered as DDPI_SHARE_NONE. */
void ddpi_share_offer(const struct ddpi_shares *shares, uint32_t rank, const void *address,
                      size_t len, uint64_t allocation, struct ddpi_offer *ret_offer);

/* All ranks know that the reader has opened this rank's @offer: it need not try again. */
void ddpi_share_known(struct ddpi_shares *shares, const struct ddpi_offer *offer);

/* A descriptor of the allocation of this rank's @offer, which is DDPI_SHARE_FD; the caller closes
 * it. */
ddp_status ddpi_share_export(const struct ddpi_shares *shares, const struct ddpi_offer *offer,
                             int *ret_fd, struct ddp_error *err);

/* Whether @offer can be opened only with a descriptor that has not been imported yet. */
bool ddpi_share_awaits(struct ddpi_shares *shares, const struct ddpi_offer *offer);

/* Map the allocation of @offer, of which @fd is the descriptor; @fd stays the caller's. */
ddp_status ddpi_share_import(struct ddpi_shares *shares, const struct ddpi_offer *offer, int fd,
                             struct ddp_error *err);

/* Whether the rank of offer @reader can open @offer, as far as can be told without trying; true for
 * an offer without a buffer. All ranks get the same answer. */
bool ddpi_offer_suits(const struct ddpi_offer *offer, const struct ddpi_offer *reader);

/* The address of the offered buffer in this process. Needs the context current. DDP_E_CUDA: the
 * driver refuses, which containers, missing peer access and a mapping of what was there before can
 * cause. */
ddp_status ddpi_share_open(struct ddpi_shares *shares, const struct ddpi_offer *offer,
                           ddpi_cu_deviceptr *ret_address, struct ddp_error *err);

/* Close stale mappings. Needs the context current, and waits for all its streams. */
void ddpi_shares_tidy(struct ddpi_shares *shares);

#endif
