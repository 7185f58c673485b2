/*
 * agent_job.h - a job of one node for the tests of the agent: real workers (shell scripts) on a
 * loop, with the output captured. Every test that starts it ends with agent_job_ends_with(), which
 * checks that no process, handle or descriptor is left.
 */
#ifndef TESTS_AGENT_JOB_H
#define TESTS_AGENT_JOB_H

#include "logdir.h"
#include "membership.h"
#include "single_node.h"

enum { AGENT_JOB_WORKERS = 4, AGENT_JOB_SHOWN = 8 * 1024 * 1024, AGENT_JOB_GENERATIONS = 8 };

extern struct agent_job {
    uv_loop_t loop;
    struct membership membership;
    struct agent *agent; /* that of @membership */
    struct single_node local;
    struct agent_config config;
    struct agent_streams streams[AGENT_JOB_WORKERS];
    const char *envp[8];
    const char *log_dir; /* --log-dir; NULL: none */
    struct logdir opened;
    char dir[32];
    int readers[2]; /* of the agent's stdout and stderr; -1: the test does not read */
    char shown[2][AGENT_JOB_SHOWN];
    size_t shown_len[2];
    unsigned done_calls;
    int done_code;
    uint64_t generations[AGENT_JOB_GENERATIONS];
    unsigned generations_count;
    int fds_before;
} job;

/* Fixture of a test case. clean_up() checks that no temporary file is left. */
void agent_job_prepare(void);
void agent_job_clean_up(void);

/* A job of @nproc workers that run @script; the test may change job.config before it starts.
 * Scripts signal the test and each other through "$FIFO". "sleep & wait" lets a shell run its trap
 * at once. */
void agent_job_configure(uint32_t nproc, const char *script);

/* Start it; run it until it is done; both. It ends with @exit_code. */
void agent_job_start(void);
void agent_job_ends_with(int exit_code);
void agent_job_run(int exit_code);

/* Kill worker 0, which must be there: 0 would be this process and its siblings. */
void agent_job_kill_worker(void);

/* The parts of these, for a test that needs them one by one. */
void agent_job_open_logs(void);
ddp_status agent_job_init(struct ddp_error *err);
void agent_job_read_console(void);
bool agent_job_is_done(void *ctx); /* for looptest_run_until() */
void agent_job_close(void);
void agent_job_left_no_process(void);

/* Stream @i (0 stdout, 1 stderr) of the agent has @text in it, or has not. */
void agent_job_says(int i, const char *text);
void agent_job_does_not_say(int i, const char *text);

#endif
