/*
 * doctor_python.c - asks the Python that would run a script which PyTorch it has, and compares that
 * with the driver. It reads files of PyTorch instead of importing it, which takes seconds.
 */
#include "doctor_python.h"

#include "clock.h"
#include "mem.h"
#include "parse.h"
#include "python_program.h"
#include "text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ANSWER_MS = 30 * 1000 }; /* PyTorch may be on a disk of others */

/* Prints a line, after the end of what a site may have printed. The current folder is no place for
 * modules of a script that ddprun starts. */
static const char question[] =
    "import sys\n"
    "sys.path = [folder for folder in sys.path if folder]\n"
    "import importlib.metadata as have, importlib.util, json, os, platform, runpy\n"
    "def of(package):\n"
    "    try:\n"
    "        return str(have.version(package))\n"
    "    except have.PackageNotFoundError:\n"
    "        return 'none'\n"
    "torch, cuda, nccl = 'none', 'none', 'none'\n"
    "found = importlib.util.find_spec('torch')\n"
    "if found and found.origin:\n"
    "    try:\n"
    "        facts = runpy.run_path(os.path.join(os.path.dirname(found.origin), 'version.py'))\n"
    "        torch, cuda = str(facts['__version__']), str(facts.get('cuda') or 'none')\n"
    "    except Exception:\n"
    "        torch = 'of unknown version'\n"
    "    nccl = of('nvidia-nccl-cu' + cuda.split('.')[0])\n"
    "print()\n"
    "print(json.dumps([platform.python_version(), torch, cuda, nccl, of('ddprun')]))\n";

/* ---- asking ---- */

static pid_t start(const char *python, int output)
{
    const char *const words[] = {python, "-c", question, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawnp(&pid, python, &actions, &attributes, (char *const *)(uintptr_t)words,
                             environ); /* which writes nothing */
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error == 0 ? pid : -1;
}

/* What arrives until @fd ends, or the time does. */
static void read_answer(int fd, char *text, size_t size)
{
    uint64_t end_ms = ddpi_monotonic_ms() + ANSWER_MS;
    size_t len = 0;
    ssize_t got = 1;
    while (got > 0 && len + 1 < size) {
        uint64_t now_ms = ddpi_monotonic_ms();
        struct pollfd at = {.fd = fd, .events = POLLIN};
        int ready = now_ms < end_ms ? poll(&at, 1, (int)(end_ms - now_ms)) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        got = read(fd, text + len, size - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    text[len] = '\0';
}

/* False: there is no such interpreter, or it has said nothing. */
static bool ask(const char *python, char *text, size_t size)
{
    int ends[2];
    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t pid = start(python, ends[1]);
    close(ends[1]);
    if (pid > 0) {
        read_answer(ends[0], text, size);
        kill(-pid, SIGKILL); /* what has not ended never would */
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    return text[0] != '\0';
}

/* ---- the driver ---- */

/* The first driver that serves a release of CUDA, as the release notes of CUDA 11 to 13 have it. */
static unsigned driver_for(unsigned cuda)
{
    static const struct {
        unsigned cuda, driver;
    } table[] = {{13, 580}, {12, 525}, {11, 450}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (cuda >= table[i].cuda)
            return table[i].driver;
    return 0;
}

/* The number before the first point; 0: there is none. */
static unsigned first_number(const char *text)
{
    char digits[8];
    int64_t value;
    snprintf(digits, sizeof digits, "%.*s", (int)strspn(text, "0123456789"), text);
    return ddpi_parse_int(digits, 1, 99999, &value, NULL) == DDP_OK ? (unsigned)value : 0;
}

/* The version is the first word with a point: "... x86_64 Kernel Module  550.54.15  ..." and "...
 * Open Kernel Module for x86_64  580.65.06  ...". */
unsigned doctor_driver_of(const char *text)
{
    for (const char *word = text + strspn(text, " "); *word != '\0';) {
        size_t len = strcspn(word, " \n");
        if (memchr(word, '.', len) != NULL && first_number(word) != 0)
            return first_number(word);
        word += len;
        word += strspn(word, " \n");
    }
    return 0;
}

/* 0: there is no driver, or none that this process may use, which the check of GPUs tells. */
static unsigned driver_here(void)
{
    char text[256];
    bool usable = access("/dev/nvidiactl", R_OK | W_OK) == 0 &&
                  ddpi_text_file_read("/proc/driver/nvidia/version", text, sizeof text);
    return usable ? doctor_driver_of(text) : 0;
}

void doctor_compare_driver(struct doctor_finding *ret, const char *cuda, unsigned driver)
{
    unsigned needed = driver_for(first_number(cuda));
    if (driver != 0 && strcmp(cuda, "none") == 0)
        doctor_advise(ret, DOCTOR_WARN,
                      "this PyTorch cannot use the GPUs: install one that is built for CUDA");
    else if (driver != 0 && driver < needed)
        doctor_advise(ret, DOCTOR_WARN,
                      "PyTorch for CUDA %.16s needs driver %u or newer, and %u is here: renew the "
                      "driver, install a PyTorch for an older CUDA, or NVIDIA's cuda-compat",
                      cuda, needed, driver);
}

void doctor_look_at_python(struct doctor_finding *ret)
{
    char text[512];
    const char *named = getenv("PYTHON_EXEC"), *python, *torch, *cuda, *nccl, *package;
    bool given = named != NULL && *named != '\0';
    char *own = given ? NULL : python_program_of_environment();
    const char *name = given ? named : own != NULL ? own : "python3";
    const char *line = ask(name, text, sizeof text) ? strstr(text, "\n[") : NULL;
    json_t *answer = line != NULL ? json_loads(line, 0, NULL) : NULL;
    if (answer != NULL &&
        json_unpack(answer, "[s, s, s, s, s]", &python, &torch, &cuda, &nccl, &package) == 0) {
        bool has_torch = strcmp(torch, "none") != 0;
        doctor_found(ret, "%.200s: %s, package ddprun %s, PyTorch %s%s%s%s%s", name, python,
                     package, torch, has_torch ? ", its CUDA " : "", has_torch ? cuda : "",
                     has_torch ? ", package of NCCL " : "", has_torch ? nccl : "");
        if (has_torch)
            doctor_compare_driver(ret, cuda, driver_here());
    } else {
        doctor_found(ret, "%.300s does not answer, or is older than 3.9", name);
        doctor_advise(ret, DOCTOR_WARN,
                      "only scripts of Python need it: install it, activate an environment, or set "
                      "PYTHON_EXEC");
    }
    json_decref(answer);
    ddpi_free(own);
}
