/*
 * test_agent.c - the agent with real workers (shell scripts) on a loop, as the one member of its
 * job: every way in which a job ends, and that nothing is left of it: no process, no handle, no
 * descriptor, no file.
 */
#include "cgroup.h"
#include "check_main.h"
#include "failmem.h"
#include "guard.h"
#include "logdir.h"
#include "looptest.h"
#include "membership.h"
#include "outcome.h"
#include "reap.h"
#include "single_node.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NPROC_MAX = 4, SHOWN_MAX = 8 * 1024 * 1024, GENERATIONS_MAX = 8 };

static uv_loop_t loop;
static struct membership membership;
static struct agent *const agent = &membership.agent;
static struct local_job local;
static struct agent_config config;
static struct agent_streams streams[NPROC_MAX];
static const char *argv[5];
static char dir[] = "/tmp/test_agent_XXXXXX";
static char fifo_entry[64], temporary[64];
static const char *envp[8];
static int readers[2]; /* of the agent's stdout and stderr; -1: the test does not read */
static char shown[2][SHOWN_MAX];
static size_t shown_len[2];
static unsigned done_calls;
static int done_code;
static uint64_t generations[GENERATIONS_MAX];
static unsigned generations_count;
static int fds_before;

static void on_done(void *ctx, int exit_code)
{
    ck_assert_ptr_eq(ctx, &local);
    done_calls++;
    done_code = exit_code;
}

static void on_publish(void *ctx, const struct ddp_round_member *says)
{
    local_job_publish(ctx, says);
}

static void on_leave(void *ctx)
{
    ck_assert_ptr_eq(ctx, &local);
}

static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    (void)err;
    ck_assert_ptr_eq(ctx, &local);
    ck_assert_uint_lt(generations_count, GENERATIONS_MAX);
    generations[generations_count++] = generation;
    seat->master_port = 29500;
    return DDP_OK;
}

/* A job of @nproc workers that run @script. Scripts tell the test and each other that they stand
 * through "$FIFO". With "sleep & wait" a shell runs its trap at once, whenever the signal comes. */
static const char *log_dir;
static struct logdir opened;

static void configure(uint32_t nproc, const char *script)
{
    argv[0] = "sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = NULL;
    memset(streams, 0, sizeof streams);
    log_dir = NULL;
    config = (struct agent_config){
        .program = "/bin/sh",
        .argv = (char *const *)(void *)argv,
        .envp = (char *const *)(void *)envp,
        .host = "here",
        .role = "default",
        .run_id = "job",
        .master_addr = "127.0.0.1",
        .store = "127.0.0.1:29400",
        .store_prefix = "",
        .line_template = "[${rank}]:",
        .nproc = nproc,
        .shutdown_timeout_ms = 15000,
        .failure_timeout_ms = 15000,
        .streams = streams,
        .ending_signals_text = "SIGTERM",
    };
    sigemptyset(&config.ending_signals);
    sigaddset(&config.ending_signals, SIGTERM);
    sigemptyset(&config.forwarded_signals);
    sigaddset(&config.forwarded_signals, SIGUSR1);
}

