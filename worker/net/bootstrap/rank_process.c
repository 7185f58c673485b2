/*
 * rank_process.c - one process of ddp_spawn(), as its parent sees it. Owns its pidfd.
 */
#include "rank_process.h"

#include "error.h"
#include "sockets.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

ddp_status ddpi_rank_start(struct ddpi_rank_process *processes, const struct ddpi_rank_task *task,
                           uint32_t rank, struct ddp_error *err)
{
    struct ddpi_rank_process *process = &processes[rank];
    pid_t parent = getpid();
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pid_t pid = fork();
    if (pid == 0) {
        for (uint32_t earlier = 0; earlier < rank; earlier++)
            ddpi_rank_leave(&processes[earlier]);
        ddpi_rank_be(task, rank, parent, &mask);
    }
    int failure = errno;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (pid < 0)
        return ddpi_error_sys(err, failure, "start a process for rank %u of %u", rank,
                              task->nprocs);
    process->pid = pid;
    process->end = (struct ddpi_rank_end){.rank = rank, .pid = pid};
    process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process->pidfd >= 0)
        return DDP_OK;
    ddp_status status = ddpi_error_sys(err, errno, "watch the process of rank %u", rank);
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return ddpi_error_advise_descriptors(err, status);
}

void ddpi_rank_signal(struct ddpi_rank_process *process, int signal)
{
    if (!ddpi_rank_runs(process))
        return;
    process->end.asked = true;
    process->end.killed |= signal == SIGKILL;
    (void)syscall(SYS_pidfd_send_signal, process->pidfd, signal, NULL, 0);
}

void ddpi_rank_leave(struct ddpi_rank_process *process)
{
    ddpi_close_fd(&process->pidfd);
}

static void take_words(struct ddpi_rank_end *end, const struct ddpi_rank_words *words)
{
    end->said = atomic_load(&words->said);
    if (end->said)
        end->status = words->status;
}

bool ddpi_rank_reap(struct ddpi_rank_process *process, const struct ddpi_rank_words *words,
                    uint32_t turn)
{
    siginfo_t info = {0};
    struct ddpi_rank_end *end = &process->end;
    if (!ddpi_rank_runs(process))
        return false;
    int result = waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG);
    if (result == 0 && info.si_pid == 0)
        return false;
    end->known = result == 0;
    end->exit_code = end->known && info.si_code == CLD_EXITED ? info.si_status : -1;
    end->signal = end->known && info.si_code != CLD_EXITED ? info.si_status : 0;
    end->turn = turn;
    take_words(end, words);
    ddpi_rank_leave(process);
    return true;
}
