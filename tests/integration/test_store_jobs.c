/*
 * test_store_jobs.c - many jobs on one server: each sees its own keys; data ports, with the bytes
 * that PyTorch's client sends; and fences, which end epochs.
 */
#include "store_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char validate[] = "\0\xce\xf7\x85\x3c";

static ddp_store *open_job(const char *job, enum ddp_store_role role, uint64_t epoch)
{
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = store_thread_endpoint(server),
                                              .connect_timeout_ms = LONG_MS,
                                              .job = job,
                                              .role = role,
                                              .epoch = epoch};
    ddp_store *store = NULL;
    OK(ddp_store_connect(&options, &store, &why));
    return store;
}

static ddp_status try_job(const char *job, uint16_t port, enum ddp_store_role role, uint64_t epoch)
{
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = endpoint,
                                              .connect_timeout_ms = LONG_MS,
                                              .job = job,
                                              .role = role,
                                              .epoch = epoch};
    ddp_store *store = NULL;
    ddp_status status = ddp_store_connect(&options, &store, &why);
    ddp_store_close(store);
    return status;
}

static void assert_keys(ddp_store *store, const char *expected)
{
    char **keys, text[256] = "";
    size_t count, used = 0;
    OK(ddp_store_list(store, "", LONG_MS, &keys, &count, &why));
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s ", keys[i]);
    ck_assert_str_eq(text, expected);
    ddp_store_free(keys);
}

static void set_key(ddp_store *store, const char *key)
{
    OK(ddp_store_set(store, key, "1", 1, LONG_MS, NULL, &why));
}

/* TCPStore's SET, which has no answer, and an ADD, which has. */
static void set_by_torch(int fd, char key)
{
    char set[] = "\1\1\0\0\0\0\0\0\0K\1\0\0\0\0\0\0\0v",
         add[] = "\4\1\0\0\0\0\0\0\0N\1\0\0\0\0\0\0\0";
    char answer[8];
    set[9] = key;
    raw_send(fd, set, sizeof set - 1);
    raw_send(fd, add, sizeof add - 1);
    raw_receive(fd, answer, sizeof answer);
}

static int torch_at(uint16_t port)
{
    int fd = raw_connect(port);
    raw_send(fd, validate, sizeof validate - 1);
    return fd;
}

static struct ddp_store_session session_of(ddp_store *store)
{
    struct ddp_store_session session;
    OK(ddp_store_session_open(store, 60000, LONG_MS, &session, &why));
    return session;
}

static uint16_t port_for(ddp_store *store, const struct ddp_store_session *session, const char *job)
{
    uint16_t port = 0;
    OK(ddp_store_open_port(store, session, job, LONG_MS, &port, &why));
    return port;
}

START_TEST(jobs_do_not_see_each_other)
{
    ddp_store *all = open_store(), *a = open_job("a", DDP_STORE_AGENT, 0),
              *b = open_job("b", DDP_STORE_WORKER, 3),
              *reader = open_job("a", DDP_STORE_OBSERVER, 0);
    set_key(all, "k");
    set_key(a, "k");
    set_key(b, "g3/l");
    assert_keys(all, "job/a/k job/b/g3/l k ");
    assert_keys(a, "k ");
    assert_keys(reader, "k ");
    assert_keys(b, "g3/l ");
    ck_assert_int_eq(ddp_store_set(reader, "x", "", 0, LONG_MS, NULL, &why), DDP_E_DENIED);
    ddp_store_close(all);
    ddp_store_close(a);
    ddp_store_close(b);
    ddp_store_close(reader);
}
END_TEST

START_TEST(a_data_port_is_its_job_s)
{
    ddp_store *all = open_store();
    struct ddp_store_session one = session_of(all), two = session_of(all);
    uint16_t port_a = port_for(all, &one, "a"), port_b = port_for(all, &two, "b");
    int a = torch_at(port_a), b = torch_at(port_b), common = torch_at(store_thread_port(server));
    set_by_torch(a, 'x');
    set_by_torch(b, 'y');
    set_by_torch(common, 'z');
    assert_keys(all, "job/a/tcp/N job/a/tcp/x job/b/tcp/N job/b/tcp/y tcp/N tcp/z ");

    /* Native clients may come in by it, too. */
    ck_assert_int_eq(try_job(NULL, port_a, DDP_STORE_AGENT, 0), DDP_OK);
    ck_assert_int_eq(try_job("a", port_a, DDP_STORE_WORKER, 0), DDP_OK);
    ck_assert_int_eq(try_job("b", port_a, DDP_STORE_AGENT, 0), DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(why.msg, "belongs to the job 'a'"));

    /* It ends with its session; the connections that are there go on. */
    OK(ddp_store_session_close(all, &one, LONG_MS, &why));
    ck_assert_int_lt(raw_try_connect(port_a), 0);
    set_by_torch(a, 'w');
    int fd = raw_try_connect(port_b);
    ck_assert_int_ge(fd, 0);
    close(fd);
    close(a);
    close(b);
    close(common);
    ddp_store_close(all);
}
END_TEST

