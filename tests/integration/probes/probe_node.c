/*
 * probe_node.c - a worker that leaves a record of when it ran, by which a test can see afterwards
 * that no two of one rank, and none of two generations, did so at the same time:
 *
 *     probe_node DIR [MODE]
 *
 * It keeps one line in DIR/GENERATION-RANK-PID, "generation rank world node master pid start
 * alive": from when it ran until when at least, in nanoseconds of CLOCK_MONOTONIC. It ends well
 * when there is DIR/end, and with code 7 when there is DIR/fail-GENERATION-RANK. MODE:
 *
 *     crash     rank 0 exits with code 3 at once
 *     broken    the same, with the words of a program of Python that lacks a module
 *     fork      leaves two children behind, one of them in a session of its own
 *     deaf      ignores SIGTERM
 *     headless  its first thread ends, and another one goes on: the kernel shows it as a zombie
 *     talk      prints lines, "generation number xx...x", as fast as they are taken, but for a
 *               short sleep now and then; each write is whole or is not
 *
 * probe_node_comm is the same program with a communicator of libddpcomm, of itself alone.
 */
#ifdef WITH_LIBDDPCOMM
#include <ddprun/comm.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TICK_NS = 1000000, PATH_SIZE = 512, LINE_SIZE = 64, LINES = 4096 / LINE_SIZE };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    if (value != NULL)
        return value;
    fprintf(stderr, "probe_node: %s is not set\n", name);
    exit(2);
}

/* N of ".../gN/". */
static unsigned long generation(void)
{
    const char *prefix = variable("DDPRUN_STORE_PREFIX"), *at = prefix + strlen(prefix);
    while (at > prefix && at[-1] != 'g')
        at--;
    return strtoul(at, NULL, 10);
}

struct record {
    int fd;
    unsigned long generation;
    const char *rank;
    uint64_t start_ns;
};

/* Lines have one length, so that each write replaces the one before. */
static void write_line(const struct record *record)
{
    char line[256];
    int len =
        snprintf(line, sizeof line, "%08lu %6s %6s %16s %60s:%5s %08d %020llu %020llu\n",
                 record->generation, record->rank, variable("WORLD_SIZE"), variable("PROBE_NODE"),
                 variable("MASTER_ADDR"), variable("MASTER_PORT"), (int)getpid(),
                 (unsigned long long)record->start_ns, (unsigned long long)now_ns());
    if (pwrite(record->fd, line, (size_t)len, 0) != len)
        exit(4);
}

static void begin(struct record *record, const char *dir)
{
    char path[PATH_SIZE];
    *record = (struct record){.start_ns = now_ns(), .generation = generation()};
    record->rank = variable("RANK");
    snprintf(path, sizeof path, "%s/%lu-%s-%d", dir, record->generation, record->rank,
             (int)getpid());
    record->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (record->fd < 0) {
        fprintf(stderr, "probe_node: cannot make %s: %s\n", path, strerror(errno));
        exit(4);
    }
    write_line(record);
}

static void leave_children(void)
{
    for (int i = 0; i < 2; i++) {
        if (fork() != 0)
            continue;
        signal(SIGTERM, SIG_IGN);
        if (i == 1)
            setsid();
        for (;;)
            pause();
    }
}

static void talk(const struct record *record, unsigned *number)
{
    char text[LINES * LINE_SIZE];
    memset(text, 'x', sizeof text);
    for (char *line = text; line < text + sizeof text; line += LINE_SIZE) {
        int len = snprintf(line, LINE_SIZE, "%lu %u ", record->generation, (*number)++);
        line[len] = 'x';
        line[LINE_SIZE - 1] = '\n';
    }
    if (write(STDOUT_FILENO, text, sizeof text) != sizeof text)
        exit(4);
}

struct life {
    const char *dir, *mode;
    struct record record;
};

static void *live(void *arg)
{
    struct life *life = arg;
    const struct record *record = &life->record;
    char end[PATH_SIZE], fail[PATH_SIZE];
    unsigned lines = 0;
    const struct timespec tick = {0, TICK_NS};
    snprintf(end, sizeof end, "%s/end", life->dir);
    snprintf(fail, sizeof fail, "%s/fail-%lu-%s", life->dir, record->generation, record->rank);
    for (;;) {
        nanosleep(&tick, NULL);
        write_line(record);
        if (strcmp(life->mode, "talk") == 0)
            talk(record, &lines);
        if (access(end, F_OK) == 0)
            exit(0);
        if (access(fail, F_OK) == 0)
            exit(7);
    }
}

static bool join_world(void)
{
#ifdef WITH_LIBDDPCOMM
    const struct ddp_comm_options options = {.size = sizeof options, .world_size = 1};
    static ddp_comm *comm; /* never given back, but not lost either */
    return ddp_comm_init(&options, &comm, NULL) == DDP_OK;
#else
    return true;
#endif
}

int main(int argc, char **argv)
{
    static struct life life;
    const char *mode = argc > 2 ? argv[2] : "";
    pthread_t thread;
    if (argc < 2)
        return 2;
    if (strcmp(mode, "deaf") == 0)
        signal(SIGTERM, SIG_IGN);
    if (!join_world())
        return 5;
    life.dir = argv[1];
    life.mode = mode;
    begin(&life.record, argv[1]);
    if (strcmp(mode, "broken") == 0 && strcmp(life.record.rank, "0") == 0) {
        fputs("ModuleNotFoundError: No module named 'x'\n", stderr);
        return 3;
    }
    if (strcmp(mode, "crash") == 0 && strcmp(life.record.rank, "0") == 0)
        return 3;
    if (strcmp(mode, "fork") == 0)
        leave_children();
    if (strcmp(mode, "headless") != 0)
        live(&life);
    if (pthread_create(&thread, NULL, live, &life) != 0)
        return 4;
    pthread_exit(NULL);
}