static void prepare(void)
{
    char fifo[48];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    snprintf(fifo_entry, sizeof fifo_entry, "FIFO=%s", fifo);
    snprintf(temporary, sizeof temporary, "%s/tmp", dir);
    ck_assert_int_eq(mkdir(temporary, 0700), 0);
    setenv("TMPDIR", temporary, 1);
    envp[0] = "PATH=/usr/bin:/bin";
    envp[1] = fifo_entry;
    envp[2] = NULL;

    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(reap_become_subreaper(), 0);
    /* libuv keeps a few descriptors from its first loop on. */
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    uv_signal_t first;
    uv_signal_init(&loop, &first);
    uv_close((uv_handle_t *)&first, NULL);
    looptest_close(&loop);
    for (int i = 0; i < 2; i++)
        readers[i] = looptest_capture(STDOUT_FILENO + i);
    fds_before = looptest_open_fds();
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void clean_up(void)
{
    int left = rmdir(temporary);
    tree_remove(dir);
    ck_assert_int_eq(left, 0); /* no temporary file stays behind */
}

static void open_logs(void)
{
    struct ddp_error error = {0};
    ck_assert_msg(logdir_open(&opened, log_dir, config.run_id, false, &error) == DDP_OK, "%s",
                  error.msg);
    config.logs = &opened;
}

static ddp_status init_job(struct ddp_error *err)
{
    const struct membership_link link = {
        .ctx = &local, .publish = on_publish, .leave = on_leave, .done = on_done};
    const struct member_config member = {
        .says = {.name = "here",
                 .address = "127.0.0.1",
                 .nproc = config.nproc,
                 .node_rank = -1,
                 .terms = {.min_nodes = 1, .max_nodes = 1, .max_restarts = config.max_restarts}}};
    local.begin = on_begin;
    local.ctx = &local;
    ddp_status status = membership_init(&membership, &loop, &config, &member, &link, err);
    return status == DDP_OK ? local_job_init(&local, &loop, &membership, err) : status;
}

static void start(void)
{
    struct ddp_error error = {0};
    open_logs();
    ck_assert_msg(init_job(&error) == DDP_OK, "%s", error.msg);
    membership_start(&membership);
}

static void read_console(void)
{
    for (int i = 0; i < 2; i++)
        if (readers[i] >= 0)
            looptest_read(readers[i], shown[i], SHOWN_MAX - 1, &shown_len[i]);
    shown[0][shown_len[0]] = shown[1][shown_len[1]] = '\0';
}

static bool is_done(void *ctx)
{
    (void)ctx;
    read_console();
    return done_calls > 0;
}

static void close_agent(void)
{
    membership_close(&membership);
    local_job_close(&local);
    looptest_close(&loop);
    membership_finish(&membership);
    logdir_close(&opened);
    looptest_await_threads(); /* one may still look for NVML */
    ck_assert_int_eq(looptest_open_fds(), fds_before);
}

static void no_process_is_left(void)
{
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

/* The job that was started ends with @exit_code, and leaves nothing. */
static void ends_with(int exit_code)
{
    looptest_run_until(&loop, is_done, NULL);
    read_console();
    ck_assert_uint_eq(agent->sm.state, AGENT_DONE);
    ck_assert_msg(done_code == exit_code, "exit code %d, not %d: %s", done_code, exit_code,
                  shown[1]);
    ck_assert_int_eq(agent->exit_code, exit_code);
    close_agent();
    ck_assert_uint_eq(done_calls, 1);
    no_process_is_left();
}

static void run_job(int exit_code)
{
    start();
    ends_with(exit_code);
}

static void says(int i, const char *text)
{
    ck_assert_msg(strstr(shown[i], text) != NULL, "'%s' is not in: %s", text, shown[i]);
}

static void does_not_say(int i, const char *text)
{
    ck_assert_msg(strstr(shown[i], text) == NULL, "'%s' is in: %s", text, shown[i]);
}

/* ---- the ways to end --------------------------------------------------------------------------
 */

START_TEST(the_table_is_valid)
{
    ck_assert(ddpi_sm_table_valid(&agent_sm));
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(all_succeed)
{
    configure(3, "echo \"$RANK of $WORLD_SIZE\"; echo err >&2");
    run_job(0);
    says(0, "[0]:0 of 3\n");
    says(0, "[1]:1 of 3\n");
    says(0, "[2]:2 of 3\n");
    ck_assert_uint_eq(shown_len[1], 3 * strlen("[0]:err\n")); /* and not a word of ours */
    ck_assert_uint_eq(generations_count, 1);
    ck_assert_uint_eq(generations[0], 1);
}
END_TEST

START_TEST(a_failure_stops_the_others_and_is_the_root)
{
    configure(3, "case $RANK in\n"
                 "1) exec 3<>$FIFO; read a <&3; read b <&3; echo reason >&2; exit 3;;\n"
                 "*) trap 'echo got TERM; exit 4' TERM; echo stands >$FIFO\n"
                 "   while :; do sleep 100 & wait; done;;\n"
                 "esac");
    run_job(3);
    says(0, "[0]:got TERM\n");
    says(0, "[2]:got TERM\n");
    says(1, "ddprun: rank 1 failed first: exit code 3, after ");
    says(1, "  its last lines of stderr:\n  | reason\n");
    says(1, "  then rank 0: stopped by ddprun, exit code 4, ");
    says(1, "  then rank 2: stopped by ddprun, exit code 4, ");
    ck_assert_uint_eq(generations_count, 1);
}
END_TEST

START_TEST(who_does_not_stop_in_time_is_killed)
{
    configure(2, "case $RANK in\n"
                 "0) trap '' TERM; echo stands >$FIFO; while :; do sleep 100; done;;\n"
                 "1) read a <$FIFO; exit 5;;\n"
                 "esac");
    config.failure_timeout_ms = 30;
    run_job(5);
    says(1, "rank 1 failed first: exit code 5");
    says(1, "  then rank 0: did not stop in time, killed by SIGKILL (Killed), ");
}
END_TEST

START_TEST(a_job_is_started_again)
{
    configure(2, "echo \"attempt $TORCHELASTIC_RESTART_COUNT in $DDPRUN_STORE_PREFIX\"\n"
                 "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 9");
    config.max_restarts = 3;
    run_job(0);
    says(0, "[1]:attempt 2 in g3/\n");
    says(1, "starting all 2 workers again (restart 2 of 3)");
    does_not_say(1, "restart 3 of 3");
    ck_assert_uint_eq(generations_count, 3);
    ck_assert_uint_eq(generations[2], 3);
}
END_TEST

START_TEST(the_budget_ends)
{
    configure(2, "exit 9");
    config.max_restarts = 2;
    run_job(9);
    says(1, "giving up after 2 restarts (--max-restarts=2)");
    ck_assert_uint_eq(generations_count, 3);
}
END_TEST

START_TEST(a_program_that_is_not_there)
{
    configure(3, "");
    config.program = "/no/such/program";
    config.max_restarts = 5;
    run_job(EXIT_CONFIG);
    says(1, "ddprun: cannot start '/no/such/program': could not execute it: No such file");
    ck_assert_uint_eq(generations_count, 1); /* starting again would not help */
}
END_TEST

START_TEST(one_that_cannot_start_ends_those_that_have)
{
    configure(2, "sleep 100");
    config.virtual_local_rank = true;
    envp[2] = "CUDA_VISIBLE_DEVICES=0";
    envp[3] = NULL;
    run_job(EXIT_CONFIG);
    says(1, "local rank 1");
    does_not_say(1, "failed first");
}
END_TEST

START_TEST(an_orphan_does_not_outlive_the_job)
{
    configure(2, "exec 3<>$FIFO\n"
                 "setsid sh -c 'trap \"\" TERM HUP; echo stands >$FIFO; sleep 100' &\n"
                 "read a <&3");
    run_job(0);
}
END_TEST

static const char two_that_stand[] = "trap 'echo got TERM; exit 0' TERM; trap 'echo USR1' USR1\n"
                                     "echo stands; while :; do sleep 100 & wait; done";

static bool both_stand(void *ctx)
{
    (void)ctx;
    read_console();
    return agent->sm.state == AGENT_RUNNING && strstr(shown[0], "[0]:stands\n") != NULL &&
           strstr(shown[0], "[1]:stands\n") != NULL;
}

START_TEST(a_signal_stops_the_job)
{
    configure(2, two_that_stand);
    config.max_restarts = 1;
    start();
    looptest_run_until(&loop, both_stand, NULL);
    kill(getpid(), SIGTERM);
    ends_with(128 + SIGTERM);
    says(0, "[0]:got TERM\n");
    says(0, "[1]:got TERM\n");
    says(1, "ddprun: SIGTERM: stopping 2 workers");
    says(1, "ddprun: the job was ended by SIGTERM");
    does_not_say(1, "failed first");
    ck_assert_uint_eq(generations_count, 1);
}
END_TEST

/* Slurm and systemd signal every process of a job, the guard and the agent both, and the guard
 * forwards: that is one wish, not impatience. */
START_TEST(one_wish_that_arrives_twice_is_one)
{
    configure(2, two_that_stand);
    start();
    looptest_run_until(&loop, both_stand, NULL);
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGTERM);
    ends_with(128 + SIGTERM);
    says(0, "[0]:got TERM\n");
    says(0, "[1]:got TERM\n");
    does_not_say(1, "killing");
}
END_TEST

static void signal_ourselves(uv_timer_t *timer)
{
    (void)timer;
    kill(getpid(), SIGTERM);
}

START_TEST(an_impatient_user_is_heard)
{
    configure(2, "trap '' TERM; echo stands; while :; do sleep 100 & wait; done");
    start();
    looptest_run_until(&loop, both_stand, NULL);
    uv_timer_t again;
    uv_timer_init(&loop, &again);
    uv_timer_start(&again, signal_ourselves, 0, 20);
    looptest_run_until(&loop, is_done, NULL);
    uv_close((uv_handle_t *)&again, NULL);
    ends_with(128 + SIGTERM);
    says(1, "ddprun: SIGTERM: killing 2 workers");
}
END_TEST

START_TEST(a_forwarded_signal_reaches_every_worker)
{
    configure(2, "trap 'echo USR1; exit 0' USR1; echo stands; while :; do sleep 100 & wait; done");
    start();
    looptest_run_until(&loop, both_stand, NULL);
    kill(getpid(), SIGUSR1);
    ends_with(0);
    says(0, "[0]:USR1\n");
    says(0, "[1]:USR1\n");
}
END_TEST

START_TEST(an_ignored_signal_stays_ignored)
{
    configure(1, "kill -TERM $PPID; exit 6");
    signal(SIGTERM, SIG_IGN);
    run_job(6);
}
END_TEST

START_TEST(an_ignored_child_signal_does_no_harm)
{
    configure(2, "exit $RANK");
    signal(SIGCHLD, SIG_IGN);
    run_job(1);
}
END_TEST

START_TEST(without_its_guard_the_job_ends)
{
    int ends[2];
    configure(2, two_that_stand);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    _Atomic uint64_t never = 0;
    const struct guard_agent guard = {.guard_fd = ends[0], .fence_at_ms = &never};
    config.guard = &guard;
    start();
    looptest_run_until(&loop, both_stand, NULL);
    close(ends[1]);
    looptest_run_until(&loop, is_done, NULL);
    fds_before++; /* the reading end is the caller's */
    ends_with(128 + SIGKILL);
    close(ends[0]);
    does_not_say(0, "got TERM"); /* there is no time for that */
}
END_TEST

/* ---- a start that takes long ------------------------------------------------------------------
 */

static int
    gate[2]; /* a full pipe, in the place of a control group: whoever is born waits for room */
static struct cgroup slow_group;

static void make_starts_slow(void)
{
    char page[4096] = {0};
    ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(gate[1], F_SETFL, O_NONBLOCK), 0);
    while (write(gate[1], page, sizeof page) > 0)
        continue;
    ck_assert_int_eq(fcntl(gate[1], F_SETFL, 0), 0);
    slow_group = (struct cgroup){.path = "/nowhere", .procs_fd = gate[1], .kill_fd = -1};
    config.cgroup = &slow_group;
    fds_before += 2;
}

static void open_gate(uv_timer_t *timer)
{
    char page[4096];
    (void)timer;
    ck_assert_int_gt(read(gate[0], page, sizeof page), 0);
}

static void close_gate(void)
{
    close(gate[0]);
    close(gate[1]);
}

static bool is_starting(void *ctx)
{
    (void)ctx;
    return agent->sm.state == AGENT_STARTING;
}

static bool is_stopping(void *ctx)
{
    (void)ctx;
    return agent->sm.state == AGENT_STOPPING;
}

/* The first one must be born, and obey; there are no others. */
START_TEST(a_signal_stops_a_job_that_starts)
{
    configure(4, "echo runs; sleep 100");
    make_starts_slow();
    start();
    looptest_run_until(&loop, is_starting, NULL);
    kill(getpid(), SIGTERM);
    looptest_run_until(&loop, is_stopping, NULL);
    open_gate(NULL);
    ends_with(128 + SIGTERM);
    says(1, "ddprun: SIGTERM: stopping 4 workers");
    does_not_say(0, "[1]:");
    close_gate();
}
END_TEST

/* It is killed before it has become a worker. */
START_TEST(an_impatient_user_is_heard_while_a_job_starts)
{
    configure(4, "echo runs; sleep 100");
    make_starts_slow();
    config.shutdown_timeout_ms = 1;
    start();
    looptest_run_until(&loop, is_starting, NULL);
    kill(getpid(), SIGTERM);
    ends_with(128 + SIGTERM);
    does_not_say(0, "runs");
    close_gate();
}
END_TEST

/* The first has ended before the last is born. */
START_TEST(all_succeed_however_slowly_they_start)
{
    uv_timer_t opener;
    configure(3, "echo \"$RANK\"");
    make_starts_slow();
    start();
    uv_timer_init(&loop, &opener);
    uv_timer_start(&opener, open_gate, 100, 0); /* a page has room for many */
    looptest_run_until(&loop, is_done, NULL);
    uv_close((uv_handle_t *)&opener, NULL);
    ends_with(0);
    says(0, "[2]:2\n");
    close_gate();
}
END_TEST

/* ---- what cannot be ended ---------------------------------------------------------------------
 */

static bool may_kill_others(bool on)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) != 0)
        return false;
    if (on)
        data[0].effective |= 1u << CAP_KILL;
    else
        data[0].effective &= ~(1u << CAP_KILL);
    return syscall(SYS_capset, &head, data) == 0;
}

