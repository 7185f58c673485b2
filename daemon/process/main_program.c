/*
 * main_program.c - see main_program.h. Owns nothing, keeps no state: it asks /proc each time. What
 * the kernel does not show counts as "no", so that the leader is the main program.
 */
#include "main_program.h"

#include "parse.h"
#include "reap.h"
#include "text_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

enum { LAYERS_MAX = 16, STATUS_MAX = 4096 };

static bool read_of(pid_t pid, const char *name, char *text, size_t size)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return ddpi_text_file_read(path, text, size);
}

/* A line of @status is @label and a mask of 16 digits, of which the last one has signals 1 to 4. */
static bool has_signal(const char *status, const char *label, int sig)
{
    static const char digits[] = "0123456789abcdef";
    const char *mask = strstr(status, label);
    if (mask == NULL || strlen(mask) < strlen(label) + 16)
        return true;
    const char *digit = strchr(digits, mask[strlen(label) + 15 - (size_t)(sig - 1) / 4]);
    return digit == NULL || ((digit - digits) >> (sig - 1) % 4 & 1) != 0;
}

/* @sig ends it: it neither catches nor ignores it. */
static bool would_end(pid_t pid, int sig)
{
    char status[STATUS_MAX];
    return read_of(pid, "status", status, sizeof status) &&
           !has_signal(status, "\nSigCgt:\t", sig) && !has_signal(status, "\nSigIgn:\t", sig);
}

/* Its first thread sleeps until a child ends. zsh waits for the signal that says so. */
static bool waits_for_child(pid_t pid)
{
    static const int64_t waiting[] = {SYS_wait4, SYS_waitid, SYS_rt_sigsuspend};
    char text[256];
    int64_t number;
    if (!read_of(pid, "syscall", text, sizeof text))
        return false;
    text[strcspn(text, " \n")] = '\0';
    if (ddpi_parse_int(text, 0, INT32_MAX, &number, NULL) != DDP_OK)
        return false; /* "running" */
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
        if (number == waiting[i])
            return true;
    return false;
}

pid_t main_program_of(pid_t leader, int sig)
{
    pid_t pid = leader, child;
    for (int layer = 0; layer < LAYERS_MAX; layer++) {
        if (!would_end(pid, sig) || !waits_for_child(pid) || !reap_only_child_of(pid, &child))
            return pid;
        pid = child;
    }
    return pid;
}
