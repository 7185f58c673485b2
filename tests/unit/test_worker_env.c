/*
 * test_worker_env.c - every variable of a worker, with torchrun's value.
 */
#include "check_main.h"
#include "failmem.h"
#include "mem.h"
#include "worker_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Second worker of the second of three nodes, in its second generation. The configuration may be
 * changed by a test; each runs in a process of its own. */
static struct agent_horovod horovod = {.port = 40123, .interface = "eth1"};
static struct agent_config config = {
    .serves_pmi = true,
    .nproc = 8,
    .max_restarts = 4294967295u,
    .role = "trainer",
    .run_id = "job=7",
    .master_addr = "10.9.9.9",
    .store = "10.0.0.1:29400",
    .store_prefix = "job/7/",
    .ending_signals_text = "SIGTERM,SIGINT",
    .tls = true,
    .tls_ranks = true,
    .omp_threads = 6,
    .timeline = "/tmp/timeline.json",
    .local_address = "10.0.0.7",
    .host = "node7",
    .horovod = &horovod,
};

static struct ddp_round_seat seat = {
    .generation = 1,
    .first_rank = 8,
    .world_size = 24,
    .node_rank = 1,
    .nodes = 3,
    .role_first_rank = 4,
    .role_world_size = 16,
    .restarts = 1,
    .master_address = "2001:db8::1",
    .master_port = 65535,
    .coordinator_address = "2001:db8::2",
    .coordinator_port = 40001,
};

static struct worker_place place = {
    .config = &config,
    .seat = &seat,
    .local_rank = 1,
    .error_file = "/logs/attempt_1/1/error.json",
    .key = {.fd = 9, .for_store = true},
    .has_life_page = true,
    .has_recorder = true,
};

static const char *const no_entries[] = {NULL};

static char **env_of(const char *const *inherited)
{
    char **envp = NULL;
    struct ddp_error error;
    config.envp = (char *const *)(const void *)inherited;
    ck_assert_int_eq(worker_env_make(&place, &envp, &error), DDP_OK);
    return envp;
}

/* The value of @name, which must be there at most once; NULL if it is not. */
static const char *value(char *const *envp, const char *name)
{
    const char *found = NULL;
    size_t len = strlen(name);
    for (; *envp != NULL; envp++)
        if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=') {
            ck_assert_ptr_null(found);
            found = *envp + len + 1;
        }
    return found;
}

static size_t entries(char *const *envp)
{
    size_t count = 0;
    while (envp[count] != NULL)
        count++;
    return count;
}