static bool one_stands(void *ctx)
{
    (void)ctx;
    read_console();
    return agent->sm.state == AGENT_RUNNING && strstr(shown[0], "[0]:stands\n") != NULL;
}

static bool is_sweeping(void *ctx)
{
    (void)ctx;
    return agent->sm.state == AGENT_SWEEPING;
}

/* A worker that we may not signal stands for one that is stuck in the kernel. */
START_TEST(a_stuck_process_is_named_and_left)
{
    if (geteuid() != 0 || access("/usr/bin/setpriv", X_OK) != 0) {
        ck_assert_int_eq(uv_loop_close(&loop), 0);
        return; /* only root can make such a worker */
    }
    configure(1, "exec setpriv --reuid=65534 --clear-groups sh -c 'echo stands; exec sleep 100'");
    config.max_restarts = 1;
    config.shutdown_timeout_ms = 1;
    start();
    looptest_run_until(&loop, one_stands, NULL);
    ck_assert(may_kill_others(false));
    kill(getpid(), SIGTERM);
    looptest_run_until(&loop, is_sweeping, NULL);
    agent->sweep_deadline_ms = 0; /* so much for patience */
    looptest_run_until(&loop, is_done, NULL);
    ck_assert_int_eq(done_code, 128 + SIGTERM);
    says(1, "is still there 5 s after SIGKILL, in state ");
    pid_t stuck = agent->workers[0].pid;
    close_agent();
    ck_assert_uint_eq(done_calls, 1);
    ck_assert(may_kill_others(true));
    kill(stuck, SIGKILL);
    ck_assert_int_eq(waitpid(stuck, NULL, 0), stuck);
}
END_TEST

