/*
 * gpu_count.c - counts GPUs in a child process. Owns that process while it runs.
 */
#include "gpu_count.h"

#include "clock.h"
#include "error.h"
#include "nvml_library.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Written by the child in one piece. */
struct answer {
    ddp_status status;
    uint32_t count;
    char why[512];
};

_Static_assert(sizeof(struct answer) <= 4096, "a pipe takes this much at once");

static ddp_status ask_nvml(const char *visible, uint32_t *ret_count, struct ddp_error *err)
{
    struct nvml_library nvml;
    struct gpu gpus[GPUS_MAX];
    nvml_library_device devices[GPUS_MAX];
    uint32_t places[GPUS_MAX], present;
    ddp_status status = nvml_library_open(&nvml, err);
    if (status == DDP_OK)
        status = nvml_library_list(&nvml, gpus, devices, &present, err);
    if (status != DDP_OK)
        return status;
    *ret_count = gpu_visible(gpus, present, visible, places);
    if (*ret_count == 0 && present > 0)
        ddpi_error_set(err, DDP_E_NOT_FOUND,
                       "none of the %" PRIu32
                       " GPUs can be used with CUDA_VISIBLE_DEVICES='%.200s'",
                       present, visible != NULL ? visible : "");
    else if (*ret_count == 0)
        ddpi_error_set(err, DDP_E_NOT_FOUND, "NVML lists no GPU");
    return DDP_OK;
}

_Noreturn static void child_main(int fd, pid_t parent, const char *visible)
{
    struct answer answer = {0};
    struct ddp_error err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    answer.status = ask_nvml(visible, &answer.count, &err);
    snprintf(answer.why, sizeof answer.why, "%.*s", (int)sizeof answer.why - 1, err.msg);
    _exit(write(fd, &answer, sizeof answer) == sizeof answer ? 0 : 1);
}

/* false: the child has ended without an answer, or the time is over. */
static bool await_count(int fd, uint64_t deadline_ms, struct answer *ret)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&poll_fd, 1, ddpi_remaining_ms(ddpi_monotonic_ms(), deadline_ms));
    while (ready < 0 && errno == EINTR);
    return ready == 1 && read(fd, ret, sizeof *ret) == sizeof *ret;
}

static ddp_status say_silent(int wait_status, bool late, uint64_t timeout_ms, struct ddp_error *err)
{
    bool crashed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) != SIGKILL;
    if (crashed)
        ddpi_error_set(err, DDP_E_SYSTEM,
                       "the process that asks NVML for the GPUs was killed by signal %d",
                       WTERMSIG(wait_status));
    else if (!late)
        ddpi_error_set(err, DDP_E_SYSTEM,
                       "the process that asks NVML for the GPUs has ended without an answer");
    else
        ddpi_error_set(err, DDP_E_SYSTEM, "NVML has not answered for %.1f s",
                       (double)timeout_ms / 1e3);
    return ddpi_error_advise(err, DDP_E_SYSTEM,
                             "check that 'nvidia-smi' works here, or give the number of workers");
}

/* A child that is stuck in the kernel cannot be waited for; it ends later. */
static int end_child(pid_t pid)
{
    enum { PATIENCE_MS = 100 };
    int wait_status = 0;
    uint64_t deadline_ms = ddpi_deadline(ddpi_monotonic_ms(), PATIENCE_MS);
    kill(pid, SIGKILL);
    while (waitpid(pid, &wait_status, WNOHANG) == 0 && ddpi_monotonic_ms() < deadline_ms)
        poll(NULL, 0, 1);
    return wait_status;
}

ddp_status gpu_count(const char *visible, uint64_t timeout_ms, uint32_t *ret_count,
                     struct ddp_error *err)
{
    struct answer answer;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ddpi_error_sys(err, errno, "cannot start the process that counts GPUs");
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        child_main(ends[1], parent, visible);
    int fork_errno = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return ddpi_error_sys(err, fork_errno, "cannot start the process that counts GPUs");
    }
    uint64_t deadline_ms = ddpi_deadline(ddpi_monotonic_ms(), timeout_ms);
    bool answered = await_count(ends[0], deadline_ms, &answer);
    bool late = ddpi_monotonic_ms() >= deadline_ms;
    int wait_status = end_child(pid);
    close(ends[0]);
    if (!answered)
        return say_silent(wait_status, late, timeout_ms, err);
    if (answer.status != DDP_OK && answer.status != DDP_E_NOT_FOUND)
        return ddpi_error_set(err, answer.status, "%s", answer.why);
    if (answer.count == 0)
        ddpi_error_set(err, DDP_E_NOT_FOUND, "%s", answer.why);
    *ret_count = answer.count;
    return DDP_OK;
}
