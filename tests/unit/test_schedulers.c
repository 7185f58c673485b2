/*
 * test_schedulers.c - what the variables of each scheduler say about a job of several nodes, and
 * the sentence when they contradict each other.
 */
#include "check_main.h"
#include "ddprun_options.h"
#include "scheduler.h"

#include <stdio.h>
#include <string.h>

static struct ddp_error error;

/* What srun gives to the launcher of the second of three nodes. */
#define SLURM_STEP                                                                           \
    "SLURM_JOB_ID=42", "SLURM_JOB_NUM_NODES=3", "SLURM_STEP_ID=1", "SLURM_STEP_NUM_NODES=3", \
        "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NODELIST=n[08-10]", "SLURM_NODEID=1"
#define OPENMPI                                                                         \
    "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=1", \
        "PMIX_NAMESPACE=123@1", "OMPI_MCA_orte_hnp_uri=99.0;tcp://10.0.0.1,192.168.0.1:41234"

static const struct row {
    const char *envp[12];
    const char *fqdn;
    const char *scheduler; /* NULL: none */
    uint32_t nodes, node_rank;
    bool is_allocation;
    const char *host, *id;
} read_rows[] = {
    {{NULL}, NULL, NULL, 0, 0, false, "", ""},
    {{"SLURM_JOB_ID=", NULL}, NULL, NULL, 0, 0, false, "", ""},
    {{SLURM_STEP, NULL}, NULL, "Slurm", 3, 1, false, "n08", "slurm-42.1"},
    /* The script of sbatch has these too, but of no step. */
    {{"SLURM_JOB_ID=42", "SLURM_JOB_NUM_NODES=3", "SLURM_NODEID=0", "SLURM_PROCID=0", NULL},
     NULL,
     "Slurm",
     3,
     0,
     true,
     "",
     ""},
    {{"SLURM_JOB_ID=42", NULL}, NULL, "Slurm", 0, 0, false, "", ""},
    {{OPENMPI, NULL}, NULL, "Open MPI", 2, 1, false, "10.0.0.1", "mpirun-123-1"},
    {{OPENMPI, SLURM_STEP}, NULL, "Open MPI", 2, 1, false, "10.0.0.1", "mpirun-123-1"},
    {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=0",
      "OMPI_MCA_orte_hnp_uri=99.0;tcp://192.0.2.2:38947;tcp6://[fd00::2]:45671", NULL},
     NULL,
     "Open MPI",
     2,
     0,
     false,
     "192.0.2.2",
     "mpirun-job"},
    {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=0",
      "OMPI_MCA_orte_hnp_uri=99.0;tcp6://[fe80::1]:41234", NULL},
     NULL,
     "Open MPI",
     2,
     0,
     false,
     "fe80::1",
     "mpirun-job"},
    {{"OMPI_COMM_WORLD_SIZE=1", NULL}, NULL, "Open MPI", 1, 0, false, "", ""},
    {{"LSB_JOBID=7", "LSB_MCPU_HOSTS=h1 4 h2 8", NULL},
     "h2.lan",
     "LSF",
     2,
     1,
     false,
     "h1",
     "lsf-7"},
    {{"LSB_JOBID=7[3]", "LSB_MCPU_HOSTS= h1.lan 4  h2.lan 8 ", NULL},
     "H1.lan",
     "LSF",
     2,
     0,
     false,
     "h1.lan",
     "lsf-7-3-"},
    {{"LSB_JOBID=7", "LSB_MCPU_HOSTS=h1 4", NULL}, "other", "LSF", 1, 0, false, "h1", "lsf-7"},
    {{"LSB_JOBID=7", NULL}, "h1", "LSF", 0, 0, false, "", ""},
    {{"JOB_COMPLETION_INDEX=3", NULL},
     "train-3.nodes.ns.svc.cluster.local",
     "Kubernetes",
     0,
     3,
     false,
     "train-0.nodes.ns.svc.cluster.local",
     "k8s-train"},
    {{"JOB_COMPLETION_INDEX=0", NULL},
     "a-b-0.svc",
     "Kubernetes",
     0,
     0,
     false,
     "a-b-0.svc",
     "k8s-a-b"},
    {{"JOB_COMPLETION_INDEX=3", NULL}, "other-33", "Kubernetes", 0, 3, false, "", ""},
    {{"JOB_COMPLETION_INDEX=3", NULL}, "-3", "Kubernetes", 0, 3, false, "", ""},
};

