/*
 * job_here.c - finds the store of the jobs that run on this machine, for verbs that only look: the
 * workers of this user have its address in their environment. Owns nothing.
 */
#include "ddpctl_job.h"
#include "error.h"
#include "mem.h"
#include "text_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENVIRON_MAX = 1 << 20, STORES_MAX = 8 };

struct stores {
    char endpoints[STORES_MAX][DDPCTL_ENDPOINT_MAX];
    size_t count;
};

static void note_store(struct stores *stores, const char *endpoint)
{
    if (*endpoint == '\0' || strlen(endpoint) >= DDPCTL_ENDPOINT_MAX)
        return;
    for (size_t i = 0; i < stores->count; i++)
        if (strcmp(stores->endpoints[i], endpoint) == 0)
            return;
    if (stores->count < STORES_MAX)
        snprintf(stores->endpoints[stores->count++], DDPCTL_ENDPOINT_MAX, "%s", endpoint);
}

/* The environment of a process that belongs to another user, or has ended, cannot be read. */
static void look_at_process(struct stores *stores, const char *pid, char *text)
{
    static const char name[] = "DDPRUN_STORE=";
    char path[64];
    size_t len;
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    if (ddpi_text_file_load(path, text, ENVIRON_MAX, &len, NULL) != DDP_OK)
        return;
    for (const char *at = text; at < text + len; at += strlen(at) + 1)
        if (strncmp(at, name, sizeof name - 1) == 0)
            note_store(stores, at + sizeof name - 1);
}

/* root can read the environments of others, and must not follow them to their stores. */
static bool is_own_process(int processes, const char *name)
{
    struct stat status;
    return name[0] >= '1' && name[0] <= '9' && fstatat(processes, name, &status, 0) == 0 &&
           status.st_uid == geteuid();
}

static ddp_status look_at_all(struct stores *stores, struct ddp_error *err)
{
    char *text = ddpi_calloc(1, ENVIRON_MAX);
    DIR *processes = text != NULL ? opendir("/proc") : NULL;
    if (processes == NULL) {
        ddpi_free(text);
        return ddpi_error_set(err, DDP_E_SYSTEM, "cannot look at the processes in /proc");
    }
    for (const struct dirent *entry; (entry = readdir(processes)) != NULL;)
        if (is_own_process(dirfd(processes), entry->d_name))
            look_at_process(stores, entry->d_name, text);
    closedir(processes);
    ddpi_free(text);
    return DDP_OK;
}

static ddp_status several(const struct stores *stores, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_INVALID,
                          "jobs with several stores run here: give --endpoint=%s, or %s",
                          stores->endpoints[0], stores->endpoints[1]);
}

ddp_status ddpctl_job_here(char ret_endpoint[DDPCTL_ENDPOINT_MAX], struct ddp_error *err)
{
    struct stores *stores = ddpi_calloc(1, sizeof *stores);
    if (stores == NULL)
        return ddpi_error_nomem(err, sizeof *stores);
    ddp_status status = look_at_all(stores, err);
    if (status == DDP_OK && stores->count == 0)
        status = ddpi_error_set(err, DDP_E_INVALID,
                                "no worker of yours runs on this machine: give the store's address "
                                "with --endpoint=HOST:PORT or in DDPRUN_STORE");
    else if (status == DDP_OK && stores->count > 1)
        status = several(stores, err);
    if (status == DDP_OK)
        snprintf(ret_endpoint, DDPCTL_ENDPOINT_MAX, "%s", stores->endpoints[0]);
    ddpi_free(stores);
    return status;
}