/* ---- output -----------------------------------------------------------------------------------
 */

static bool is_draining(void *ctx)
{
    (void)ctx;
    return agent->sm.state == AGENT_DRAINING;
}

/* The console's queue is full, and so is the worker's pipe: it takes no whole page any more. */
static bool worker_waits(void *ctx)
{
    (void)ctx;
    int fd, unread = 0;
    for (int i = 0; i < 2; i++)
        if (uv_fileno((uv_handle_t *)&agent->workers[0].streams[i].pipe, &fd) == 0 &&
            ioctl(fd, FIONREAD, &unread) == 0 && unread > 0)
            return agent->mux.paused;
    return false;
}

static bool is_flushing(void *ctx)
{
    (void)ctx;
    return agent->sm.state == AGENT_FLUSHING;
}

static bool turns_have_passed(void *ctx)
{
    unsigned *turns = ctx;
    return (*turns)-- == 0;
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

/* The time limit of the present state passes now. */
static void let_time_pass(void)
{
    static uv_idle_t idle; /* keeps a turn of the loop from waiting */
    unsigned turns = 5;
    uv_idle_init(&loop, &idle);
    uv_idle_start(&idle, on_idle);
    uv_timer_start(&agent->timer, agent->timer.timer_cb, 0, 0);
    looptest_run_until(&loop, turns_have_passed, &turns);
    uv_close((uv_handle_t *)&idle, NULL);
}

START_TEST(a_slow_reader_gets_everything_however_late)
{
    configure(1, "exec yes >&2");
    int reader = readers[1], unread = 0, fd = -1;
    readers[1] = -1; /* nobody reads */
    start();
    struct logmux_stream *stream = &agent->workers[0].streams[1];
    looptest_run_until(&loop, worker_waits, NULL);
    ck_assert_int_eq(uv_fileno((uv_handle_t *)&stream->pipe, &fd), 0);
    ck_assert_int_eq(ioctl(fd, FIONREAD, &unread), 0);
    ck_assert_int_gt(unread, 0);
    uint64_t before = stream->tail.total;
    kill(agent->workers[0].pid, SIGKILL);
    looptest_run_until(&loop, is_flushing, NULL);
    ck_assert_uint_ge(stream->tail.total, before + (uint64_t)unread);
    let_time_pass();
    ck_assert_uint_eq(agent->sm.state, AGENT_FLUSHING);
    readers[1] = reader;
    ends_with(128 + SIGKILL);
    says(1, "rank 0 failed first: killed by SIGKILL (Killed)");
}
END_TEST

static bool second_runs(void *ctx)
{
    (void)ctx;
    return agent->attempts == 2;
}

/* The rounds, and so the other nodes of a job of several, do not wait for whoever reads us; and
 * what he reads then is whole and in order. */
START_TEST(nobody_waits_for_a_reader_to_start_again)
{
    configure(1, "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exec echo second; exec yes first");
    config.max_restarts = 1;
    int reader = readers[0];
    readers[0] = -1; /* nobody reads */
    start();
    looptest_run_until(&loop, worker_waits, NULL);
    kill(agent->workers[0].pid, SIGKILL);
    looptest_run_until(&loop, second_runs, NULL);
    ck_assert(!logmux_flushed(&agent->mux));
    looptest_run_until(&loop, is_flushing, NULL);
    readers[0] = reader;
    ends_with(0);
    const char *at = shown[0];
    while (strncmp(at, "[0]:first\n", 10) == 0)
        at += 10;
    at += strncmp(at, "[0]:second", 10) == 0 ? 0 : strcspn(at, "\n") + 1; /* it was cut */
    ck_assert_str_eq(at, "[0]:second\n");
    ck_assert_int_gt(at - shown[0], 1024 * 1024);
}
END_TEST

START_TEST(whoever_holds_a_pipe_does_not_hold_the_job)
{
    configure(1, "echo stands; while read a; do :; done <$FIFO");
    start();
    looptest_run_until(&loop, one_stands, NULL);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)agent->workers[0].pid);
    int held = open(path, O_WRONLY | O_CLOEXEC); /* as somebody outside the job might */
    ck_assert_int_ge(held, 0);
    fds_before++;
    kill(agent->workers[0].pid, SIGKILL);
    looptest_run_until(&loop, is_draining, NULL);
    ck_assert(!logmux_streams_ended(&agent->mux));
    let_time_pass();
    ends_with(128 + SIGKILL);
    close(held);
}
END_TEST

