/*
 * probe_driver.c - what libddpcomm takes for granted of the CUDA driver, tried out one by one on
 * the driver that the process finds. Prints a line for each; ends with 0 whatever it has seen.
 *
 *   probe_driver [NAME...]      only the probes whose names begin so
 *
 * Each probe is a child with a time limit, killed at its end, so nothing that hangs costs more.
 * The parent never calls the driver. "others": another thread of the process, as the
 * communicator's thread is one, makes the calls that an operation needs while the first thread is
 * in the driver behind a stream that is held. If it cannot, an operation whose stream is held
 * deadlocks with that thread until the timeout.
 */
#include "probe.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- queues of the hardware ---- */

/* Stamps of streams that are each held after theirs: a stamp that does not come is behind the hold
 * of another stream, in one queue. So would be the arrival of an operation. */
static void queues(int connections)
{
    static const int counts[] = {4, 8, 12, 16, 24, 32, MANY_STREAMS};
    ddpi_cu_stream streams[MANY_STREAMS];
    if (connections > 0) { /* 1, as Megatron-LM sets it, and the most that there are */
        char text[16];
        snprintf(text, sizeof text, "%d", connections);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1);
        printf("queues: CUDA_DEVICE_MAX_CONNECTIONS=%d:\n", connections);
    }
    probe_open();
    for (int i = 0; i < MANY_STREAMS; i++)
        MUST(probe_scene.cuda->stream_create(&streams[i], DDPI_CU_STREAM_NON_BLOCKING));
    for (unsigned k = 0; k < (connections == 1 ? 1 : sizeof counts / sizeof *counts); k++) {
        uint32_t turn = k + 1;
        int arrived = 0;
        for (int i = 0; i < counts[k]; i++) {
            probe_stamp(streams[i], (uint32_t)(STAMPS + i), turn);
            probe_hold(streams[i], GATE, turn);
        }
        probe_nap_ms(100);
        for (int i = 0; i < counts[k]; i++)
            arrived += ddpi_words_get(&probe_scene.words, (uint32_t)(STAMPS + i)) == turn;
        probe_launch(probe_scene.lanes[0], probe_scene.b, probe_scene.a, MIB);
        probe_stamp(probe_scene.lanes[0], SEEN, turn);
        probe_nap_ms(50);
        bool lane = ddpi_words_get(&probe_scene.words, SEEN) == turn;
        printf(
            "queues: %2d streams stamped and held: %2d stamps came%s; a kernel in a stream of the "
            "highest priority %s\n",
            counts[k], arrived, arrived < counts[k] ? " (THE OTHERS ARE BEHIND A HOLD)" : "",
            lane ? "ran" : "DID NOT RUN");
        ddpi_words_set(&probe_scene.words, GATE, turn);
        for (int i = 0; i < counts[k]; i++)
            MUST(probe_scene.cuda->stream_synchronize(streams[i]));
        MUST(probe_scene.cuda->stream_synchronize(probe_scene.lanes[0]));
    }
}

