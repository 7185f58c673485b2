/*
 * doctor_checks.c - the checks. A check that cannot tell says so, and is no failure.
 */
#include "doctor_checks.h"

#include "doctor_python.h"
#include "error.h"
#include "mem.h"
#include "processors.h"
#include "text_file.h"
#include "token_file.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { FILES_ENOUGH = 4096, PROCESSES_ENOUGH = 1024, PORT = 29400 };

#define SHARED_ENOUGH (UINT64_C(1) << 30)

/* ---- the kernel and its limits ---- */

static void look_at_kernel(struct doctor_finding *ret)
{
    struct utsname name;
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0),
        memory = memfd_create("doctor", MFD_CLOEXEC);
    uname(&name);
    doctor_found(ret, "%.60s %.60s, %s pidfd_open, %s memfd_create", name.sysname, name.release,
                 pidfd >= 0 ? "with" : "without", memory >= 0 ? "with" : "without");
    if (pidfd < 0)
        doctor_advise(
            ret, DOCTOR_FAIL,
            "ddprun needs pidfd_open: Linux 5.3 or newer, and a seccomp filter that allows it");
    else if (memory < 0)
        doctor_advise(ret, DOCTOR_FAIL,
                      "ranks share memory by memfd_create: allow it in the seccomp filter");
    if (pidfd >= 0)
        close(pidfd);
    if (memory >= 0)
        close(memory);
}

static void write_limit(char *text, size_t size, rlim_t limit)
{
    if (limit == RLIM_INFINITY)
        snprintf(text, size, "unlimited");
    else
        snprintf(text, size, "%" PRIu64, (uint64_t)limit);
}

static void look_at_limit(struct doctor_finding *ret, int which, const char *option, rlim_t enough)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    char soft[32], hard[32];
    getrlimit((__rlimit_resource_t)which, &limit);
    write_limit(soft, sizeof soft, limit.rlim_cur);
    write_limit(hard, sizeof hard, limit.rlim_max);
    doctor_found(ret, "%s (hard limit %s)", soft, hard);
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < enough)
        doctor_advise(ret, DOCTOR_WARN,
                      "raise the hard limit to %" PRIu64 " or more ('ulimit -H%s', limits.conf)",
                      (uint64_t)enough, option);
}

/* ddprun raises the soft limit by itself. */
static void look_at_files(struct doctor_finding *ret)
{
    look_at_limit(ret, RLIMIT_NOFILE, "n", FILES_ENOUGH);
}

static void look_at_processes(struct doctor_finding *ret)
{
    look_at_limit(ret, RLIMIT_NPROC, "u", PROCESSES_ENOUGH);
}

static void look_at_processors(struct doctor_finding *ret)
{
    uint32_t usable = ddpi_processors_usable(), allowed = ddpi_processors();
    doctor_found(ret, "%u usable, %u by the quota of the control group", usable, allowed);
    if (allowed < usable)
        doctor_advise(
            ret, DOCTOR_WARN,
            "more threads than %u take turns: give the container more processors, or start that "
            "many workers",
            allowed);
}

/* ---- memory and control groups ---- */

static void look_at_shared_memory(struct doctor_finding *ret)
{
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) != 0) {
        doctor_found(ret, "/dev/shm: %s", strerror(errno));
        doctor_advise(ret, DOCTOR_WARN, "PyTorch's data loaders share memory there: mount a tmpfs");
        return;
    }
    uint64_t bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
    doctor_found(ret, "/dev/shm has %" PRIu64 " MiB, %" PRIu64 " MiB free", bytes >> 20,
                 ((uint64_t)shm.f_bavail * shm.f_frsize) >> 20);
    if (bytes < SHARED_ENOUGH)
        doctor_advise(
            ret, DOCTOR_WARN,
            "PyTorch's data loaders share memory there: enlarge it (containers: --shm-size, or "
            "a volume of memory)");
}