START_TEST(a_signal_ends_the_wait_for_a_reader)
{
    configure(1, "exec yes");
    readers[0] = -1;
    start();
    looptest_run_until(&loop, worker_waits, NULL);
    kill(agent->workers[0].pid, SIGKILL);
    looptest_run_until(&loop, is_flushing, NULL);
    kill(getpid(), SIGTERM);
    ends_with(128 + SIGKILL); /* that of the job, which was over */
}
END_TEST

START_TEST(log_files_are_as_torchruns)
{
    char logs[64];
    snprintf(logs, sizeof logs, "%s/logs", dir);
    configure(2, "printf 'no end'; echo err >&2\n"
                 "case $RANK in\n"
                 "0) echo stands >$FIFO;;\n"
                 "1) read a <$FIFO; exit 1;;\n"
                 "esac");
    log_dir = logs;
    config.max_restarts = 1;
    streams[0].tee = 3;
    streams[1].redirect = 3;
    start();
    char *job = strdup(opened.path);
    ends_with(1);
    says(0, "[0]:no end\n");
    does_not_say(0, "[1]:");
    does_not_say(1, "[1]:");
    says(1, "  | err\n"); /* from the file, as it did not pass through us */
    says(1, "/attempt_1/1/stderr.log\n");
    for (int attempt = 0; attempt < 2; attempt++)
        for (int rank = 0; rank < 2; rank++) {
            char path[128], text[16] = "";
            snprintf(path, sizeof path, "%s/attempt_%d/%d/stdout.log", job, attempt, rank);
            FILE *file = fopen(path, "r");
            ck_assert_msg(file != NULL, "there is no '%s'", path);
            ck_assert_uint_eq(fread(text, 1, sizeof text - 1, file), 6);
            ck_assert_str_eq(text, "no end");
            fclose(file);
        }
    free(job);
}
END_TEST