/* Copies of the program behind its holds, then those of the library. */
static void copies(int way)
{
    static const char *const names[] = {"DtoH", "HtoD", "DtoD"};
    static const int counts[] = {1, 4, 8, 16, 32};
    ddpi_cu_stream streams[MANY_STREAMS];
    probe_open();
    for (int i = 0; i < MANY_STREAMS; i++)
        MUST(probe_scene.cuda->stream_create(&streams[i], DDPI_CU_STREAM_NON_BLOCKING));
    for (unsigned k = 0; k < sizeof counts / sizeof *counts; k++) {
        uint32_t turn = k + 1;
        for (int i = 0; i <= counts[k]; i++) {
            bool ours = i == counts[k];
            ddpi_cu_stream stream = ours ? probe_scene.lanes[1] : streams[i];
            uint8_t *host = probe_scene.pinned + i * 8192;
            ddpi_cu_deviceptr at = probe_scene.a + (unsigned)i * 8192;
            if (!ours)
                probe_hold(stream, GATE, turn);
            MUST(way == 0   ? probe_scene.cuda->memcpy_dtoh_async(host, at, 4096, stream)
                 : way == 1 ? probe_scene.cuda->memcpy_htod_async(at, host, 4096, stream)
                            : probe_scene.cuda->memcpy_async(at + MIB, at, 4096, stream));
        }
        probe_stamp(probe_scene.lanes[1], SEEN, turn);
        probe_nap_ms(100);
        printf("copies: %s copies behind %2d held streams; the library's %s copy %s\n", names[way],
               counts[k], names[way],
               ddpi_words_get(&probe_scene.words, SEEN) == turn ? "ran" : "IS BEHIND THEM");
        ddpi_words_set(&probe_scene.words, GATE, turn);
        for (int i = 0; i < counts[k]; i++)
            MUST(probe_scene.cuda->stream_synchronize(streams[i]));
        MUST(probe_scene.cuda->stream_synchronize(probe_scene.lanes[1]));
    }
}

/* ---- what calls cost ---- */

#define COST(text, times, call)                                                            \
    do {                                                                                   \
        double began_ = probe_now_ms();                                                    \
        for (int i_ = 0; i_ < (times); i_++) {                                             \
            call;                                                                          \
        }                                                                                  \
        printf("cost: %-44s %8.2f us\n", text, (probe_now_ms() - began_) * 1e3 / (times)); \
    } while (0)

static void costs(int unused)
{
    struct ddpi_cu_ipc_handle handle;
    ddpi_cu_deviceptr base, small;
    size_t size, before, after, total;
    unsigned capturing;
    (void)unused;
    double began = probe_now_ms();
    probe_open();
    printf("cost: %-44s %8.1f ms\n", "context, module, streams, memory", probe_now_ms() - began);
    const struct ddpi_cuda *cuda = probe_scene.cuda;
    unsigned attributes[] = {
        DDPI_CU_POINTER_ATTRIBUTE_CONTEXT, DDPI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        DDPI_CU_POINTER_ATTRIBUTE_IS_MANAGED, DDPI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        DDPI_CU_POINTER_ATTRIBUTE_BUFFER_ID};
    ddpi_cu_context context;
    unsigned type;
    int managed, ordinal;
    unsigned long long buffer;
    void *values[] = {&context, &type, &managed, &ordinal, &buffer};
    MUST(cuda->mem_alloc(&small, 1000));
    COST("cuPointerGetAttributes, 5 of them", 1000,
         MUST(cuda->pointer_get_attributes(5, attributes, values, probe_scene.a)));
    COST("cuPointerGetAttributes, of the host", 1000,
         (void)cuda->pointer_get_attributes(5, attributes, values, (uintptr_t)&probe_scene));
    COST("cuMemGetAddressRange", 1000,
         MUST(cuda->mem_get_address_range(&base, &size, probe_scene.a)));
    COST("cuIpcGetMemHandle, the first time", 1,
         MUST(cuda->ipc_get_mem_handle(&handle, probe_scene.a)));
    COST("cuIpcGetMemHandle, again", 200, MUST(cuda->ipc_get_mem_handle(&handle, probe_scene.a)));
    COST("cuIpcGetMemHandle, small, again", 200, MUST(cuda->ipc_get_mem_handle(&handle, small)));
    COST("cuCtxPushCurrent and cuCtxPopCurrent", 1000, {
        MUST(cuda->ctx_push_current(probe_scene.device.context));
        MUST(cuda->ctx_pop_current(NULL));
    });
    COST("cuStreamIsCapturing", 1000,
         MUST(cuda->stream_is_capturing(probe_scene.device.stream, &capturing)));
    COST("cuStreamQuery", 1000, (void)cuda->stream_query(probe_scene.device.stream));
    COST("cuStreamWriteValue32", 500, probe_stamp(probe_scene.lanes[0], SEEN, 1));
    MUST(cuda->stream_synchronize(probe_scene.lanes[0]));
    COST("cuStreamWaitValue32, met already", 500, probe_hold(probe_scene.lanes[0], GATE, 0));
    MUST(cuda->stream_synchronize(probe_scene.lanes[0]));
    COST("cuLaunchKernel", 500,
         probe_launch(probe_scene.lanes[0], probe_scene.b, probe_scene.a, 4096));
    MUST(cuda->stream_synchronize(probe_scene.lanes[0]));
    static uint32_t turn;
    COST("stamp, seen by the host", 500, {
        probe_stamp(probe_scene.lanes[0], SEEN, ++turn);
        while (ddpi_words_get(&probe_scene.words, SEEN) != turn)
            ;
    });
    COST("launch and stamp, seen by the host", 500, {
        probe_launch(probe_scene.lanes[0], probe_scene.b, probe_scene.a, 4096);
        probe_stamp(probe_scene.lanes[0], SEEN, ++turn);
        while (ddpi_words_get(&probe_scene.words, SEEN) != turn)
            ;
    });
    uint32_t gate = 0;
    COST("stamp, hold, opened by the host, stamp", 500, {
        probe_stamp(probe_scene.device.stream, SEEN, ++turn);
        probe_hold(probe_scene.device.stream, GATE, ++gate);
        probe_stamp(probe_scene.device.stream, SEEN + 1, turn);
        while (ddpi_words_get(&probe_scene.words, SEEN) != turn)
            ;
        ddpi_words_set(&probe_scene.words, GATE, gate);
        while (ddpi_words_get(&probe_scene.words, SEEN + 1) != turn)
            ;
    });
    MUST(cuda->mem_get_info(&before, &total));
    MUST(cuda->mem_free(small));
    MUST(cuda->mem_get_info(&after, &total));
    printf("cost: memory of the device: %zu of %zu MiB free with this context\n", before >> 20,
           total >> 20);
    began = probe_now_ms();
    device_close(&probe_scene.device);
    printf("cost: %-44s %8.1f ms\n", "end of the context", probe_now_ms() - began);
}

