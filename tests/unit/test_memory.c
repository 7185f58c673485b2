/*
 * test_memory.c - which memory type an operation is for: no code of a type runs before the process
 * has begun to use its library; then it gets the buffers that it claims, and the host the others.
 */
#include "check_main.h"
#include "error.h"
#include "host_memory.h"
#include "memory.h"
#include "runs.h"

#include <ddprun/comm_requests.h>
#include <dlfcn.h>
#include <pthread.h>

#define LIBRARY "libjansson.so.4" /* one to which this program is not linked */

static _Atomic unsigned asked, opened, looks, runs, destroyed;
static _Atomic bool started;
static ddp_status run_status, open_status;
static float claimed[2][4]; /* the memory of the type */
static struct ddpi_memory memory;

static bool fake_is_started(void *symbol)
{
    ck_assert_ptr_nonnull(symbol);
    asked++;
    return started;
}

static ddp_status fake_look(struct ddpi_memory *self, const void *address, const char *what,
                            struct ddpi_buffer *ret_buffer, struct ddp_error *err)
{
    (void)what;
    (void)err;
    looks++;
    if (address == claimed[0] || address == claimed[1])
        ret_buffer->memory = self;
    return DDP_OK;
}

static ddp_status fake_advance(struct ddp_comm *comm, struct ddpi_run *run,
                               enum ddpi_movement *ret_movement)
{
    (void)comm;
    (void)run;
    *ret_movement = DDPI_COMPLETE;
    return DDP_OK;
}

static const struct ddpi_algorithm fake_algorithm = {.name = "fake", .advance = fake_advance};

static ddp_status fake_submit(struct ddpi_memory *self, struct ddp_comm *comm, struct ddpi_run *run,
                              void *stream, struct ddp_error *err)
{
    (void)stream;
    runs++;
    if (run->task.call.operation != DDPI_BARRIER)
        ck_assert(run->buffers.send.memory == self && run->buffers.recv.memory == self);
    if (run_status != DDP_OK)
        return ddpi_error_set(err, run_status, "no luck");
    run->algorithm = &fake_algorithm;
    ddpi_runs_put(comm, run);
    return DDP_OK;
}

static void fake_destroy(struct ddpi_memory *self)
{
    (void)self;
    destroyed++;
}

static ddp_status fake_open(struct ddp_comm *comm, struct ddpi_memory **ret_memory);

static const struct ddpi_memory_type fake = {.name = "drum",
                                             .library = LIBRARY,
                                             .symbol = "json_null",
                                             .is_started = fake_is_started,
                                             .open = fake_open,
                                             .look = fake_look,
                                             .submit = fake_submit,
                                             .destroy = fake_destroy};
static const struct ddpi_memory_type *const types[] = {&fake, &ddpi_host_memory};

static ddp_status fake_open(struct ddp_comm *comm, struct ddpi_memory **ret_memory)
{
    (void)comm;
    opened++;
    memory.type = &fake;
    if (open_status == DDP_OK)
        *ret_memory = &memory;
    return open_status;
}

static ddp_comm *create(void)
{
    const struct ddpi_config config = {.world_size = 1};
    ddp_comm *comm;
    ck_assert_int_eq(ddpi_comm_create(&config, types, &comm, NULL), DDP_OK);
    return comm;
}

static ddp_comm *create_opened(void)
{
    ck_assert_msg(dlopen(LIBRARY, RTLD_NOW) != NULL, "%s", dlerror());
    started = true;
    return create();
}

static ddp_status reduce(ddp_comm *comm, const float *send, float *recv, struct ddp_error *err)
{
    return ddp_all_reduce(comm, send, recv, 4, DDP_FLOAT32, DDP_SUM, NULL, err);
}

START_TEST(without_its_library_no_code_of_a_type_runs)
{
    ddp_comm *comm = create();
    float send[4] = {1, 2, 3, 4}, recv[4];
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(reduce(comm, send, recv, NULL), DDP_OK);
        ck_assert_int_eq(ddp_barrier(comm, NULL, NULL), DDP_OK);
        ck_assert_int_eq(ddp_comm_check(comm, NULL), DDP_OK);
    }
    ck_assert_mem_eq(send, recv, sizeof send);
    ddp_comm_destroy(comm);
    ck_assert_uint_eq(asked + opened + looks + runs + destroyed, 0);
}
END_TEST

START_TEST(a_type_is_opened_once_its_library_is_used)
{
    ddp_comm *comm = create();
    float send[4] = {0}, recv[4];
    ck_assert_msg(dlopen(LIBRARY, RTLD_NOW) != NULL, "%s", dlerror());
    ck_assert_int_eq(reduce(comm, send, recv, NULL), DDP_OK);
    ck_assert_uint_eq(asked, 1);
    ck_assert_uint_eq(opened + looks, 0);
    started = true;
    ck_assert_int_eq(reduce(comm, send, recv, NULL), DDP_OK);
    ck_assert_int_eq(reduce(comm, send, recv, NULL), DDP_OK);
    ck_assert_uint_eq(opened, 1);
    ck_assert_uint_eq(looks, 4);
    ck_assert_uint_eq(runs, 0);
    ddp_comm_destroy(comm);
    ck_assert_uint_eq(destroyed, 1);
}
END_TEST