START_TEST(a_fifo_in_place_of_a_log_holds_nobody)
{
    char logs[64];
    snprintf(logs, sizeof logs, "%s/logs", dir);
    configure(1, "cd ${TORCHELASTIC_ERROR_FILE%/*}; rm stderr.log; mkfifo stderr.log; exit 1");
    log_dir = logs;
    streams[0].redirect = 2;
    run_job(1);
    says(1, "it wrote nothing to stderr");
}
END_TEST

START_TEST(an_error_file_is_quoted)
{
    configure(1, "printf '{\"message\":\"bad weights\"}' >$TORCHELASTIC_ERROR_FILE; exit 1");
    run_job(1);
    says(1, "  the error that it recorded:\n  | bad weights\n");
}
END_TEST

/* ---- memory -----------------------------------------------------------------------------------
 */

static void run_with_allocations(unsigned successes, bool *ret_complete)
{
    done_calls = generations_count = 0;
    shown_len[0] = shown_len[1] = 0;
    struct ddp_error error = {0};
    open_logs();
    failmem_start(successes);
    ddp_status status = init_job(&error);
    if (status == DDP_OK) {
        membership_start(&membership);
        looptest_run_until(&loop, is_done, NULL);
    }
    *ret_complete = !failmem_stop();
    if (status != DDP_OK)
        ck_assert_int_eq(status, DDP_E_NOMEM);
    else
        ck_assert_msg(done_code == 7 || done_code == EXIT_CONFIG, "exit code %d", done_code);
    close_agent();
    ck_assert_uint_eq(done_calls, status == DDP_OK);
    no_process_is_left();
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

START_TEST(memory_may_run_out_at_any_time)
{
    bool complete = false;
    char logs[64];
    snprintf(logs, sizeof logs, "%s/logs", dir);
    configure(2, "echo out; echo err >&2; exit 7");
    log_dir = logs;
    for (int i = 0; i < 2; i++)
        streams[i].tee = 3;
    for (unsigned successes = 0; !complete; successes++) {
        ck_assert_uint_lt(successes, 500);
        run_with_allocations(successes, &complete);
    }
    says(1, "failed first: exit code 7");
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("agent");
    TCase *tcase = tcase_create("agent");
    tcase_set_timeout(tcase, 40);
    tcase_add_checked_fixture(tcase, prepare, clean_up);
    tcase_add_test(tcase, the_table_is_valid);
    tcase_add_test(tcase, all_succeed);
    tcase_add_test(tcase, a_failure_stops_the_others_and_is_the_root);
    tcase_add_test(tcase, who_does_not_stop_in_time_is_killed);
    tcase_add_test(tcase, a_job_is_started_again);
    tcase_add_test(tcase, the_budget_ends);
    tcase_add_test(tcase, a_program_that_is_not_there);
    tcase_add_test(tcase, one_that_cannot_start_ends_those_that_have);
    tcase_add_test(tcase, an_orphan_does_not_outlive_the_job);
    tcase_add_test(tcase, a_signal_stops_the_job);
    tcase_add_test(tcase, one_wish_that_arrives_twice_is_one);
    tcase_add_test(tcase, an_impatient_user_is_heard);
    tcase_add_test(tcase, a_forwarded_signal_reaches_every_worker);
    tcase_add_test(tcase, an_ignored_signal_stays_ignored);
    tcase_add_test(tcase, an_ignored_child_signal_does_no_harm);
    tcase_add_test(tcase, without_its_guard_the_job_ends);
    tcase_add_test(tcase, a_signal_stops_a_job_that_starts);
    tcase_add_test(tcase, an_impatient_user_is_heard_while_a_job_starts);
    tcase_add_test(tcase, all_succeed_however_slowly_they_start);
    tcase_add_test(tcase, a_stuck_process_is_named_and_left);
    tcase_add_test(tcase, a_slow_reader_gets_everything_however_late);
    tcase_add_test(tcase, nobody_waits_for_a_reader_to_start_again);
    tcase_add_test(tcase, whoever_holds_a_pipe_does_not_hold_the_job);
    tcase_add_test(tcase, a_signal_ends_the_wait_for_a_reader);
    tcase_add_test(tcase, log_files_are_as_torchruns);
    tcase_add_test(tcase, a_fifo_in_place_of_a_log_holds_nobody);
    tcase_add_test(tcase, an_error_file_is_quoted);
    tcase_add_test(tcase, memory_may_run_out_at_any_time);
    suite_add_tcase(suite, tcase);
    return suite;
}