/* Several processes, each with a stream that is stamped and held again and again: how long the
 * hardware takes to look at a word when it has more than one context. */
static void turns(int processes)
{
    enum { TURNS = 300 };
    int line[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0)
        _exit(1);
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            char byte = 0;
            double us[TURNS], sum = 0, worst = 0;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            probe_open();
            (void)!write(line[1], "r", 1);
            (void)!recv(line[1], &byte, 1, 0);
            for (uint32_t k = 1; k <= TURNS; k++) {
                double began = probe_now_ms();
                probe_stamp(probe_scene.device.stream, SEEN, k);
                probe_hold(probe_scene.device.stream, GATE, k);
                probe_stamp(probe_scene.device.stream, SEEN + 1, k);
                while (ddpi_words_get(&probe_scene.words, SEEN) != k)
                    ;
                ddpi_words_set(&probe_scene.words, GATE, k);
                while (ddpi_words_get(&probe_scene.words, SEEN + 1) != k)
                    ;
                us[k - 1] = (probe_now_ms() - began) * 1e3;
                sum += us[k - 1];
                worst = us[k - 1] > worst ? us[k - 1] : worst;
            }
            if (i == 0)
                printf(
                    "turns: %d processes: stamp, hold, opened, stamp: %.1f us on average, %.1f at "
                    "most\n",
                    processes, sum / TURNS, worst);
            fflush(NULL);
            _exit(0);
        }
    char byte;
    for (int i = 0; i < processes; i++)
        (void)!read(line[0], &byte, 1);
    for (int i = 0; i < processes; i++)
        (void)!write(line[0], "g", 1);
    while (wait(NULL) > 0)
        continue;
}

