/*
 * test_cuda_memory.c - when a communicator opens the memory type of GPUs: when the process has
 * loaded the driver and started it, and not before.
 */
#include "check_main.h"
#include "communicator.h"
#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>

static bool is_open(ddp_comm *comm)
{
    float one = 1;
    ck_assert_int_eq(ddp_all_reduce(comm, &one, &one, 1, DDP_FLOAT32, DDP_SUM, NULL, NULL), DDP_OK);
    return comm->memories.open[0] != NULL;
}

START_TEST(a_call_neither_loads_nor_starts_the_driver)
{
    ddp_comm *comm, *other;
    ck_assert_int_eq(ddp_comm_init_local(1, NULL, &comm, NULL), DDP_OK);
    ck_assert(!is_open(comm));
    ck_assert(!is_open(comm));
    ck_assert_ptr_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
    ck_assert_msg(dlopen(getenv("DDP_TEST_HOST_DRIVER"), RTLD_NOW) != NULL, "%s", dlerror());
    ck_assert(!is_open(comm));
    ck_assert(!is_open(comm));
    struct ddpi_cuda cuda = {0};
    ck_assert_int_eq(ddpi_cuda_init(&cuda, NULL), DDP_OK);
    ck_assert(is_open(comm));
    ddpi_cuda_finish(&cuda);
    ck_assert_int_eq(ddp_comm_init_local(1, NULL, &other, NULL), DDP_OK);
    ck_assert(is_open(other));
    ddp_comm_destroy(other);
    ddp_comm_destroy(comm);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cuda_memory");
    TCase *tcase = tcase_create("open");
    tcase_add_test(tcase, a_call_neither_loads_nor_starts_the_driver);
    suite_add_tcase(suite, tcase);
    return suite;
}
