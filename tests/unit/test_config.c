/*
 * test_config.c - options and environment of a communicator: defaults, precedence, and that
 * anything malformed is named.
 */
#include "check_main.h"
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The environment of a test: name, value, name, value, ..., NULL. Check runs each test in a process
 * of its own. */
static const char *const *environment;

static const char *test_env(const char *name)
{
    for (const char *const *at = environment; *at != NULL; at += 2)
        if (strcmp(at[0], name) == 0)
            return at[1];
    return NULL;
}

#define SET(...)                                                    \
    do {                                                            \
        static const char *const variables[] = {__VA_ARGS__, NULL}; \
        environment = variables;                                    \
    } while (0)

START_TEST(no_launcher_is_a_world_of_one)
{
    SET("DDPRUN_STORE", "127.0.0.1:29400");
    struct ddpi_config config;
    ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, NULL), DDP_OK);
    ck_assert_uint_eq(config.world_size, 1);
    ck_assert_uint_eq(config.rank, 0);
    ck_assert_ptr_null(config.store_endpoint);
    ck_assert_str_eq(config.name, "world");
    ck_assert_uint_eq(config.timeout_ms, 600000);
    ck_assert_uint_eq(config.init_timeout_ms, 600000);
    ck_assert(!config.force_tcp && !config.tls && !config.tls_ranks);
    ck_assert_int_eq(config.algorithm, DDP_ALGORITHM_AUTO);
}
END_TEST

START_TEST(everything_from_the_environment)
{
    SET("RANK", "3", "WORLD_SIZE", "8", "DDPRUN_STORE", "10.0.0.1:29400", "DDPRUN_STORE_PREFIX",
        "job/2/", "DDP_TIMEOUT", "1.5s", "DDP_INIT_TIMEOUT", "2m", "DDP_FORCE_TCP", "true",
        "DDP_SOCKETS_PER_EDGE", "8", "DDPRUN_TOKEN_FD", "3", "DDPRUN_RANK_KEY_FD", "5",
        "DDP_ALGORITHM", "direct", "DDPRUN_TLS", "1", "DDPRUN_TLS_RANKS", "1");
    struct ddpi_config config;
    ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, NULL), DDP_OK);
    ck_assert_uint_eq(config.rank, 3);
    ck_assert_uint_eq(config.world_size, 8);
    ck_assert_str_eq(config.store_endpoint, "10.0.0.1:29400");
    ck_assert_str_eq(config.store_prefix, "job/2/");
    ck_assert_uint_eq(config.timeout_ms, 1500);
    ck_assert_uint_eq(config.init_timeout_ms, 120000);
    ck_assert(config.force_tcp);
    ck_assert_uint_eq(config.sockets, 8);
    ck_assert_int_eq(config.algorithm, DDP_ALGORITHM_DIRECT);
    ck_assert_int_eq(config.token_fd, 3);
    ck_assert_int_eq(config.rank_key_fd, 5);
    ck_assert(config.tls && config.tls_ranks);
}
END_TEST

/* Each by itself: one is about the store, the other about ranks. */
START_TEST(tls_with_the_store_and_tls_between_ranks)
{
    struct ddpi_config config;
    SET("RANK", "0", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1", "DDPRUN_TLS", "true",
        "DDPRUN_TLS_RANKS", "false");
    ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, NULL), DDP_OK);
    ck_assert(config.tls && !config.tls_ranks);
    SET("RANK", "0", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1", "DDPRUN_TLS_RANKS", "1");
    ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, NULL), DDP_OK);
    ck_assert(!config.tls && config.tls_ranks);
}
END_TEST

START_TEST(options_come_first)
{
    SET("RANK", "nonsense", "WORLD_SIZE", "8", "DDPRUN_STORE", "a:1", "DDP_TIMEOUT", "nonsense",
        "DDP_FORCE_TCP", "nonsense", "DDPRUN_TOKEN_FD", "nonsense", "DDPRUN_RANK_KEY_FD",
        "nonsense", "DDP_ALGORITHM", "nonsense", "DDPRUN_TLS", "nonsense", "DDPRUN_TLS_RANKS",
        "nonsense");
    const struct ddp_comm_options options = {.size = sizeof options,
                                             .store_endpoint = "b:2",
                                             .name = "evaluation",
                                             .world_size = 2,
                                             .rank = 1,
                                             .init_timeout_ms = 10,
                                             .timeout_ms = 20,
                                             .force_tcp = 1,
                                             .algorithm = DDP_ALGORITHM_RING};
    struct ddpi_config config;
    ck_assert_int_eq(ddpi_config_load(&options, test_env, &config, NULL), DDP_OK);
    ck_assert_uint_eq(config.rank, 1);
    ck_assert_uint_eq(config.world_size, 2);
    ck_assert_str_eq(config.store_endpoint, "b:2");
    ck_assert_str_eq(config.name, "evaluation");
    ck_assert_uint_eq(config.init_timeout_ms, 10);
    ck_assert_uint_eq(config.sockets, 1);
    ck_assert_uint_eq(config.timeout_ms, 20);
    ck_assert_int_eq(config.algorithm, DDP_ALGORITHM_RING);
    ck_assert_int_eq(config.token_fd, 0);        /* it is for the launcher's store, */
    ck_assert_int_eq(config.rank_key_fd, 0);     /* and this for who meets there, */
    ck_assert(!config.tls && !config.tls_ranks); /* as is TLS, whose keys follow from them */
}
END_TEST