START_TEST(what_is_read)
{
    const struct row *row = &read_rows[_i];
    struct scheduler_job job;
    char *const *envp = (char *const *)(const void *)row->envp;
    ck_assert_msg(scheduler_read(envp, row->fqdn, &job, &error) == DDP_OK, "%s", error.msg);
    ck_assert_pstr_eq(job.scheduler, row->scheduler);
    ck_assert_uint_eq(job.nodes, row->nodes);
    ck_assert_uint_eq(job.node_rank, row->node_rank);
    ck_assert_int_eq(job.is_allocation, row->is_allocation);
    ck_assert_int_eq(job.host_is_any,
                     *row->host != '\0' && strcmp(row->scheduler, "Open MPI") == 0);
    ck_assert_str_eq(job.host, row->host);
    ck_assert_str_eq(job.id, row->id);
    if (*job.id != '\0') {
        ck_assert(ddpi_job_valid(job.id, strlen(job.id)));
        ck_assert_uint_ge(job.port, 1024);
        ck_assert_uint_lt(job.port, 32768);
    }
}
END_TEST

static const struct {
    const char *envp[10];
    const char *fqdn;
    const char *said[2];
} refused[] = {
    {{"SLURM_JOB_ID=42", "SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NUM_TASKS=12", NULL},
     NULL,
     {"12 tasks on 3 nodes", "--ntasks-per-node=1"}},
    {{"SLURM_JOB_ID=42", "SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NUM_TASKS=3", "SLURM_NODEID=3",
      "SLURM_STEP_NODELIST=n[1-3]", NULL},
     NULL,
     {"node 3 of 3", "--rdzv-endpoint"}},
    {{"SLURM_JOB_ID=42", "SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NUM_TASKS=3", "SLURM_NODEID=0",
      "SLURM_STEP_NODELIST=n[1-2]", NULL},
     NULL,
     {"SLURM_STEP_NODELIST lists 2 nodes", "is 3"}},
    {{"SLURM_JOB_ID=42", "SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NUM_TASKS=3", "SLURM_NODEID=0",
      "SLURM_STEP_NODELIST=n[1-", NULL},
     NULL,
     {"SLURM_STEP_NODELIST", "no ']' after"}},
    {{"SLURM_JOB_ID=42", "SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NUM_TASKS=3", "SLURM_NODEID=0",
      "SLURM_STEP_NODELIST=$(x),b,c", NULL},
     NULL,
     {"'$(x)' is not the name of a host", "Slurm"}},
    {{"SLURM_JOB_ID=42", "SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NUM_TASKS=3", NULL},
     NULL,
     {"SLURM_NODEID is not set", "Slurm"}},
    {{"SLURM_JOB_ID=42", "SLURM_STEP_NUM_NODES=zero", NULL},
     NULL,
     {"SLURM_STEP_NUM_NODES", "zero"}},
    {{"SLURM_JOB_ID=42", "SLURM_JOB_NUM_NODES=2", "SLURM_HET_SIZE=2", NULL},
     NULL,
     {"heterogeneous", "--nnodes"}},
    {{"OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_SIZE=4", NULL},
     NULL,
     {"mpirun starts 4 processes", "ppr:1:node"}},
    {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=1", NULL},
     NULL,
     {"OMPI_MCA_orte_hnp_uri", "not set"}},
    {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_RANK=1",
      "OMPI_MCA_orte_hnp_uri=here", NULL},
     NULL,
     {"OMPI_MCA_orte_hnp_uri", "not an address"}},
    {{"LSB_JOBID=7", "LSB_MCPU_HOSTS=h1 4 h2", NULL}, "h1", {"'h2' has no number of slots", "LSF"}},
    {{"LSB_JOBID=7", "LSB_MCPU_HOSTS=h1 4 h2 4", NULL},
     "h3",
     {"does not list this host, 'h3'", "LSF"}},
    {{"LSB_JOBID=7", "LSB_MCPU_HOSTS=h1 4 h2 4", NULL}, NULL, {"has no name", "LSF"}},
    {{"JOB_COMPLETION_INDEX=-1", NULL}, "a-0", {"JOB_COMPLETION_INDEX", "-1"}},
};