START_TEST(data_ports_that_are_refused)
{
    restart(&(struct ddpi_server_options){.max_data_ports = 1});
    ddp_store *all = open_store(), *a = open_job("a", DDP_STORE_AGENT, 0),
              *worker = open_job("a", DDP_STORE_WORKER, 0);
    struct ddp_store_session session = session_of(all), ended = session_of(all);
    uint16_t port = 0;
    OK(ddp_store_session_close(all, &ended, LONG_MS, &why));
    ck_assert_int_eq(ddp_store_open_port(all, &ended, "a", LONG_MS, &port, &why), DDP_E_NOT_FOUND);
    ck_assert_int_eq(ddp_store_open_port(all, &session, NULL, LONG_MS, &port, &why), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_open_port(all, &session, "../a", LONG_MS, &port, &why),
                     DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_open_port(all, NULL, "a", LONG_MS, &port, &why), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_open_port(a, &session, "b", LONG_MS, &port, &why), DDP_E_DENIED);
    ck_assert_int_eq(ddp_store_open_port(worker, &session, "a", LONG_MS, &port, &why),
                     DDP_E_DENIED);
    ck_assert_uint_eq(port, 0);
    port = port_for(a, &session, NULL); /* its own job */
    ck_assert_int_eq(ddp_store_open_port(all, &session, "b", LONG_MS, &(uint16_t){0}, &why),
                     DDP_E_LIMIT);
    int torch = torch_at(port);
    set_by_torch(torch, 'x');
    assert_keys(a, "tcp/N tcp/x ");
    close(torch);
    ddp_store_close(all);
    ddp_store_close(a);
    ddp_store_close(worker);
}
END_TEST

START_TEST(waits_are_for_a_job_s_own_keys)
{
    ddp_store *a = open_job("a", DDP_STORE_WORKER, 0), *b = open_job("b", DDP_STORE_WORKER, 0);
    static const char *const own[] = {"k", "l"}, *const foreign[] = {"job/a/k"};
    set_key(a, "k");
    set_key(a, "l");
    OK(ddp_store_wait(a, own, 2, LONG_MS, &why));
    ck_assert_int_eq(ddp_store_wait(b, foreign, 1, 0, &why), DDP_E_TIMEOUT);
    ddp_store_close(a);
    ddp_store_close(b);
}
END_TEST

START_TEST(a_fence_cannot_be_prevented)
{
    restart(&(struct ddpi_server_options){.max_keys = 1});
    ddp_store *all = open_store(), *old = open_job("a", DDP_STORE_WORKER, 1);
    struct ddp_store_session session = session_of(all);
    uint16_t port = port_for(all, &session, "a");
    set_key(old, "g1/full");
    OK(ddp_store_fence(all, "a", 2, LONG_MS, NULL, &why));
    ck_assert_int_lt(raw_try_connect(port), 0); /* it was the old epoch's */
    ck_assert_int_eq(ddp_store_set(all, "epoch/a", "1", 1, LONG_MS, NULL, &why), DDP_E_DENIED);
    ck_assert_int_eq(ddp_store_delete(all, "epoch/a", LONG_MS, &why), DDP_E_DENIED);
    ck_assert_int_eq(try_job("a", store_thread_port(server), DDP_STORE_WORKER, 1), DDP_E_DENIED);
    ddp_store_close(all);
    ddp_store_close(old);
}
END_TEST

START_TEST(a_fence_ends_epochs)
{
    ddp_store *all = open_store(), *agent = open_job("a", DDP_STORE_AGENT, 0),
              *old = open_job("a", DDP_STORE_WORKER, 1),
              *other = open_job("b", DDP_STORE_WORKER, 1);
    struct ddp_store_session session = session_of(all);
    int torch = torch_at(port_for(all, &session, "a"));
    int torch_b = torch_at(port_for(all, &session, "b"));
    set_by_torch(torch, 'x');
    set_by_torch(torch_b, 'x');
    set_key(old, "g1/mine");
    uint64_t epoch = 0;
    OK(ddp_store_fence(all, "a", 2, LONG_MS, &epoch, &why));
    ck_assert_uint_eq(epoch, 2);
    raw_until_closed(torch);
    close(torch);
    set_by_torch(torch_b, 'y');
    assert_keys(agent, "g1/mine ");
    ddp_status status = ddp_store_set(old, "g1/mine", "2", 1, LONG_MS, NULL, &why);
    if (status == DDP_E_CLOSED) /* it was on its way */
        status = ddp_store_set(old, "g1/mine", "2", 1, LONG_MS, NULL, &why);
    ck_assert_int_eq(status, DDP_E_DENIED);
    ck_assert_msg(strstr(why.msg, "epoch 2") != NULL, "%s", why.msg);
    set_key(agent, "k");
    set_key(other, "g1/k");

    uint16_t port = store_thread_port(server);
    ck_assert_int_eq(try_job("a", port, DDP_STORE_WORKER, 1), DDP_E_DENIED);
    ck_assert_int_eq(try_job("a", port, DDP_STORE_WORKER, 2), DDP_OK);
    ck_assert_int_eq(try_job("a", port, DDP_STORE_WORKER, 3), DDP_OK);
    OK(ddp_store_fence(agent, NULL, 2, LONG_MS, NULL, &why));
    ck_assert_int_eq(ddp_store_fence(agent, NULL, 1, LONG_MS, &epoch, &why), DDP_E_CONFLICT);
    ck_assert_uint_eq(epoch, 2);
    ck_assert_int_eq(ddp_store_fence(other, NULL, 9, LONG_MS, NULL, &why), DDP_E_DENIED);
    ck_assert_int_eq(ddp_store_fence(all, "a", UINT64_MAX, LONG_MS, NULL, &why), DDP_E_INVALID);
    ddp_store_close(all);
    ddp_store_close(agent);
    ddp_store_close(old);
    ddp_store_close(other);
    close(torch_b);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {jobs_do_not_see_each_other,  a_data_port_is_its_job_s,
                                  data_ports_that_are_refused, waits_are_for_a_job_s_own_keys,
                                  a_fence_cannot_be_prevented, a_fence_ends_epochs};
    return store_suite("store_jobs", tests, sizeof tests / sizeof *tests);
}