static void look_at_control_groups(struct doctor_finding *ret)
{
    char text[4096], path[4608];
    bool v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
    char *group = v2 && ddpi_text_file_read("/proc/self/cgroup", text, sizeof text)
                      ? strstr(text, "0::")
                      : NULL;
    if (group == NULL) {
        doctor_found(ret, "no control groups of version 2");
        doctor_advise(ret, DOCTOR_WARN,
                      "workers are found by their parents instead, which takes longer; boot with "
                      "systemd.unified_cgroup_hierarchy=1");
        return;
    }
    group[strcspn(group, "\n")] = '\0';
    snprintf(path, sizeof path, "/sys/fs/cgroup%s", group + 3);
    doctor_found(ret, "version 2, %s%s", path,
                 access(path, W_OK) == 0 ? ", which this user may change" : "");
}

/* ---- the network ---- */

static bool is_loopback_address(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               IN_LOOPBACKNET;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static void look_at_name(struct doctor_finding *ret)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *infos = NULL;
    char name[256] = "", text[INET6_ADDRSTRLEN] = "";
    gethostname(name, sizeof name - 1);
    int why = getaddrinfo(name, NULL, &hints, &infos);
    if (why != 0) {
        doctor_found(ret, "'%s' has no address: %s", name, gai_strerror(why));
        doctor_advise(
            ret, DOCTOR_WARN,
            "other nodes cannot use this name: add it to the name server or to /etc/hosts, or "
            "give addresses");
        return;
    }
    getnameinfo(infos->ai_addr, infos->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    doctor_found(ret, "'%s' is %s", name, text);
    if (is_loopback_address(infos->ai_addr))
        doctor_advise(
            ret, DOCTOR_WARN,
            "that address is of this machine alone: ddprun listens on all addresses if this "
            "name is the endpoint of several nodes, but other programs may not; change the line "
            "in /etc/hosts, or give --local-addr an address");
    freeaddrinfo(infos);
}

static void look_at_interfaces(struct doctor_finding *ret)
{
    struct ifaddrs *interfaces;
    size_t used = 0;
    if (getifaddrs(&interfaces) != 0) {
        doctor_found(ret, "%s", strerror(errno));
        return;
    }
    for (const struct ifaddrs *at = interfaces; at != NULL && used < sizeof ret->value;
         at = at->ifa_next) {
        char text[INET6_ADDRSTRLEN];
        const struct sockaddr *address = at->ifa_addr;
        if (address == NULL || (at->ifa_flags & IFF_UP) == 0 ||
            (address->sa_family != AF_INET && address->sa_family != AF_INET6) ||
            is_loopback_address(address))
            continue;
        socklen_t len = address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                      : sizeof(struct sockaddr_in6);
        if (getnameinfo(address, len, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
            used += (size_t)snprintf(ret->value + used, sizeof ret->value - used, "%s%s %s",
                                     used > 0 ? ", " : "", at->ifa_name, text);
    }
    freeifaddrs(interfaces);
    if (used == 0) {
        doctor_found(ret, "none but loopback");
        doctor_advise(ret, DOCTOR_WARN, "only jobs of this machine alone can run");
    }
}

static void look_at_port(struct doctor_finding *ret)
{
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    const int on = 1;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                   bind(fd, (const struct sockaddr *)&any, sizeof any) == 0 && listen(fd, 1) == 0;
    int why = errno;
    doctor_found(ret, "%d is %s", PORT,
                 is_free             ? "free"
                 : why == EADDRINUSE ? "in use"
                                     : strerror(why));
    if (!is_free && why == EADDRINUSE)
        doctor_advise(
            ret, DOCTOR_WARN,
            "a job whose nodes meet here joins the store that listens there, or needs another "
            "port: --rdzv-endpoint=HOST:PORT");
    if (fd >= 0)
        close(fd);
}

/* ---- secrets and programs ---- */

static void look_at_token(struct doctor_finding *ret)
{
    const char *named = getenv("DDPRUN_TOKEN_FILE");
    struct ddpi_credential token;
    struct ddp_error err;
    char *path = NULL;
    ddp_status status = DDP_OK;
    if (named == NULL)
        status = ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &path, &err);
    if (status == DDP_OK)
        status = ddpi_token_read(named != NULL ? named : path, &token, &err);
    if (status == DDP_OK) {
        doctor_found(ret, "%.400s", named != NULL ? named : path);
    } else if (status == DDP_E_NOT_FOUND && named == NULL) {
        doctor_found(ret, "none yet; the first job beyond this machine makes one");
    } else {
        doctor_found(ret, "cannot be used");
        doctor_advise(ret, DOCTOR_FAIL, "%.500s", err.msg);
    }
    ddpi_wipe(&token, sizeof token);
    ddpi_free(path);
}

static bool loads(const char *library)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    if (handle != NULL)
        dlclose(handle);
    return handle != NULL;
}

static void look_at_tls(struct doctor_finding *ret)
{
    bool there = loads("libssl.so.3");
    doctor_found(ret, "libssl.so.3 %s", there ? "loads" : "does not load");
    if (!there)
        doctor_advise(ret, DOCTOR_WARN, "--tls needs it: install OpenSSL 3");
}

static void look_at_gpus(struct doctor_finding *ret)
{
    char version[256] = "";
    bool driver = ddpi_text_file_read("/proc/driver/nvidia/version", version, sizeof version);
    bool device = access("/dev/nvidiactl", R_OK | W_OK) == 0;
    bool cuda = loads("libcuda.so.1"), nvml = loads("libnvidia-ml.so.1");
    version[strcspn(version, "\n")] = '\0';
    if (!driver && !device && !cuda) {
        doctor_found(ret, "no NVIDIA driver");
        return;
    }
    doctor_found(ret, "%.200s; libcuda.so.1 %s, libnvidia-ml.so.1 %s",
                 driver ? version : "no driver in the kernel", cuda ? "loads" : "does not load",
                 nvml ? "loads" : "does not load");
    if (!driver)
        doctor_advise(
            ret, DOCTOR_FAIL,
            "the driver's libraries are there, but not its module: load it, or remove them");
    else if (!device)
        doctor_advise(
            ret, DOCTOR_FAIL,
            "this user may not open /dev/nvidiactl: start the container with GPUs, or change "
            "its mode");
    else if (!cuda)
        doctor_advise(ret, DOCTOR_FAIL, "install the driver's library of the same version");
    else if (!nvml)
        doctor_advise(
            ret, DOCTOR_WARN,
            "reports cannot name faults of GPUs: install libnvidia-ml.so.1 of the driver's "
            "version");
}

static bool in_path(const char *name)
{
    const char *path = getenv("PATH");
    char file[4096];
    for (const char *at = path; at != NULL && *at != '\0';
         at += strcspn(at, ":"), at += *at == ':') {
        snprintf(file, sizeof file, "%.*s/%s", (int)strcspn(at, ":"), at, name);
        if (access(file, X_OK) == 0)
            return true;
    }
    return false;
}

static void look_at_ssh(struct doctor_finding *ret)
{
    doctor_found(ret, "ssh is %s PATH", in_path("ssh") ? "in" : "not in");
    if (!in_path("ssh"))
        doctor_advise(ret, DOCTOR_WARN,
                      "--hosts needs it, or another --launcher: install openssh-client");
}

const struct doctor_check doctor_checks[] = {
    {"kernel", look_at_kernel},
    {"open files", look_at_files},
    {"processes", look_at_processes},
    {"processors", look_at_processors},
    {"shared memory", look_at_shared_memory},
    {"control groups", look_at_control_groups},
    {"host name", look_at_name},
    {"addresses", look_at_interfaces},
    {"port", look_at_port},
    {"token", look_at_token},
    {"TLS", look_at_tls},
    {"GPUs", look_at_gpus},
    {"Python", doctor_look_at_python},
    {"remote shell", look_at_ssh},
    {NULL, NULL},
};