START_TEST(what_is_refused)
{
    struct scheduler_job job;
    char *const *envp = (char *const *)(const void *)refused[_i].envp;
    ck_assert_int_eq(scheduler_read(envp, refused[_i].fqdn, &job, &error), DDP_E_INVALID);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(error.msg, refused[_i].said[i]) != NULL, "%s", error.msg);
    ck_assert_ptr_null(job.scheduler);
}
END_TEST

/* What the command line says, and whether the scheduler's word counts beside it. */
static const struct {
    const char *words[5];
    bool wanted;
    uint32_t min_nodes, max_nodes;
    const char *host;
} lines[] = {
    {{"ddprun", NULL}, true, 3, 3, "n08"},
    {{"ddprun", "--nproc-per-node=8", NULL}, true, 3, 3, "n08"},
    {{"ddprun", "--nnodes=2:4", NULL}, true, 2, 4, "n08"},
    {{"ddprun", "--nnodes=1", NULL}, false, 1, 1, ""},
    {{"ddprun", "--standalone", NULL}, false, 0, 0, ""},
    {{"ddprun", "--rdzv-endpoint=h:1", NULL}, false, 0, 0, "h"},
    {{"ddprun", "--nnodes=2", "--rdzv-endpoint=h:1", NULL}, false, 2, 2, "h"},
    {{"ddprun", "--master-addr=h", "--nnodes=2", NULL}, false, 2, 2, ""},
    {{"ddprun", "--master-port=99", NULL}, false, 0, 0, ""},
};

START_TEST(what_counts_beside_the_command_line)
{
    static const char *const variables[] = {SLURM_STEP, NULL};
    char *const *envp = (char *const *)(const void *)variables;
    struct ddprun_options options;
    struct scheduler_job job;
    int operand, argc = 0;
    while (lines[_i].words[argc] != NULL)
        argc++;
    ddprun_options_init(&options);
    ck_assert_int_eq(options_parse(&ddprun_option_table, argc,
                                   (char **)(void *)(uintptr_t)lines[_i].words, envp, &options,
                                   &operand, &error),
                     DDP_OK);
    ck_assert_int_eq(scheduler_read(envp, NULL, &job, &error), DDP_OK);
    ck_assert_int_eq(ddprun_options_want_scheduler(&options), lines[_i].wanted);
    if (lines[_i].wanted)
        ddprun_options_take_scheduler(&options, &job);
    ck_assert_uint_eq(options.min_nodes, lines[_i].min_nodes);
    ck_assert_uint_eq(options.max_nodes, lines[_i].max_nodes);
    ck_assert_str_eq(options.rdzv_endpoints.at[0].host, lines[_i].host);
    if (lines[_i].wanted) {
        ck_assert_int_eq(options.conf.is_host, 0);
        ck_assert_uint_eq(options.node_rank, 1);
        ck_assert_str_eq(options.rdzv_id, "slurm-42.1");
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("schedulers");
    TCase *tcase = tcase_create("schedulers");
    tcase_add_loop_test(tcase, what_is_read, 0, sizeof read_rows / sizeof *read_rows);
    tcase_add_loop_test(tcase, what_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_loop_test(tcase, what_counts_beside_the_command_line, 0,
                        sizeof lines / sizeof *lines);
    suite_add_tcase(suite, tcase);
    return suite;
}
