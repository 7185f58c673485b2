/*
 * test_worker_keys.c - the key that workers get: of which identity it is, that it cannot be
 * changed, and what there is instead of one.
 */
#include "check_main.h"
#include "token_file.h"
#include "worker_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/test_worker_keys_XXXXXX";
static char path[64];
static struct worker_keys keys;
static struct ddp_error err;

static void make_dir(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/token", dir);
    keys = (struct worker_keys){.job = "train", .token_file = path, .wanted = true, .store = 42};
}

static void remove_dir(void)
{
    worker_keys_finish(&keys);
    unlink(path);
    rmdir(dir);
}

static int make(uint64_t generation)
{
    struct agent_key key = {.fd = -1};
    ck_assert_msg(worker_keys_make(&keys, generation, &key, &err) == DDP_OK, "%s", err.msg);
    ck_assert_int_eq(key.for_store, keys.wanted);
    return key.fd;
}

START_TEST(it_is_the_key_of_a_worker_in_its_generation)
{
    struct ddpi_credential token, key;
    uint8_t from_token[DDPI_KEY_SIZE], from_key[DDPI_KEY_SIZE];
    ck_assert_int_eq(ddpi_token_obtain(path, &token, &err), DDP_OK);
    for (uint64_t generation = 1; generation < 3; generation++) {
        int fd = make(generation);
        ck_assert_int_eq(ddpi_token_read_fd(fd, &key, &err), DDP_OK);
        ck_assert(!key.is_token);
        ck_assert_int_eq(key.identity.role, DDPI_ROLE_WORKER);
        ck_assert_str_eq(key.identity.job, "train");
        ck_assert_uint_eq(key.identity.epoch, generation);
        ck_assert_uint_eq(key.identity.store, 42);
        ck_assert_int_eq(ddpi_credential_key(&token, &key.identity, from_token, &err), DDP_OK);
        ck_assert_int_eq(ddpi_credential_key(&key, &key.identity, from_key, &err), DDP_OK);
        ck_assert_mem_eq(from_token, from_key, DDPI_KEY_SIZE);
        close(fd);
        unlink(path); /* it is read once */
    }
}
END_TEST

START_TEST(it_is_sealed_and_for_us_alone)
{
    struct ddpi_credential token;
    ck_assert_int_eq(ddpi_token_obtain(path, &token, &err), DDP_OK);
    int fd = make(1);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(fd, 0), -1);
    close(fd);
}
END_TEST

START_TEST(without_a_token_there_is_none)
{
    ck_assert_int_eq(make(1), 0);
}
END_TEST

/* It would keep them from a store that has no token. */
START_TEST(where_the_store_has_proven_nothing_it_is_for_ranks)
{
    struct ddpi_credential token;
    ck_assert_int_eq(ddpi_token_obtain(path, &token, &err), DDP_OK);
    keys.wanted = false;
    int fd = make(1);
    ck_assert_int_gt(fd, 0);
    close(fd);
}
END_TEST

/* Nobody outside this node has to have the same. */
START_TEST(a_job_of_one_node_has_a_new_one_each_time)
{
    struct ddpi_credential seen[2];
    keys = (struct worker_keys){.job = ""};
    for (int i = 0; i < 2; i++) {
        int fd = make(7);
        ck_assert_int_eq(ddpi_token_read_fd(fd, &seen[i], &err), DDP_OK);
        ck_assert_int_eq(seen[i].identity.role, DDPI_ROLE_WORKER);
        ck_assert_uint_eq(seen[i].identity.epoch, 7);
        close(fd);
    }
    ck_assert_mem_ne(seen[0].secret, seen[1].secret, DDPI_KEY_SIZE);
}
END_TEST

/* Where the store asks nobody, the nodes still have to have one in common. */
START_TEST(a_token_is_made_for_workers_alone)
{
    struct ddpi_credential token;
    keys.makes_token = true;
    int fd = make(1);
    ck_assert_int_gt(fd, 0);
    close(fd);
    ck_assert_int_eq(ddpi_token_read(path, &token, &err), DDP_OK);
    worker_keys_finish(&keys);
    keys.token_file = "/proc/nowhere/token"; /* as in a home that cannot be written */
    ck_assert_int_eq(make(1), 0);
}
END_TEST

START_TEST(an_agent_that_has_a_key_only_cannot_make_others)
{
    struct ddpi_credential token;
    char line[DDPI_KEY_LINE];
    const struct ddpi_identity agent = {.role = DDPI_ROLE_AGENT, .job = "train"};
    ck_assert_int_eq(ddpi_token_obtain(path, &token, &err), DDP_OK);
    ck_assert_int_eq(ddpi_token_key_line(&token, &agent, line, &err), DDP_OK);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(line, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(make(1), 0);
}
END_TEST

START_TEST(a_token_that_others_can_read_is_refused)
{
    struct ddpi_credential token;
    struct agent_key key;
    ck_assert_int_eq(ddpi_token_obtain(path, &token, &err), DDP_OK);
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert_int_eq(worker_keys_make(&keys, 1, &key, &err), DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(err.msg, path));
    ck_assert_int_eq(key.fd, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("worker_keys");
    TCase *tcase = tcase_create("worker_keys");
    tcase_add_checked_fixture(tcase, make_dir, remove_dir);
    ADD_TESTS(tcase, it_is_the_key_of_a_worker_in_its_generation, it_is_sealed_and_for_us_alone,
              without_a_token_there_is_none, where_the_store_has_proven_nothing_it_is_for_ranks,
              a_job_of_one_node_has_a_new_one_each_time, a_token_is_made_for_workers_alone,
              an_agent_that_has_a_key_only_cannot_make_others,
              a_token_that_others_can_read_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