static const struct {
    const char *env[9];
    const char *named; /* in the sentence */
} refused[] = {
    {{"RANK", "0"}, "WORLD_SIZE"},
    {{"WORLD_SIZE", "2"}, "RANK"},
    {{"RANK", "0", "WORLD_SIZE", "2"}, "DDPRUN_STORE"},
    {{"RANK", "2", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1"}, "rank 2"},
    {{"RANK", "-1", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1"}, "RANK"},
    {{"RANK", " 1", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1"}, "RANK"},
    {{"RANK", "0", "WORLD_SIZE", "0"}, "WORLD_SIZE"},
    {{"RANK", "0", "WORLD_SIZE", "2x"}, "WORLD_SIZE"},
    {{"RANK", "0", "WORLD_SIZE", "99999999999"}, "WORLD_SIZE"},
    {{"DDP_TIMEOUT", "soon"}, "DDP_TIMEOUT"},
    {{"DDP_TIMEOUT", "0"}, "DDP_TIMEOUT"},
    {{"DDP_INIT_TIMEOUT", "-1"}, "DDP_INIT_TIMEOUT"},
    {{"DDP_FORCE_TCP", "yes"}, "DDP_FORCE_TCP"},
    {{"DDP_SOCKETS_PER_EDGE", "0"}, "DDP_SOCKETS_PER_EDGE"},
    {{"DDP_SOCKETS_PER_EDGE", "9"}, "DDP_SOCKETS_PER_EDGE"},
    {{"DDP_ALGORITHM", "tree"}, "DDP_ALGORITHM: 'tree'"},
    {{"DDP_ALGORITHM", ""}, "DDP_ALGORITHM"},
    {{"DDP_ALGORITHM_TABLE", "/nonexistent"}, "DDP_ALGORITHM_TABLE: '/nonexistent'"},
    {{"DDP_ALGORITHM_TABLE", "/dev/zero"}, "DDP_ALGORITHM_TABLE: '/dev/zero' is no regular file"},
    {{"DDP_ALGORITHM_TABLE", "/proc"}, "DDP_ALGORITHM_TABLE: '/proc' is no regular file"},
    {{"DDP_ALGORITHM_TABLE", ""}, "DDP_ALGORITHM_TABLE: '' cannot be read: No such file"},
    {{"DDP_ALGORITHM_TABLE", "/proc/self/stat"}, "/proc/self/stat:1: this is not"},
    {{"RANK", "0", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1", "DDPRUN_TOKEN_FD", "2"},
     "DDPRUN_TOKEN_FD"},
    {{"RANK", "0", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1", "DDPRUN_RANK_KEY_FD", "x"},
     "DDPRUN_RANK_KEY_FD"},
    {{"RANK", "0", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1", "DDPRUN_TLS", "yes"}, "DDPRUN_TLS"},
    {{"RANK", "0", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1", "DDPRUN_TLS_RANKS", ""},
     "DDPRUN_TLS_RANKS"},
};

START_TEST(malformed_variables_are_named)
{
    environment = refused[_i].env;
    struct ddpi_config config = {.rank = 77};
    struct ddp_error err;
    ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, &err), DDP_E_INVALID);
    ck_assert_msg(strstr(err.msg, refused[_i].named) != NULL, "%s", err.msg);
    ck_assert_uint_eq(config.rank, 77);
}
END_TEST

/* ---- files of tables ---- */

static ddp_status load_table_at(const char *path, struct ddpi_config *config, struct ddp_error *err)
{
    const char *variables[] = {"DDP_ALGORITHM_TABLE", path, NULL};
    environment = variables;
    ddp_status status = ddpi_config_load(NULL, test_env, config, err);
    environment = NULL;
    return status;
}

enum { TABLE_ROOM = 16 * 1024 - 1 };
static const char row[] = "all_reduce 2 1 8 ring\n";
static const char hiding[] = "all_reduce 2 1 8 ring\n\0all_reduce 2 1 64 direct\n";

static const struct {
    const char *begin;
    size_t len;
    size_t filled; /* blanks before it */
    const char *named;
} files[] = {
    {row, sizeof row - 1, 0, NULL},
    {row, sizeof row - 1, TABLE_ROOM - sizeof row, NULL},
    {row, sizeof row - 1, TABLE_ROOM - sizeof row + 1, "has more than 16382 bytes"},
    {row, 0, 0, "is empty: it has lines such as 'all_reduce 8 2 65536 doubling'"},
    {hiding, sizeof hiding - 1, 0, ":2: this line has a NUL byte"},
};

START_TEST(the_whole_table_is_read)
{
    char path[] = "/tmp/test-config-XXXXXX", text[TABLE_ROOM + 1];
    struct ddpi_config config;
    struct ddp_error err = {0};
    size_t len = files[_i].filled + files[_i].len;
    memset(text, ' ', sizeof text);
    memcpy(text + files[_i].filled, files[_i].begin, files[_i].len);
    int fd = mkstemp(path);
    ck_assert(fd >= 0 && write(fd, text, len) == (ssize_t)len && close(fd) == 0);
    ddp_status status = load_table_at(path, &config, &err);
    unlink(path);
    ck_assert_msg(status == (files[_i].named == NULL ? DDP_OK : DDP_E_INVALID), "%s", err.msg);
    if (status == DDP_OK) {
        ck_assert_uint_eq(config.table.count, 1);
    } else {
        ck_assert_msg(strstr(err.msg, files[_i].named) != NULL, "%s", err.msg);
        ck_assert_msg(strstr(err.msg, "DDP_ALGORITHM_TABLE: ") == err.msg, "%s", err.msg);
    }
}
END_TEST

/* It has no writer, for whom a rank would wait. */
START_TEST(a_fifo_is_refused_at_once)
{
    char folder[] = "/tmp/test-config-XXXXXX", path[64];
    struct ddpi_config config;
    struct ddp_error err = {0};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/fifo", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ddp_status status = load_table_at(path, &config, &err);
    unlink(path);
    rmdir(folder);
    ck_assert_int_eq(status, DDP_E_INVALID);
    ck_assert_msg(strstr(err.msg, "/fifo' is no regular file") != NULL, "%s", err.msg);
}
END_TEST

static const struct ddp_unique_id any_id;

START_TEST(malformed_options_are_refused)
{
    SET(NULL);
    const struct ddp_comm_options bad[] = {
        {.size = 0, .world_size = 1},
        {.size = sizeof bad[0], .world_size = 2, .rank = 2, .store_endpoint = "a:1"},
        {.size = sizeof bad[0], .world_size = UINT32_MAX, .store_endpoint = "a:1"},
        {.size = sizeof bad[0], .world_size = 2},
        {.size = sizeof bad[0], .world_size = 1, .name = "a/b"},
        {.size = sizeof bad[0], .world_size = 2, .store_endpoint = "a:1", .unique_id = &any_id},
        {.size = sizeof bad[0], .world_size = 1, .name = ""},
        {.size = sizeof bad[0],
         .world_size = 1,
         .algorithm = (ddp_algorithm)(DDP_ALGORITHM_HIERARCHICAL + 1)},
    };
    struct ddpi_config config;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(ddpi_config_load(&bad[i], test_env, &config, NULL), DDP_E_INVALID);
}
END_TEST

/* ---- how the ranks meet ---- */

static ddp_status any_set(void *ctx, const char *key, const void *value, size_t len,
                          struct ddp_error *err)
{
    (void)ctx, (void)key, (void)value, (void)len, (void)err;
    return DDP_OK;
}

static ddp_status any_get(void *ctx, const char *key, void *buffer, size_t size, size_t *ret_len,
                          struct ddp_error *err)
{
    (void)ctx, (void)key, (void)buffer, (void)size, (void)ret_len, (void)err;
    return DDP_E_NOT_FOUND;
}

static ddp_status any_wait(void *ctx, const char *key, uint32_t timeout_ms, struct ddp_error *err)
{
    (void)ctx, (void)key, (void)timeout_ms, (void)err;
    return DDP_E_TIMEOUT;
}

static const struct ddp_kv whole = {
    .size = sizeof whole, .set = any_set, .get = any_get, .wait = any_wait};

START_TEST(functions_of_the_caller_come_before_the_environment)
{
    SET("RANK", "1", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1", "DDPRUN_TOKEN_FD", "nonsense",
        "DDPRUN_RANK_KEY_FD", "nonsense", "DDP_SOCKET_IFNAME", "eth");
    const struct ddp_comm_options options = {.size = sizeof options, .kv = &whole};
    struct ddpi_config config;
    ck_assert_int_eq(ddpi_config_load(&options, test_env, &config, NULL), DDP_OK);
    ck_assert_int_eq(config.way, DDPI_WAY_KV);
    ck_assert_ptr_eq(config.kv, &whole);
    ck_assert_ptr_null(config.store_endpoint);
    ck_assert_str_eq(config.interfaces, "eth");
    ck_assert(config.token_fd == 0 && config.rank_key_fd == 0);
    ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, NULL), DDP_E_INVALID);
}
END_TEST

/* So that ranks listen on the network of that server. */
START_TEST(the_server_behind_the_functions_is_in_the_environment)
{
    const struct ddp_comm_options options = {.size = sizeof options, .kv = &whole};
    struct ddpi_config config;
    SET("RANK", "1", "WORLD_SIZE", "2");
    ck_assert_int_eq(ddpi_config_load(&options, test_env, &config, NULL), DDP_OK);
    ck_assert_str_eq(config.server.host, "");
    ck_assert_ptr_null(config.local_address);
    SET("RANK", "1", "WORLD_SIZE", "2", "DDPRUN_STORE", "node7:29400");
    ck_assert_int_eq(ddpi_config_load(&options, test_env, &config, NULL), DDP_OK);
    ck_assert_str_eq(config.server.host, "node7");
    ck_assert_ptr_null(config.local_address);
    SET("RANK", "1", "WORLD_SIZE", "2", "DDPRUN_STORE", "node7:29400", "MASTER_ADDR", "10.1.0.1",
        "DDPRUN_LOCAL_ADDR", "10.1.0.2");
    ck_assert_int_eq(ddpi_config_load(&options, test_env, &config, NULL), DDP_OK);
    ck_assert_str_eq(config.server.host, "10.1.0.1");
    ck_assert_str_eq(config.local_address, "10.1.0.2");
}
END_TEST

START_TEST(malformed_functions_are_refused)
{
    SET("RANK", "1", "WORLD_SIZE", "2");
    struct ddp_kv bad[] = {whole, whole, whole, whole, whole};
    bad[0].size--;
    bad[1].set = NULL;
    bad[2].get = NULL;
    bad[3].wait = NULL;
    struct ddpi_config config;
    struct ddp_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct ddp_comm_options options = {
            .size = sizeof options, .kv = &bad[i], .store_endpoint = i == 4 ? "a:1" : NULL};
        ck_assert_int_eq(ddpi_config_load(&options, test_env, &config, &err), DDP_E_INVALID);
        ck_assert_msg(strstr(err.msg, "kv") != NULL, "%s", err.msg);
    }
}
END_TEST

START_TEST(a_unique_id_is_128_bytes_in_hexadecimal)
{
    static char text[2 * sizeof any_id.bytes + 2];
    static const char *variables[] = {
        "RANK", "1", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1", "DDP_UNIQUE_ID", text, NULL};
    struct ddpi_config config;
    struct ddp_error err;
    environment = variables;
    for (size_t i = 0; i < 2 * sizeof any_id.bytes; i++)
        text[i] = "0f7a"[i % 4];
    ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, &err), DDP_OK);
    ck_assert_int_eq(config.way, DDPI_WAY_ID);
    for (size_t i = 0; i < sizeof any_id.bytes; i++)
        ck_assert_int_eq(config.unique_id.bytes[i], i % 2 == 0 ? 0x0f : 0x7a);
    static const char *const bad[] = {"", "0", "0g", "0F", "0 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(text, bad[i], strlen(bad[i]) + (i < 2));
        ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, &err), DDP_E_INVALID);
        ck_assert_msg(strstr(err.msg, "DDP_UNIQUE_ID") != NULL, "%s", err.msg);
        memset(text, '0', 2 * sizeof any_id.bytes);
    }
    text[2 * sizeof any_id.bytes] = '0'; /* one too many */
    ck_assert_int_eq(ddpi_config_load(NULL, test_env, &config, &err), DDP_E_INVALID);
    const struct ddp_comm_options options = {.size = sizeof options, .unique_id = &any_id};
    ck_assert_int_eq(ddpi_config_load(&options, test_env, &config, &err), DDP_OK);
    ck_assert(config.way == DDPI_WAY_ID && config.unique_id.bytes[0] == 0);
}
END_TEST

static const struct {
    const char *env[13];
    enum ddpi_way way; /* DDPI_WAY_NONE: refused, */
    const char *named; /* and this is in the sentence */
} masters[] = {
    {{"MASTER_ADDR", "node0", "MASTER_PORT", "29500", "TORCHELASTIC_USE_AGENT_STORE", "True"},
     DDPI_WAY_TORCH_STORE,
     NULL},
    {{"MASTER_ADDR", "node0", "MASTER_PORT", "29500", "TORCHELASTIC_USE_AGENT_STORE", "False"},
     DDPI_WAY_MASTER,
     NULL},
    {{"MASTER_ADDR", "node0", "MASTER_PORT", "29500", "TORCHELASTIC_USE_AGENT_STORE", "true"},
     DDPI_WAY_MASTER,
     NULL},
    {{"MASTER_ADDR", "node0", "MASTER_PORT", "29500"}, DDPI_WAY_MASTER, NULL},
    {{"MASTER_ADDR", "node0", "MASTER_PORT", "29500", "DDPRUN_STORE", "a:1"}, DDPI_WAY_STORE, NULL},
    {{"MASTER_ADDR", "node0"}, DDPI_WAY_NONE, "MASTER_PORT"},
    {{"MASTER_ADDR", "", "MASTER_PORT", "29500"}, DDPI_WAY_NONE, "MASTER_ADDR"},
    {{"MASTER_ADDR", "node0", "MASTER_PORT", "0"}, DDPI_WAY_NONE, "MASTER_PORT"},
    {{"MASTER_ADDR", "node0", "MASTER_PORT", "65536"}, DDPI_WAY_NONE, "MASTER_PORT"},
    {{"MASTER_ADDR", "node0", "MASTER_PORT", "x"}, DDPI_WAY_NONE, "MASTER_PORT"},
    {{"MASTER_PORT", "29500"}, DDPI_WAY_NONE, "MASTER_ADDR"},
};

START_TEST(below_torchrun)
{
    const char *variables[17] = {"RANK", "1", "WORLD_SIZE", "2"};
    memcpy(variables + 4, masters[_i].env, sizeof masters[_i].env);
    environment = variables;
    struct ddpi_config config;
    struct ddp_error err = {0};
    ddp_status status = ddpi_config_load(NULL, test_env, &config, &err);
    ck_assert_msg((status == DDP_OK) == (masters[_i].way != DDPI_WAY_NONE), "%s", err.msg);
    if (status != DDP_OK) {
        ck_assert_msg(strstr(err.msg, masters[_i].named) != NULL, "%s", err.msg);
        return;
    }
    ck_assert_int_eq(config.way, masters[_i].way);
    if (config.way != DDPI_WAY_STORE) {
        ck_assert_str_eq(config.master.host, "node0");
        ck_assert_uint_eq(config.master.port, 29500);
    }
}
END_TEST

/* A program that was built when the options ended with algorithm: what follows is not read. */
START_TEST(options_of_the_first_version_are_read)
{
    SET("RANK", "1", "WORLD_SIZE", "2", "DDPRUN_STORE", "a:1");
    const struct ddp_comm_options options = {
        .size = offsetof(struct ddp_comm_options, kv), .timeout_ms = 7, .kv = &whole};
    struct ddpi_config config;
    ck_assert_int_eq(ddpi_config_load(&options, test_env, &config, NULL), DDP_OK);
    ck_assert_int_eq(config.way, DDPI_WAY_STORE);
    ck_assert_uint_eq(config.timeout_ms, 7);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("load");
    ADD_TESTS(tcase, no_launcher_is_a_world_of_one, everything_from_the_environment,
              tls_with_the_store_and_tls_between_ranks, options_come_first);
    tcase_add_loop_test(tcase, malformed_variables_are_named, 0,
                        (int)(sizeof refused / sizeof *refused));
    tcase_add_loop_test(tcase, the_whole_table_is_read, 0, sizeof files / sizeof *files);
    ADD_TESTS(tcase, a_fifo_is_refused_at_once, malformed_options_are_refused,
              functions_of_the_caller_come_before_the_environment,
              the_server_behind_the_functions_is_in_the_environment,
              malformed_functions_are_refused, a_unique_id_is_128_bytes_in_hexadecimal);
    tcase_add_loop_test(tcase, below_torchrun, 0, sizeof masters / sizeof *masters);
    tcase_add_test(tcase, options_of_the_first_version_are_read);
    suite_add_tcase(suite, tcase);
    return suite;
}
