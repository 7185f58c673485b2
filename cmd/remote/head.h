/*
 * head.h - the process of a job that is started on many hosts from one: it has the store of the
 * job, starts an agent on each host, shows what they write, passes signals on, and ends them all
 * when the job is over. It runs no worker.
 *
 * The agents are those of any job of several nodes, and the rounds in the store decide what the
 * loss of one means, when the job is over, and with which exit code. The head ends the job when a
 * host of a fixed list cannot be started, or when too few hosts are left.
 */
#ifndef CMD_HEAD_H
#define CMD_HEAD_H

#include "blacklist.h"
#include "guard.h"
#include "host_list.h"
#include "proof.h"
#include "server.h"
#include "voice.h"

#include <signal.h>
#include <sys/resource.h>

/* The command of a host's agent; see head_command.h. */
struct head_command;

struct head_config {
    const struct host_list *hosts; /* at the start */
    const char *discovery; /* program that lists them from time to time; NULL: they are fixed */
    const struct head_command *command;
    const struct ddpi_buf *greeting; /* for each leash, without "go" */
    char *const *envp;
    struct rlimit nofile; /* of open files, for what it starts */
    const char *store_host;
    const struct ddpi_credential *token; /* NULL: none */
    enum ddpi_server_auth auth;
    bool trust_local_users, tls;
    const char *job;
    uint32_t min_nodes, max_nodes;
    uint64_t start_timeout_ms;    /* for a host to answer */
    uint64_t shutdown_timeout_ms; /* for workers to stop */
    uint64_t join_timeout_ms;     /* for a host to be discovered */
    struct blacklist_range cooldown;
    sigset_t ending_signals, forwarded_signals;
    enum voice voice;
};

/* Run the job. Returns its exit code. */
int head_run(const struct head_config *config, const struct guard_agent *split);

#endif
