/*
 * fixture.h - what the tests of the host driver share: a loaded table, a current context, and waits
 * that end. Each test runs in a process of its own, so it may set the environment first.
 */
#ifndef TESTS_CUDA_FIXTURE_H
#define TESTS_CUDA_FIXTURE_H

#include "check_main.h"
#include "driver.h"

#include <string.h>

extern struct ddpi_cuda cuda;
extern ddpi_cu_context contexts[4];

/* Load the driver with @devices devices; the context of the first is current. */
void start(const char *devices);

#define CU(call)               ck_assert_int_eq(call, DDPI_CU_SUCCESS)
#define CU_FAILS(result, call) ck_assert_int_eq(call, DDPI_CU_##result)

ddpi_cu_deviceptr allocate(size_t size);
ddpi_cu_stream create_stream(void);
/* A word of pinned memory, set to @value. */
_Atomic uint32_t *create_word(uint32_t value);

/* Fill device memory with, or read it into, plain memory of the host. */
void upload(ddpi_cu_deviceptr dst, const void *src, size_t size);
void download(void *dst, ddpi_cu_deviceptr src, size_t size);

/* Let @stream wait until *@word has reached @value. */
void gate(ddpi_cu_stream stream, const _Atomic uint32_t *word, uint32_t value);

#endif
