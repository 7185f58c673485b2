/*
 * named_tensors.h - what the tests of <ddprun/ddp_tensors.h> have in common, for ranks of world.h.
 */
#ifndef TESTS_NAMED_TENSORS_H
#define TESTS_NAMED_TENSORS_H

#include "world.h"

#include <ddprun/ddp_tensors.h>
#include <string.h>

static inline ddp_tensors *create(ddp_comm *comm, struct ddp_tensors_options options)
{
    ddp_tensors *tensors;
    options.size = sizeof options;
    CHECK_OK(ddp_tensors_create(comm, &options, &tensors, err));
    return tensors;
}

static inline struct ddp_tensors_stats stats_of(ddp_tensors *tensors)
{
    struct ddp_tensors_stats stats = {.size = sizeof stats};
    CHECK(ddp_tensors_get_stats(tensors, &stats) == DDP_OK);
    return stats;
}

static inline struct ddp_tensor_op sum_of(const char *name, float *buffer, size_t count)
{
    return (struct ddp_tensor_op){.size = sizeof(struct ddp_tensor_op),
                                  .name = name,
                                  .kind = DDP_KIND_ALL_REDUCE,
                                  .send = buffer,
                                  .recv = buffer,
                                  .count = count,
                                  .dtype = DDP_FLOAT32,
                                  .op = DDP_SUM};
}

static inline ddp_tensor *enqueue(ddp_tensors *tensors, struct ddp_tensor_op op)
{
    ddp_tensor *handle;
    CHECK_OK(ddp_tensors_enqueue(tensors, &op, &handle, err));
    return handle;
}

static inline void finish(ddp_tensor *handle)
{
    int done = 0;
    CHECK_OK(ddp_tensors_wait(handle, 0, &done, err));
    CHECK(done);
    CHECK_OK(ddp_tensors_test(handle, &done, err));
    CHECK(done);
    ddp_tensors_release(handle);
}

/* The handle fails with @status, and a sentence that has @text. */
static inline void finish_with(ddp_tensor *handle, ddp_status status, const char *text)
{
    struct ddp_error err = {0};
    ddp_status result = ddp_tensors_wait(handle, 0, NULL, &err);
    if (result != status || strstr(err.msg, text) == NULL)
        fprintf(stderr, "%s, expected \"%s\"\n", err.msg, text);
    CHECK(result == status && strstr(err.msg, text) != NULL);
    ddp_tensors_release(handle);
}

/* One all_reduce of one element that all ranks enqueue: the object works. */
static inline void works(ddp_tensors *tensors, uint32_t nranks)
{
    float one = 1;
    finish(enqueue(tensors, sum_of("works", &one, 1)));
    CHECK(one == (float)nranks);
}

#endif
