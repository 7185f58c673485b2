/*
 * test_plan.c - where the workers of a job meet, for every combination of what can be said about
 * it.
 */
#include "check_main.h"
#include "plan.h"

#include <string.h>

static struct ddprun_options base_options(void)
{
    struct ddprun_options options;
    ddprun_options_init(&options);
    options.min_nodes = options.max_nodes = 1; /* as ddprun_options_complete() has it */
    return options;
}

static void set_endpoint(struct ddprun_options *options, const char *text)
{
    ck_assert_int_eq(ddpi_parse_endpoints(text, &options->rdzv_endpoints, NULL), DDP_OK);
}

static const struct row {
    enum ddprun_backend backend;
    const char *endpoint, *master_addr, *local_addr;
    uint32_t master_port;
    bool standalone, shared_off;
    /* what follows from it */
    const char *store_host;
    uint16_t store_port;
    const char *addr;
    uint16_t port;
    bool shared;
} rows[] = {
    {DDPRUN_STATIC, NULL, NULL, NULL, UINT32_MAX, false, false, "127.0.0.1", 0, "127.0.0.1", 0,
     true},
    {DDPRUN_C10D, NULL, NULL, NULL, UINT32_MAX, false, false, "127.0.0.1", 0, "127.0.0.1", 0, true},
    {DDPRUN_C10D, "localhost:29400", NULL, NULL, UINT32_MAX, false, false, "127.0.0.1", 29400,
     "localhost", 0, true},
    {DDPRUN_C10D, "[::1]:29400", NULL, NULL, UINT32_MAX, false, false, "::1", 29400, "::1", 0,
     true},
    {DDPRUN_C10D, "[::1]:29400", "127.0.0.1", NULL, UINT32_MAX, false, false, "::1", 29400,
     "127.0.0.1", 0, false},
    {DDPRUN_C10D, "localhost:29400", NULL, NULL, 29500, false, false, "127.0.0.1", 29400,
     "localhost", 29500, false},
    {DDPRUN_STATIC, NULL, NULL, NULL, 29500, false, false, "127.0.0.1", 29500, "127.0.0.1", 29500,
     true},
    {DDPRUN_STATIC, "localhost:29500", NULL, NULL, UINT32_MAX, false, false, "127.0.0.1", 29500,
     "localhost", 29500, true},
    {DDPRUN_STATIC, "node7:29500", NULL, NULL, UINT32_MAX, false, false, "127.0.0.1", 0, "node7",
     29500, false},
    {DDPRUN_STATIC, NULL, "::1", NULL, UINT32_MAX, false, false, "::1", 0, "::1", 0, true},
    {DDPRUN_STATIC, NULL, "127.0.0.3", NULL, 0, false, false, "127.0.0.3", 0, "127.0.0.3", 0, true},
    {DDPRUN_STATIC, NULL, NULL, "10.0.0.9", UINT32_MAX, false, false, "127.0.0.1", 0, "10.0.0.9", 0,
     false},
    {DDPRUN_STATIC, NULL, "node7", "10.0.0.9", UINT32_MAX, false, false, "127.0.0.1", 0, "node7", 0,
     false},
    {DDPRUN_STATIC, NULL, NULL, NULL, 29500, false, true, "127.0.0.1", 0, "127.0.0.1", 29500,
     false},
    {DDPRUN_C10D, "node7:29400", NULL, NULL, UINT32_MAX, true, false, "127.0.0.1", 0, "127.0.0.1",
     0, true},
};

START_TEST(where_they_meet)
{
    const struct row *row = &rows[_i];
    struct ddprun_options options = base_options();
    struct meeting meeting;
    options.rdzv_backend = row->backend;
    if (row->endpoint != NULL)
        set_endpoint(&options, row->endpoint);
    options.master_addr = row->master_addr;
    options.local_addr = row->local_addr;
    options.master_port = row->master_port;
    options.standalone = row->standalone;
    options.agent.nproc = 4;
    plan_meeting(&options, row->shared_off, &meeting);
    ck_assert_str_eq(meeting.store_host, row->store_host);
    ck_assert_uint_eq(meeting.store_port, row->store_port);
    ck_assert_str_eq(meeting.master_addr, row->addr);
    ck_assert_uint_eq(meeting.master_port, row->port);
    ck_assert_int_eq(meeting.agent_store, row->shared);
}
END_TEST

/* With a MASTER_ADDR and MASTER_PORT of its own, maybe. */
START_TEST(the_only_worker_hosts_its_own_store)
{
    struct ddprun_options options = base_options();
    struct meeting meeting;
    options.rdzv_backend = DDPRUN_STATIC;
    options.agent.nproc = 1;
    plan_meeting(&options, false, &meeting);
    ck_assert(!meeting.agent_store);
    options.max_nodes = 2;
    plan_meeting(&options, false, &meeting);
    ck_assert(meeting.agent_store);
    options.standalone = true;
    plan_meeting(&options, false, &meeting);
    ck_assert(!meeting.agent_store);
}
END_TEST

START_TEST(an_endpoint_elsewhere_is_a_store)
{
    struct ddprun_options options = base_options();
    options.rdzv_backend = DDPRUN_C10D;
    ck_assert(!plan_needs_a_store(&options));
    set_endpoint(&options, "node7:29400");
    ck_assert(plan_needs_a_store(&options));
    options.standalone = true;
    ck_assert(!plan_needs_a_store(&options));
    options.standalone = false;
    set_endpoint(&options, "localhost:29400");
    ck_assert(!plan_needs_a_store(&options));
    options.max_nodes = 2;
    ck_assert(plan_needs_a_store(&options));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("meeting");
    tcase_add_loop_test(tcase, where_they_meet, 0, sizeof rows / sizeof *rows);
    tcase_add_test(tcase, the_only_worker_hosts_its_own_store);
    tcase_add_test(tcase, an_endpoint_elsewhere_is_a_store);
    suite_add_tcase(suite, tcase);
    return suite;
}
