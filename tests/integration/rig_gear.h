/*
 * rig_gear.h - a rank that uses its GPU until something goes wrong, for tests of failures.
 */
#ifndef TESTS_RIG_GEAR_H
#define TESTS_RIG_GEAR_H

#include "rig.h"

enum { COUNT = 400 * 1000, LONG_MS = 120 * 1000 };

/* What is there before the communicator, and must be again after it. */
struct gear {
    struct ddpi_cuda cuda;
    ddpi_cu_context context;
    ddpi_cu_stream stream;
    ddpi_cu_deviceptr send, recv, many;
    size_t free_bytes;
    unsigned descriptors;
};

/* A call of the test's own may be the one that is made to fail, which fails once. */
#define TRY(call) CHECK((call) == DDPI_CU_SUCCESS || (call) == DDPI_CU_SUCCESS)

/* A number; @otherwise if it is not set. */
unsigned gear_from_environment(const char *name, unsigned otherwise);

void gear_open(struct gear *gear, const struct world *world, uint32_t rank);

/* What has been allocated, as an address. */
void *gear_at(ddpi_cu_deviceptr address);

/* Call number @turn: each is another operation. */
ddp_status gear_call(const struct gear *gear, ddp_comm *comm, unsigned turn, struct ddp_error *err);

/* Operations, of which up to three are enqueued at a time. */
ddp_status gear_work(struct world *world, uint32_t rank, const struct gear *gear, ddp_comm *comm,
                     unsigned turns, struct ddp_error *err);

void gear_report(struct world *world, uint32_t rank, ddp_status status,
                 const struct ddp_error *error);

/* The communicator is gone, and with it all that it had. */
void gear_expect_nothing_left(const struct gear *gear);

#endif