static void blocking_launches(int unused)
{
    (void)unused;
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    probe_open();
    double began = probe_now_ms();
    probe_hold(probe_scene.device.stream, GATE, 1);
    double held_ms = probe_now_ms() - began;
    began = probe_now_ms();
    probe_launch(probe_scene.lanes[0], probe_scene.b, probe_scene.a, MIB);
    printf("blocking: CUDA_LAUNCH_BLOCKING=1: the hold returns in %.2f ms, a launch in a lane in "
           "%.2f ms\n",
           held_ms, probe_now_ms() - began);
    ddpi_words_set(&probe_scene.words, GATE, 1);
}

/* A program that returns from main() with a stream that is held. */
static void leaving(int unused)
{
    (void)unused;
    probe_open();
    probe_hold(probe_scene.device.stream, GATE, 1);
    probe_launch(probe_scene.device.stream, probe_scene.b, probe_scene.a, MIB);
    printf("leaving: exit() with a held stream begins at %.1f ms", probe_now_ms());
    fflush(NULL);
    exit(0);
}

/* ---- all of it ---- */

static const struct {
    const char *name;
    void (*run)(int argument);
    int argument, limit_s;
} probes[] = {
    {"pointers", probe_pointers, 0, 10},
    {"costs", costs, 0, 15},
    {"queues", queues, 0, 10},
    {"queues", queues, 1, 10},
    {"queues", queues, 32, 10},
    {"copies", copies, 0, 10},
    {"copies", copies, 1, 10},
    {"copies", copies, 2, 10},
    {"blocking", blocking_launches, 0, 6},
    {"ipc", probe_ipc, 0, 12},
    {"opening", probe_opening, 0, 10},
    {"leaving", leaving, 0, 8},
    {"death", probe_death, 0, 12},
    {"turns", turns, 1, 8},
    {"turns", turns, 2, 8},
    {"turns", turns, 4, 10},
    {"turns", turns, 8, 12},
};

static void run_child(const char *name, void (*run)(int), int argument, int limit_s)
{
    fflush(NULL);
    pid_t pid = fork();
    int status = -1;
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setvbuf(stdout, NULL, _IOLBF, 0);
        run(argument);
        fflush(NULL);
        _exit(0);
    }
    setpgid(pid, pid);
    for (double end = probe_now_ms() + limit_s * 1e3; waitpid(pid, &status, WNOHANG) == 0;
         probe_nap_ms(5))
        if (probe_now_ms() > end) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            printf("%s %d: NOT DONE in %d s\n", name, argument, limit_s);
            break;
        }
    kill(-pid, SIGKILL);
    if (run == leaving)
        printf(" and has ended at %.1f ms, status %#x\n", probe_now_ms(), (unsigned)status);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        printf("%s %d: ended by signal %d\n", name, argument, WTERMSIG(status));
}

/* Several at a time: contexts of other processes have nothing to do with what is asked. */
static void run_all_held(void)
{
    enum { AT_A_TIME = 4 };
    for (int runner = 0; runner < AT_A_TIME; runner++)
        if (fork() == 0) {
            setvbuf(stdout, NULL, _IOLBF, 0);
            for (int i = runner; i < probe_held_calls; i += AT_A_TIME)
                run_child("held", probe_held, i, 12);
            fflush(NULL);
            _exit(0);
        }
    while (wait(NULL) > 0)
        continue;
}

static bool wanted(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(name, argv[i], strlen(argv[i])) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    double began = probe_now_ms();
    if (wanted(argc, argv, "held"))
        run_all_held();
    for (unsigned i = 0; i < sizeof probes / sizeof *probes; i++)
        if (wanted(argc, argv, probes[i].name))
            run_child(probes[i].name, probes[i].run, probes[i].argument, probes[i].limit_s);
    printf("all probes: %.1f s\n", (probe_now_ms() - began) / 1e3);
    return 0;
}