START_TEST(buffers_decide_and_must_agree)
{
    ddp_comm *comm = create_opened();
    struct ddp_error err;
    float host[4] = {0};
    ck_assert_int_eq(reduce(comm, claimed[0], claimed[1], NULL), DDP_OK);
    ck_assert_uint_eq(runs, 1);
    ck_assert_int_eq(reduce(comm, claimed[0], host, &err), DDP_E_INVALID);
    ck_assert_str_eq(err.msg,
                     "the send buffer is memory of the drum, the receive buffer of the host; "
                     "both must be of one kind");
    ck_assert_int_eq(ddp_barrier(comm, &err, NULL), DDP_OK); /* any stream */
    ck_assert_uint_eq(runs, 2);
    ck_assert_int_eq(ddp_comm_check(comm, NULL), DDP_OK);
    ddp_comm_destroy(comm);
}
END_TEST

START_TEST(a_refused_call_leaves_the_communicator_usable_and_a_failed_one_does_not)
{
    ddp_comm *comm = create_opened();
    struct ddp_error err;
    run_status = DDP_E_INVALID;
    ck_assert_int_eq(reduce(comm, claimed[0], claimed[1], &err), DDP_E_INVALID);
    ck_assert_str_eq(err.msg, "no luck");
    ck_assert_int_eq(ddp_comm_check(comm, NULL), DDP_OK);
    run_status = DDP_E_CUDA;
    ck_assert_int_eq(reduce(comm, claimed[0], claimed[1], &err), DDP_E_CUDA);
    ck_assert_str_eq(err.msg, "rank 0: no luck");
    ck_assert_int_eq(ddp_comm_check(comm, NULL), DDP_E_CUDA);
    unsigned before = runs;
    ck_assert_int_eq(reduce(comm, claimed[0], claimed[1], NULL), DDP_E_CUDA);
    ck_assert_uint_eq(runs, before);
    ddp_comm_destroy(comm);
}
END_TEST

START_TEST(a_request_that_cannot_begin_fails_in_its_turn)
{
    ddp_comm *comm = create_opened();
    struct ddp_error err;
    float host[4] = {0};
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_ALL_REDUCE,
                                      .send = host,
                                      .recv = host,
                                      .count = 4,
                                      .dtype = DDP_FLOAT32};
    ddp_request *before, *refused;
    ck_assert_int_eq(ddp_start(comm, &operation, &before, NULL), DDP_OK);
    run_status = DDP_E_CUDA;
    operation.send = operation.recv = claimed[0];
    ck_assert_int_eq(ddp_start(comm, &operation, &refused, NULL), DDP_OK);
    ck_assert_int_eq(ddp_comm_check(comm, NULL), DDP_OK);
    ck_assert_int_eq(ddp_request_wait(refused, 0, NULL, &err), DDP_E_CUDA);
    ck_assert_str_eq(err.msg, "rank 0: no luck");
    ck_assert_int_eq(ddp_request_wait(before, 0, NULL, NULL), DDP_OK);
    ddp_request_free(before);
    ddp_request_free(refused);
    ddp_comm_destroy(comm);
}
END_TEST

/* ---- several threads ---- */

enum { THREADS = 4, TURNS = 2000 };

static void *reduce_often(void *arg)
{
    ddp_comm *comm = arg;
    struct ddp_error err;
    struct ddp_comm_stats stats = {.size = sizeof stats};
    float send[4] = {1, 2, 3, 4}, recv[4];
    ddp_status status = DDP_OK;
    for (int i = 0; i < TURNS && status == DDP_OK; i++) {
        started = started || i == TURNS / 4;
        status = reduce(comm, send, recv, &err);
        ck_assert_int_eq(ddp_comm_get_stats(comm, &stats), DDP_OK);
    }
    ck_assert_int_eq(status, open_status);
    if (status != DDP_OK)
        ck_assert_str_eq(err.msg, "rank 0: no memory for the use of a drum");
    return NULL;
}

static void run_threads(ddp_comm *comm)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, reduce_often, comm), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

START_TEST(a_type_is_opened_while_other_threads_operate)
{
    ddp_comm *comm = create();
    ck_assert_msg(dlopen(LIBRARY, RTLD_NOW) != NULL, "%s", dlerror());
    run_threads(comm);
    ck_assert_uint_eq(opened, 1);
    ddp_comm_destroy(comm);
}
END_TEST

START_TEST(a_type_that_gets_no_memory_fails_all_threads)
{
    ddp_comm *comm = create();
    ck_assert_msg(dlopen(LIBRARY, RTLD_NOW) != NULL, "%s", dlerror());
    open_status = DDP_E_NOMEM;
    run_threads(comm);
    ddp_comm_destroy(comm);
    ck_assert_uint_eq(destroyed, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("types");
    tcase_add_test(tcase, without_its_library_no_code_of_a_type_runs);
    tcase_add_test(tcase, a_type_is_opened_once_its_library_is_used);
    tcase_add_test(tcase, buffers_decide_and_must_agree);
    tcase_add_test(tcase, a_refused_call_leaves_the_communicator_usable_and_a_failed_one_does_not);
    tcase_add_test(tcase, a_request_that_cannot_begin_fails_in_its_turn);
    tcase_add_test(tcase, a_type_is_opened_while_other_threads_operate);
    tcase_add_test(tcase, a_type_that_gets_no_memory_fails_all_threads);
    suite_add_tcase(suite, tcase);
    return suite;
}