static const struct {
    const char *name;
    const char *value;
} expected[] = {
    {"RANK", "9"},
    {"LOCAL_RANK", "1"},
    {"WORLD_SIZE", "24"},
    {"LOCAL_WORLD_SIZE", "8"},
    {"GROUP_RANK", "1"},
    {"GROUP_WORLD_SIZE", "3"},
    {"ROLE_NAME", "trainer"},
    {"ROLE_RANK", "5"},
    {"ROLE_WORLD_SIZE", "16"},
    {"MASTER_ADDR", "2001:db8::1"},
    {"MASTER_PORT", "65535"},
    {"TORCHELASTIC_RUN_ID", "job=7"},
    {"TORCHELASTIC_RESTART_COUNT", "1"},
    {"TORCHELASTIC_MAX_RESTARTS", "4294967295"},
    {"TORCHELASTIC_ERROR_FILE", "/logs/attempt_1/1/error.json"},
    {"TORCHELASTIC_USE_AGENT_STORE", "False"},
    {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT"},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
    {"OMP_NUM_THREADS", "6"},
    {"DDPRUN_STORE", "10.0.0.1:29400"},
    {"DDPRUN_STORE_PREFIX", "g1/"},
    {"DDPRUN_TOKEN_FD", "3"},
    {"DDPRUN_RANK_KEY_FD", "3"},
    {"DDPRUN_TLS", "1"},
    {"DDPRUN_TLS_RANKS", "1"},
    {"DDP_TIMELINE", "/tmp/timeline.json"},
    {"DDPRUN_LOCAL_ADDR", "10.0.0.7"},
    {"DDPRUN_LIFE_FD", "4"},
    {"DDPRUN_LIFE_SLOT", "1"},
    {"DDPRUN_FLIGHT_FD", "6"},
    {"PMI_FD", "5"},
    {"PMI_RANK", "9"},
    {"PMI_SIZE", "24"},
    {"MPI_LOCALRANKID", "1"},
    {"MPI_LOCALNRANKS", "8"},
    {"HOROVOD_RANK", "9"},
    {"HOROVOD_SIZE", "24"},
    {"HOROVOD_LOCAL_RANK", "1"},
    {"HOROVOD_LOCAL_SIZE", "8"},
    {"HOROVOD_CROSS_RANK", "1"},
    {"HOROVOD_CROSS_SIZE", "3"},
    {"HOROVOD_HOSTNAME", "node7"},
    {"HOROVOD_CONTROLLER", "gloo"},
    {"HOROVOD_CPU_OPERATIONS", "gloo"},
    {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
    {"HOROVOD_GLOO_RENDEZVOUS_PORT", "40123"},
    {"HOROVOD_GLOO_IFACE", "eth1"},
    {"JAX_COORDINATOR_ADDRESS", "[2001:db8::2]:40001"},
    {"JAX_NUM_PROCESSES", "24"},
    {"JAX_PROCESS_ID", "9"},
};

enum { EXPECTED = sizeof expected / sizeof *expected };

START_TEST(every_variable_and_nothing_else)
{
    char **envp = env_of(no_entries);
    for (size_t i = 0; i < EXPECTED; i++) {
        const char *seen = value(envp, expected[i].name);
        ck_assert_msg(seen != NULL, "%s is missing", expected[i].name);
        ck_assert_str_eq(seen, expected[i].value);
    }
    ck_assert_uint_eq(entries(envp), EXPECTED);
    worker_env_free(envp);
}
END_TEST

/* So that a module that is imported once for all workers sees what they see, or is refused. */
START_TEST(every_variable_is_shared_or_a_worker_s_own)
{
    char **shared = NULL, name[64];
    config.envp = (char *const *)(const void *)no_entries;
    char *own = worker_env_own_names(&config);
    ck_assert_ptr_nonnull(own);
    ck_assert_int_eq(worker_env_make_shared(&config, &shared, NULL), DDP_OK);
    for (size_t i = 0; i < EXPECTED; i++) {
        const char *seen = value(shared, expected[i].name);
        snprintf(name, sizeof name, ",%s,", expected[i].name);
        bool is_own = strstr(own, name) != NULL || strncmp(own, name + 1, strlen(name + 1)) == 0;
        ck_assert_msg(is_own == (seen == NULL), "%s", expected[i].name);
        if (seen != NULL)
            ck_assert_str_eq(seen, expected[i].value);
    }
    worker_env_free(shared);
    ddpi_free(own);
}
END_TEST

START_TEST(inherited_entries_are_replaced_once_and_others_stay)
{
    static const char *const inherited[] = {
        "PATH=/bin",    "RANK=77",  "RANK=78", "RANKING=x", "NORANK=y",
        "MASTER_ADDR=", "no equal", "=odd",    "EMPTY=",    "TORCHELASTIC_RUN_ID",
        "LOCAL_RANK=3", "A=RANK=5", NULL};
    char **envp = env_of(inherited);
    for (size_t i = 0; i < EXPECTED; i++)
        ck_assert_str_eq(value(envp, expected[i].name), expected[i].value);
    ck_assert_str_eq(value(envp, "PATH"), "/bin");
    ck_assert_str_eq(value(envp, "RANKING"), "x");
    ck_assert_str_eq(value(envp, "NORANK"), "y");
    ck_assert_str_eq(value(envp, "EMPTY"), "");
    ck_assert_str_eq(value(envp, "A"), "RANK=5");
    /* Seven inherited entries are not ours. */
    ck_assert_uint_eq(entries(envp), EXPECTED + 7);
    ck_assert_str_eq(envp[0], "PATH=/bin");
    worker_env_free(envp);
}
END_TEST

/* Ranks name their shared memory by the name of the job. */
START_TEST(open_mpi_has_a_server_and_a_name_for_each_generation)
{
    static const char *const outer[] = {"PMIX_SERVER_TMPDIR=/outer", "PMIX_MCA_gds=ds21", NULL};
    char *names[4];
    place.pmix_port = 1234;
    for (size_t i = 0; i < 4; i++) {
        place.local_rank = i == 1;
        seat.generation = i < 2 ? 1 : 2;
        config.run_id = i < 3 ? "job=7" : "job=8";
        char **envp = env_of(outer);
        ck_assert_str_eq(value(envp, "PMIX_SERVER_URI2"), "ddprun.0;tcp4://127.0.0.1:1234");
        ck_assert_str_eq(value(envp, "PMIX_SERVER_URI41"), value(envp, "PMIX_SERVER_URI2"));
        ck_assert_str_eq(value(envp, "PMIX_RANK"), value(envp, "RANK"));
        ck_assert_ptr_null(value(envp, "PMIX_SERVER_TMPDIR"));
        ck_assert_str_eq(value(envp, "PMIX_MCA_gds"), "ds21");
        names[i] = strdup(value(envp, "PMIX_NAMESPACE"));
        worker_env_free(envp);
    }
    ck_assert_str_eq(names[0], names[1]);
    ck_assert_str_ne(names[1], names[2]);
    ck_assert_str_ne(names[2], names[3]);
    for (size_t i = 0; i < 4; i++)
        free(names[i]);
}
END_TEST

/* By the words of --mpi. What a surrounding job has said of its own server is removed. */
START_TEST(mpi_programs_find_what_is_served)
{
    static const char *const outer[] = {"PMI_FD=9", "PMI_RANK=9", "PMIX_NAMESPACE=outer", NULL};
    static const struct {
        bool pmi, pmix;
    } served[] = {{true, true}, {true, false}, {false, true}};
    for (size_t i = 0; i < 3; i++) {
        config.serves_pmi = served[i].pmi;
        config.serves_pmix = served[i].pmix;
        place.pmix_port = served[i].pmix ? 1234 : 0;
        char **envp = env_of(outer);
        ck_assert((value(envp, "PMI_FD") != NULL) == served[i].pmi);
        ck_assert((value(envp, "PMI_RANK") != NULL) == served[i].pmi);
        ck_assert((value(envp, "PMIX_NAMESPACE") != NULL) == served[i].pmix);
        ck_assert((value(envp, "JSM_JSRUN_PORT") != NULL) == served[i].pmix);
        ck_assert((value(envp, "MPIR_CVAR_PMI_VERSION") != NULL) ==
                  (served[i].pmi && served[i].pmix));
        worker_env_free(envp);
    }
}
END_TEST

/* Not every node then has a worker of each local rank. */
START_TEST(nodes_of_different_sizes_have_no_ranks_across_them)
{
    static const char *const numbers[][2] = {{"1", "3"}, {"0", "1"}, {"1", "3"}};
    static const uint32_t most[] = {8, 9, 0 /* a server that does not tell */};
    for (size_t i = 0; i < 3; i++) {
        seat.most_workers = most[i];
        char **envp = env_of(no_entries);
        ck_assert_str_eq(value(envp, "HOROVOD_CROSS_RANK"), numbers[i][0]);
        ck_assert_str_eq(value(envp, "HOROVOD_CROSS_SIZE"), numbers[i][1]);
        worker_env_free(envp);
    }
}
END_TEST

START_TEST(what_the_user_has_chosen_for_horovod_stays)
{
    static const char *const inherited[] = {"HOROVOD_CONTROLLER=mpi", "HOROVOD_CPU_OPERATIONS=ccl",
                                            "HOROVOD_GLOO_IFACE=ib0",
                                            "HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1", NULL};
    char **envp = env_of(inherited);
    ck_assert_str_eq(value(envp, "HOROVOD_CONTROLLER"), "mpi");
    ck_assert_str_eq(value(envp, "HOROVOD_CPU_OPERATIONS"), "ccl");
    ck_assert_str_eq(value(envp, "HOROVOD_GLOO_IFACE"), "ib0");
    ck_assert_str_eq(value(envp, "HOROVOD_GLOO_RENDEZVOUS_ADDR"), "127.0.0.1");
    worker_env_free(envp);
}
END_TEST

START_TEST(the_rendezvous_of_an_outer_job_is_taken_away)
{
    static const char *const inherited[] = {"HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1",
                                            "HOROVOD_GLOO_RENDEZVOUS_PORT=1", NULL};
    const struct agent_horovod none = {0};
    for (int i = 0; i < 2; i++) {
        config.horovod = i == 0 ? NULL : &none;
        char **envp = env_of(inherited);
        ck_assert_ptr_null(value(envp, "HOROVOD_GLOO_RENDEZVOUS_ADDR"));
        ck_assert_ptr_null(value(envp, "HOROVOD_GLOO_RENDEZVOUS_PORT"));
        ck_assert_ptr_null(value(envp, "HOROVOD_GLOO_IFACE"));
        worker_env_free(envp);
    }
}
END_TEST

/* On loopback it listens there alone. A server that tells of none leaves none of an outer job. */
START_TEST(jax_has_a_coordinator)
{
    static const char *const outer[] = {"JAX_COORDINATOR_ADDRESS=outer:1", "JAX_PLATFORMS=cpu",
                                        NULL};
    static const char *const chosen[] = {"JAX_COORDINATOR_BIND_ADDRESS=[::]:7", NULL};
    snprintf(seat.coordinator_address, sizeof seat.coordinator_address, "127.0.0.1");
    char **envp = env_of(outer);
    ck_assert_str_eq(value(envp, "JAX_COORDINATOR_ADDRESS"), "127.0.0.1:40001");
    ck_assert_str_eq(value(envp, "JAX_COORDINATOR_BIND_ADDRESS"), "127.0.0.1:40001");
    ck_assert_str_eq(value(envp, "JAX_PLATFORMS"), "cpu");
    worker_env_free(envp);
    envp = env_of(chosen);
    ck_assert_str_eq(value(envp, "JAX_COORDINATOR_BIND_ADDRESS"), "[::]:7");
    worker_env_free(envp);
    seat.coordinator_port = 0;
    envp = env_of(outer);
    ck_assert_ptr_null(value(envp, "JAX_COORDINATOR_ADDRESS"));
    ck_assert_ptr_null(value(envp, "JAX_COORDINATOR_BIND_ADDRESS"));
    worker_env_free(envp);
}
END_TEST

/* An inherited one stays without the option. */
START_TEST(tensorflow_has_a_cluster_if_it_is_wanted)
{
    static const char *const outer[] = {"TF_CONFIG={}", NULL};
    static char cluster[4096];
    static char *const text = cluster;
    char **envp = env_of(outer);
    ck_assert_str_eq(value(envp, "TF_CONFIG"), "{}");
    worker_env_free(envp);
    memset(cluster, 'x', sizeof cluster - 1);
    config.tf_cluster = &text;
    envp = env_of(outer);
    const char *seen = value(envp, "TF_CONFIG"),
               *task = "{\"task\":{\"type\":\"worker\",\"index\":9},";
    ck_assert_mem_eq(seen, task, strlen(task));
    ck_assert_str_eq(seen + strlen(task), cluster);
    worker_env_free(envp);
}
END_TEST

START_TEST(the_key_of_an_outer_job_is_taken_away)
{
    static const char *const inherited[] = {"DDPRUN_TOKEN_FD=7", "DDPRUN_RANK_KEY_FD=7", NULL};
    place.key.fd = 0;
    char **envp = env_of(inherited);
    ck_assert_ptr_null(value(envp, "DDPRUN_TOKEN_FD"));
    ck_assert_ptr_null(value(envp, "DDPRUN_RANK_KEY_FD"));
    ck_assert_str_eq(value(envp, "DDPRUN_STORE_PREFIX"), "job/7/g1/");
    worker_env_free(envp);
}
END_TEST

START_TEST(a_key_for_ranks_only_is_not_for_the_store)
{
    place.key.for_store = false;
    char **envp = env_of(no_entries);
    ck_assert_ptr_null(value(envp, "DDPRUN_TOKEN_FD"));
    ck_assert_str_eq(value(envp, "DDPRUN_RANK_KEY_FD"), "3");
    ck_assert_str_eq(value(envp, "DDPRUN_STORE_PREFIX"), "job/7/g1/");
    worker_env_free(envp);
}
END_TEST

START_TEST(a_seat_without_roles_or_address_falls_back)
{
    seat.role_world_size = seat.role_first_rank = 0;
    seat.master_address[0] = '\0';
    char **envp = env_of(no_entries);
    ck_assert_str_eq(value(envp, "ROLE_RANK"), "9");
    ck_assert_str_eq(value(envp, "ROLE_WORLD_SIZE"), "24");
    ck_assert_str_eq(value(envp, "MASTER_ADDR"), "10.9.9.9");
    worker_env_free(envp);
}
END_TEST

START_TEST(tls_is_said_where_it_is_asked_for)
{
    static const char *const inherited[] = {"DDPRUN_TLS=0", "DDPRUN_TLS_RANKS=0", NULL};
    char **envp = env_of(inherited);
    ck_assert_str_eq(value(envp, "DDPRUN_TLS"), "1");
    ck_assert_str_eq(value(envp, "DDPRUN_TLS_RANKS"), "1");
    worker_env_free(envp);
    config.tls_ranks = false;
    envp = env_of(no_entries);
    ck_assert_str_eq(value(envp, "DDPRUN_TLS"), "1");
    ck_assert_ptr_null(value(envp, "DDPRUN_TLS_RANKS"));
    worker_env_free(envp);
}
END_TEST

START_TEST(threads_and_nccl_are_the_users_choice)
{
    static const char *const chosen[] = {"OMP_NUM_THREADS=6", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
                                         NULL};
    config.omp_threads = 0; /* they are set */
    char **envp = env_of(chosen);
    ck_assert_str_eq(value(envp, "OMP_NUM_THREADS"), "6");
    ck_assert_str_eq(value(envp, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
    worker_env_free(envp);

    static const char *const empty[] = {
        "OMP_NUM_THREADS=", "TORCH_NCCL_ASYNC_ERROR_HANDLING=", NULL};
    envp = env_of(empty);
    ck_assert_str_eq(value(envp, "OMP_NUM_THREADS"), "");
    ck_assert_str_eq(value(envp, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "");
    worker_env_free(envp);

    envp = env_of(no_entries);
    ck_assert_ptr_null(value(envp, "OMP_NUM_THREADS"));
    worker_env_free(envp);
}
END_TEST

START_TEST(no_error_file_is_an_empty_variable)
{
    place.error_file = "";
    char **envp = env_of(no_entries);
    ck_assert_str_eq(value(envp, "TORCHELASTIC_ERROR_FILE"), "");
    worker_env_free(envp);
}
END_TEST

START_TEST(devices_are_inherited_unless_virtual)
{
    static const char *const devices[] = {"CUDA_VISIBLE_DEVICES=4,5", NULL};
    char **envp = env_of(devices);
    ck_assert_str_eq(value(envp, "CUDA_VISIBLE_DEVICES"), "4,5");
    ck_assert_str_eq(value(envp, "LOCAL_RANK"), "1");
    worker_env_free(envp);
}
END_TEST

/* CUDA_VISIBLE_DEVICES of local rank @local_rank in virtual mode, given the inherited entry. */
static void sees_device(const char *inherited, uint32_t local_rank, const char *device)
{
    config.virtual_local_rank = true;
    place.local_rank = local_rank;
    const char *const environment[] = {inherited, NULL};
    char **envp = env_of(environment);
    ck_assert_str_eq(value(envp, "LOCAL_RANK"), "0");
    ck_assert_str_eq(value(envp, "CUDA_VISIBLE_DEVICES"), device);
    worker_env_free(envp);
}

START_TEST(a_virtual_local_rank_sees_one_device)
{
    sees_device(NULL, 0, "0");
    sees_device(NULL, 3, "3");
    sees_device("CUDA_VISIBLE_DEVICES=6,7", 0, "6");
    sees_device("CUDA_VISIBLE_DEVICES=6,7", 1, "7");
    sees_device("CUDA_VISIBLE_DEVICES= 6 ,\t7 , 8", 1, "7");
    sees_device("CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,"
                "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/11/12",
                0, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
    sees_device("CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,"
                "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/11/12",
                1, "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/11/12");
}
END_TEST

START_TEST(amd_devices_follow_where_they_are_listed)
{
    config.virtual_local_rank = true;
    static const char *const listed[] = {"HIP_VISIBLE_DEVICES=2,3", NULL};
    char **envp = env_of(listed);
    ck_assert_str_eq(value(envp, "HIP_VISIBLE_DEVICES"), "3");
    ck_assert_str_eq(value(envp, "CUDA_VISIBLE_DEVICES"), "1");
    worker_env_free(envp);

    envp = env_of(no_entries);
    ck_assert_ptr_null(value(envp, "HIP_VISIBLE_DEVICES"));
    worker_env_free(envp);

    config.virtual_local_rank = false;
    envp = env_of(listed);
    ck_assert_str_eq(value(envp, "HIP_VISIBLE_DEVICES"), "2,3");
    worker_env_free(envp);
}
END_TEST

START_TEST(a_device_that_is_not_there_is_refused)
{
    config.virtual_local_rank = true;
    place.local_rank = 2;
    static const char *const lists[] = {"CUDA_VISIBLE_DEVICES=6,7",
                                        "CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=6,7,",
                                        "HIP_VISIBLE_DEVICES=0"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *const environment[] = {lists[i], NULL};
        char **envp = NULL;
        struct ddp_error error = {0};
        config.envp = (char *const *)(const void *)environment;
        ck_assert_int_eq(worker_env_make(&place, &envp, &error), DDP_E_INVALID);
        ck_assert_ptr_null(envp);
        ck_assert_ptr_nonnull(strstr(error.msg, "VISIBLE_DEVICES"));
        ck_assert_ptr_nonnull(strstr(error.msg, "local rank 2"));
    }
}
END_TEST

START_TEST(without_memory_the_environment_is_an_error)
{
    char **envp = NULL;
    struct ddp_error error = {0};
    config.envp = (char *const *)(const void *)no_entries;
    failmem_start(0);
    ddp_status status = worker_env_make(&place, &envp, &error);
    ck_assert(failmem_stop());
    ck_assert_int_eq(status, DDP_E_NOMEM);
    ck_assert_ptr_null(envp);
    worker_env_free(NULL);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("worker_env");
    TCase *tcase = tcase_create("worker_env");
    ADD_TESTS(tcase, every_variable_and_nothing_else, every_variable_is_shared_or_a_worker_s_own,
              inherited_entries_are_replaced_once_and_others_stay,
              open_mpi_has_a_server_and_a_name_for_each_generation,
              mpi_programs_find_what_is_served, nodes_of_different_sizes_have_no_ranks_across_them,
              what_the_user_has_chosen_for_horovod_stays,
              the_rendezvous_of_an_outer_job_is_taken_away, jax_has_a_coordinator,
              tensorflow_has_a_cluster_if_it_is_wanted, the_key_of_an_outer_job_is_taken_away,
              a_key_for_ranks_only_is_not_for_the_store, a_seat_without_roles_or_address_falls_back,
              tls_is_said_where_it_is_asked_for, threads_and_nccl_are_the_users_choice,
              no_error_file_is_an_empty_variable, devices_are_inherited_unless_virtual,
              a_virtual_local_rank_sees_one_device, amd_devices_follow_where_they_are_listed,
              a_device_that_is_not_there_is_refused, without_memory_the_environment_is_an_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
