/*
 * test_reducer_nomem.c - each allocation of a reducer fails in turn, in a world of one rank: an
 * error that says so, nothing leaked, and what works before works after.
 */
#include "check_main.h"
#include "failmem.h"

#include <ddprun/ddp.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMETERS = 5, COUNT = 96, ROWS = 12, STEPS = 3, MOST_ALLOCATIONS = 2000 };

struct rig {
    ddp_comm *comm;
    ddp_power_sgd *power_sgd;
    struct ddp_comm_hook inner, hook;
    struct ddp_compression compression;
    float data[PARAMETERS][COUNT], gradient[PARAMETERS][COUNT];
    struct ddp_parameter parameters[PARAMETERS];
    struct ddp_reducer_options options;
};

static void rig_open(struct rig *rig, bool hooked)
{
    struct ddp_error err;
    struct ddp_power_sgd_options rules = {.size = sizeof rules, .start_step = 1};
    *rig = (struct rig){.compression = {.dtype = DDP_BFLOAT16}};
    ck_assert_msg(ddp_comm_init(NULL, &rig->comm, &err) == DDP_OK, "%s", err.msg);
    ck_assert_int_eq(ddp_power_sgd_create(&rules, &rig->power_sgd, &err), DDP_OK);
    rig->inner = ddp_power_sgd_hook(rig->power_sgd);
    rig->hook = hooked ? rig->inner : ddp_compression_hook(&rig->compression);
    for (size_t p = 0; p < PARAMETERS; p++)
        rig->parameters[p] = (struct ddp_parameter){.data = rig->data[p],
                                                    .gradient = rig->gradient[p],
                                                    .count = COUNT,
                                                    .rows = ROWS,
                                                    .dtype = DDP_FLOAT32};
    rig->options = (struct ddp_reducer_options){.size = sizeof rig->options,
                                                .parameters = rig->parameters,
                                                .nparameters = PARAMETERS,
                                                .hook = &rig->hook,
                                                .find_unused = 1,
                                                .static_graph = 1,
                                                .uneven_inputs = 1};
}

/* A few steps that use every part of the reducer; the first error ends them. */
static ddp_status use_reducer(struct rig *rig, struct ddp_error *err)
{
    ddp_reducer *reducer;
    ddp_status status = ddp_reducer_create(rig->comm, &rig->options, &reducer, err);
    for (size_t step = 0; step < STEPS && status == DDP_OK; step++) {
        status = ddp_reducer_begin(reducer, err);
        for (size_t p = 1; p < PARAMETERS && status == DDP_OK; p++) {
            rig->gradient[p][0] = (float)p;
            status = ddp_reducer_ready(reducer, p, NULL, err);
        }
        if (status == DDP_OK)
            status = ddp_reducer_finish(reducer, err);
    }
    if (status == DDP_OK)
        status = ddp_reducer_join(reducer, NULL, err);
    ddp_reducer_destroy(reducer);
    return status;
}

START_TEST(every_allocation_may_fail)
{
    struct rig rig;
    bool failed = true;
    unsigned allocations = 0;
    for (; failed; allocations++) {
        struct ddp_error err = {.msg = ""};
        ck_assert_uint_lt(allocations, MOST_ALLOCATIONS);
        rig_open(&rig, _i == 0);
        failmem_start_some(allocations, 1);
        ddp_status status = use_reducer(&rig, &err);
        failed = failmem_stop();
        if (status != DDP_OK)
            ck_assert_msg(status == DDP_E_NOMEM && err.msg[0] != '\0', "allocation %u: %s",
                          allocations, err.msg);
        else if (!failed)
            ck_assert(rig.gradient[1][0] == 1 && rig.gradient[PARAMETERS - 1][0] == PARAMETERS - 1);
        ddp_power_sgd_destroy(rig.power_sgd);
        ddp_comm_destroy(rig.comm);
    }
    ck_assert_uint_gt(allocations, 20);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reducer_nomem");
    TCase *tests = tcase_create("nomem");
    tcase_add_loop_test(tests, every_allocation_may_fail, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
