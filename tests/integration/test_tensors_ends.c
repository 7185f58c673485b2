/*
 * test_tensors_ends.c - the end of an object of named tensors: by a rank, in a child, by a death;
 * and the timeline that it leaves.
 */
#include "check_main.h"
#include "named_tensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end_early(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    float value = 1;
    ddp_tensor *never = rank == 1 ? NULL : enqueue(tensors, sum_of("never", &value, 1));
    works(tensors, world->nranks);
    if (rank != 1)
        finish_with(never, DDP_E_CLOSED, "rank 1 has called ddp_tensors_destroy()");
    ddp_tensors_destroy(tensors);
}

/* Their requests fill the lists of many cycles. */
static void destroy_behind_many(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { MANY = 20000 };
    (void)rank;
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    float *values = calloc(MANY, sizeof *values);
    CHECK(values != NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        char name[200];
        snprintf(name, sizeof name, "%0180" PRIu32, i);
        values[i] = (float)(i % 100);
        enqueue(tensors, sum_of(name, &values[i], 1));
    }
    CHECK_OK(ddp_barrier(comm, NULL, err));
    ddp_tensors_destroy(tensors);
    for (uint32_t i = 0; i < MANY; i++)
        CHECK(values[i] == (float)(i % 100 * world->nranks));
    free(values);
}

START_TEST(what_all_ranks_have_enqueued_is_carried_out_at_the_end)
{
    struct world world = {.nranks = 2, .name = "many"};
    world_open(&world);
    world_run(&world, destroy_behind_many);
    world_close(&world);
}
END_TEST

START_TEST(a_rank_that_destroys_ends_all)
{
    struct world world = {.nranks = 3, .name = "end"};
    world_open(&world);
    world_run(&world, end_early);
    world_close(&world);
}
END_TEST

/* The object's thread mostly sleeps when the child is born, which has no copy of it. */
static void destroy_in_children(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { CHILDREN = 8 };
    (void)rank;
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    for (int child = 0; child < CHILDREN; child++) {
        float value = 1;
        int status = -1;
        works(tensors, world->nranks);
        ddp_tensor *handle = enqueue(tensors, sum_of("x", &value, 1));
        pid_t pid = fork();
        if (pid == 0) {
            ddp_tensors_destroy(tensors);
            _exit(0);
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        finish(handle);
        CHECK(value == (float)world->nranks);
    }
    ddp_tensors_destroy(tensors);
}

START_TEST(a_child_can_destroy_and_disturbs_nobody)
{
    struct world world = {.nranks = 2, .name = "children"};
    world_open(&world);
    world_run(&world, destroy_in_children);
    world_close(&world);
}
END_TEST

static void wait_for_death(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    static float big[1 << 18];
    float value = 1;
    struct ddp_error err = {0};
    works(tensors, world->nranks);
    ddp_tensor *handle = rank == 1 ? NULL : enqueue(tensors, sum_of("never", &value, 1));
    world_step(world, rank);
    while (rank == 1 && world->stage == 0)
        pause();
    ddp_status status = DDP_OK;
    for (ddp_tensor *moving; status == DDP_OK;) { /* operations are under way at the death */
        struct ddp_tensor_op op = sum_of("big", big, 1 << 18);
        status = ddp_tensors_enqueue(tensors, &op, &moving, &err);
        if (status == DDP_OK)
            status = ddp_tensors_wait(moving, 0, NULL, &err);
    }
    CHECK(status == DDP_E_PEER_DEAD && strstr(err.msg, "rank 1") != NULL);
    if (rank != 1)
        CHECK(ddp_tensors_wait(handle, 0, NULL, &err) == DDP_E_PEER_DEAD);
    ddp_tensors_destroy(tensors);
}

START_TEST(a_death_is_named_to_all_handles)
{
    struct world world = {.nranks = 3, .name = "death", .stage = (uint32_t)_i % 2, .tcp = _i >= 2};
    world_open(&world);
    world_start(&world, wait_for_death);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        world_await_steps(&world, rank, 1);
    world_kill_rank(&world, 1);
    world_join(&world);
    world_close(&world);
}
END_TEST

/* ---- timeline ---- */

/* Three reductions of one tensor; ends the file, which goes, too. */
static void check_timeline(const char *path)
{
    char line[512], first = 0, last = 0;
    unsigned negotiations = 0, reductions = 0, rows = 0, ends = 0;
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        first = first == 0 ? line[0] : first;
        last = line[0];
        ends += last == '[' || last == ']';
        negotiations += strstr(line, "\"NEGOTIATE_ALLREDUCE\", \"ph\": \"X\"") != NULL;
        reductions += strstr(line, "\"ALLREDUCE\", \"ph\": \"X\"") != NULL;
        rows += strstr(line, "a \\\"quoted\\\" name") != NULL;
    }
    fclose(file);
    unlink(path);
    CHECK(first == '[' && last == ']' && ends == 2);
    CHECK(negotiations == 3 && reductions == 3 && rows == 1);
}

static void run_three_steps(ddp_comm *comm, const char *timeline)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){.timeline = timeline});
    float value = 1;
    for (int step = 0; step < 3; step++)
        finish(enqueue(tensors, sum_of("a \"quoted\" name", &value, 1)));
    ddp_tensors_destroy(tensors);
}

/* Children that destroy the object, and ones that flush all files as exit() does, write nothing to
 * it. (exit() would look for leaks, with a sanitizer, beside threads that are gone.) */
static void fork_in_timeline(ddp_comm *comm, const char *timeline)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){.timeline = timeline});
    float value = 1;
    for (int step = 0; step < 3; step++) {
        finish(enqueue(tensors, sum_of("a \"quoted\" name", &value, 1)));
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            if (step < 2)
                ddp_tensors_destroy(tensors);
            if (step > 0)
                CHECK(fflush(NULL) == 0);
            _exit(0);
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
    ddp_tensors_destroy(tensors);
}

/* Without an option the variable names the file, of rank 0. */
static void write_timeline(struct world *world, uint32_t rank, ddp_comm *comm)
{
    char path[] = "/tmp/ddp-tensors-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0 && unlink(path) == 0);
    if (world->stage == 0) {
        run_three_steps(comm, path);
        check_timeline(path);
        fork_in_timeline(comm, path);
        check_timeline(path);
        return;
    }
    setenv("DDP_TIMELINE", path, 1);
    run_three_steps(comm, NULL);
    if (rank == 0)
        check_timeline(path);
    CHECK(access(path, F_OK) != 0);
    setenv("DDP_TIMELINE", "", 1);
    run_three_steps(comm, NULL);
}

START_TEST(a_timeline_has_a_row_for_each_name)
{
    struct world world = {.nranks = 2, .stage = (uint32_t)_i, .name = "timeline"};
    world_open(&world);
    world_run(&world, write_timeline);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("ends of tensors");
    TCase *tests = tcase_create("ends of tensors");
    ADD_TESTS(tests, what_all_ranks_have_enqueued_is_carried_out_at_the_end,
              a_rank_that_destroys_ends_all, a_child_can_destroy_and_disturbs_nobody);
    tcase_add_loop_test(tests, a_death_is_named_to_all_handles, 0, 4);
    tcase_add_loop_test(tests, a_timeline_has_a_row_for_each_name, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
