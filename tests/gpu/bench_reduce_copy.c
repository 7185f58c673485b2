/*
 * bench_reduce_copy.c - bytes that the kernel reads and writes in a second, beside what a copy from
 * device to device does.
 *
 *   bench_reduce_copy [--json FILE] [MiB of a buffer, default 256]
 *
 * Prints a table in Markdown. Buffers hold made-up numbers, for zeros can be faster; each row is
 * the median of several runs, each of several launches between two waits for the device.
 */
#include "clock.h"
#include "device.h"
#include "elements.h"
#include "kernel_launch.h"
#include "parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 15, LAUNCHES = 20, MOST = 8, CHUNK = 8 * 1024 * 1024, PINNED = 64 * 1024 * 1024 };

struct bench {
    struct device device;
    struct ddpi_kernels kernels;
    ddpi_cu_deviceptr in[MOST], out[MOST];
    size_t size; /* bytes of each buffer */
    void *pinned;
    ddpi_cu_deviceptr pinned_there; /* the same for the device */
    size_t pinned_size;
    FILE *json;
    const char *comma;
};

struct row {
    ddp_dtype dtype;
    uint32_t inputs;
    bool in_place;
};

static const struct row rows[] = {
    {DDP_FLOAT32, 2, false},  {DDP_FLOAT32, 4, false},  {DDP_FLOAT32, 8, false},
    {DDP_FLOAT32, 2, true},   {DDP_FLOAT32, 4, true},   {DDP_FLOAT32, 8, true},
    {DDP_BFLOAT16, 2, false}, {DDP_BFLOAT16, 4, false}, {DDP_BFLOAT16, 8, false},
    {DDP_BFLOAT16, 2, true},  {DDP_BFLOAT16, 4, true},  {DDP_BFLOAT16, 8, true},
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_reduce_copy: %s\n", what);
    exit(EXIT_FAILURE);
}

/* Numbers of either type between 1 and 2, and their negatives. */
static void fill(const struct bench *bench, ddp_dtype dtype)
{
    uint32_t *words = malloc(CHUNK);
    uint64_t state = 1;
    if (words == NULL)
        fail("out of memory");
    for (size_t i = 0; i < CHUNK / sizeof *words; i++) {
        uint32_t word = (uint32_t)elements_scramble(&state);
        words[i] = dtype == DDP_FLOAT32 ? (word & 0x807fffffU) | 0x3f800000U
                                        : (word & 0x807f807fU) | 0x3f803f80U;
    }
    for (uint32_t k = 0; k < MOST; k++)
        for (size_t at = 0; at < bench->size; at += CHUNK) {
            size_t len = bench->size - at < CHUNK ? bench->size - at : CHUNK;
            device_upload(&bench->device, bench->in[k] + at, words, len);
        }
    free(words);
}

static void launch_copy(struct bench *bench, const struct row *row)
{
    (void)row;
    const struct ddpi_cuda *cuda = &bench->device.cuda;
    if (cuda->memcpy_async(bench->out[0], bench->in[0], bench->size, bench->device.stream) !=
        DDPI_CU_SUCCESS)
        fail("the driver refuses a copy");
}

/* Again and again in place, an average stays what it is; a sum would not. */
static ddp_reduce_op op_of(const struct row *row)
{
    return row->in_place ? DDP_AVERAGE : DDP_SUM;
}

static void launch_reduction(struct bench *bench, const struct row *row)
{
    struct ddp_error err = {0};
    struct ddpi_reduction work = {.nin = row->inputs,
                                  .nout = row->inputs,
                                  .count = bench->size / ddp_dtype_size(row->dtype),
                                  .dtype = row->dtype,
                                  .op = op_of(row),
                                  .divisor = row->in_place ? row->inputs : 1};
    for (uint32_t k = 0; k < row->inputs; k++) {
        work.in[k] = (const void *)(uintptr_t)bench->in[k];
        work.out[k] = (void *)(uintptr_t)(row->in_place ? bench->in[k] : bench->out[k]);
    }
    if (ddpi_kernels_launch(&bench->kernels, &work, bench->device.stream, &err) != DDP_OK)
        fail(err.msg);
}

/* ---- between the device and pinned memory ---- */

static void open_pinned(struct bench *bench)
{
    struct ddp_error err = {0};
    bench->pinned_size = bench->size < PINNED ? bench->size : PINNED;
    if (ddpi_cuda_alloc_mapped(&bench->device.cuda, bench->pinned_size, &bench->pinned,
                               &bench->pinned_there, &err) != DDP_OK)
        fail(err.msg);
}

static void launch_bus(struct bench *bench, ddpi_cu_deviceptr to, ddpi_cu_deviceptr from)
{
    struct ddp_error err = {0};
    if (ddpi_kernels_copy(&bench->kernels, to, from, bench->pinned_size, bench->device.stream,
                          &err) != DDP_OK)
        fail(err.msg);
}

static void launch_to_pinned(struct bench *bench, const struct row *row)
{
    (void)row;
    launch_bus(bench, bench->pinned_there, bench->in[0]);
}

static void launch_from_pinned(struct bench *bench, const struct row *row)
{
    (void)row;
    launch_bus(bench, bench->out[0], bench->pinned_there);
}

static void engine_to_pinned(struct bench *bench, const struct row *row)
{
    (void)row;
    if (bench->device.cuda.memcpy_dtoh_async(bench->pinned, bench->in[0], bench->pinned_size,
                                             bench->device.stream) != DDPI_CU_SUCCESS)
        fail("the driver refuses a copy");
}

static void engine_from_pinned(struct bench *bench, const struct row *row)
{
    (void)row;
    if (bench->device.cuda.memcpy_htod_async(bench->out[0], bench->pinned, bench->pinned_size,
                                             bench->device.stream) != DDPI_CU_SUCCESS)
        fail("the driver refuses a copy");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median time of one launch in microseconds. */
static double time_of(struct bench *bench, const struct row *row,
                      void (*launch)(struct bench *bench, const struct row *row))
{
    double times[RUNS];
    for (int run = -1; run < RUNS; run++) { /* the first one warms up */
        uint64_t began_us = ddpi_monotonic_us();
        for (int i = 0; i < LAUNCHES; i++)
            launch(bench, row);
        device_wait(&bench->device);
        if (run >= 0)
            times[run] = (double)(ddpi_monotonic_us() - began_us) / LAUNCHES;
    }
    qsort(times, RUNS, sizeof *times, by_value);
    return times[RUNS / 2];
}

/* In bytes that cross the bus. */
static void run_bus(struct bench *bench)
{
    static const struct {
        const char *name;
        void (*launch)(struct bench *bench, const struct row *row);
    } ways[] = {{"kernel to pinned memory", launch_to_pinned},
                {"kernel from pinned memory", launch_from_pinned},
                {"copy engine to pinned memory", engine_to_pinned},
                {"copy engine from pinned memory", engine_from_pinned}};
    open_pinned(bench);
    printf("\n%zu MiB of pinned memory. GB/s: bytes that cross the bus.\n\n",
           bench->pinned_size >> 20);
    printf("| | us | GB/s |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double us = time_of(bench, NULL, ways[i].launch);
        printf("| %s | %.1f | %.1f |\n", ways[i].name, us, (double)bench->pinned_size / us / 1e3);
    }
}

/* @buffers: how many are read and how many written together. */
static void report(struct bench *bench, const char *what, const char *dtype, uint32_t buffers,
                   double us, double copy_gb_s)
{
    double gb_s = (double)bench->size * buffers / us / 1e3;
    printf("| %s | %s | %.1f | %.0f | %.2f |\n", what, dtype, us, gb_s, gb_s / copy_gb_s);
    fflush(stdout);
    if (bench->json == NULL)
        return;
    fprintf(bench->json,
            "%s\n    {\"what\": \"%s\", \"dtype\": \"%s\", \"us\": %.2f, \"gb_per_s\": %.1f, "
            "\"of_copy\": %.4f}",
            bench->comma, what, dtype, us, gb_s, gb_s / copy_gb_s);
    bench->comma = ",";
}

static void run(struct bench *bench)
{
    fill(bench, rows[0].dtype);
    double copy_us = time_of(bench, NULL, launch_copy);
    double copy_gb_s = (double)bench->size * 2 / copy_us / 1e3;
    printf("%s, buffers of %zu MiB. GB/s: bytes read and written.\n\n", bench->device.name,
           bench->size >> 20);
    printf("| | type | us | GB/s | of the copy |\n|---|---|---|---|---|\n");
    report(bench, "copy, 1 buffer to 1", "bytes", 2, copy_us, copy_gb_s);
    ddp_dtype filled = rows[0].dtype;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        char what[64];
        if (row->dtype != filled)
            fill(bench, row->dtype);
        filled = row->dtype;
        snprintf(what, sizeof what, "%s of %u%s", ddp_reduce_op_name(op_of(row)), row->inputs,
                 row->in_place ? " in place" : "");
        report(bench, what, ddp_dtype_name(row->dtype), 2 * row->inputs,
               time_of(bench, row, launch_reduction), copy_gb_s);
    }
    run_bus(bench);
}

static void read_arguments(int argc, char **argv, struct bench *bench)
{
    int64_t mib = 256;
    int i = 1;
    if (i + 1 < argc && strcmp(argv[i], "--json") == 0) {
        bench->json = fopen(argv[i + 1], "w");
        if (bench->json == NULL)
            fail("cannot write the file for JSON");
        i += 2;
    }
    struct ddp_error err = {0};
    if (i < argc && ddpi_parse_int(argv[i], 1, 4096, &mib, &err) != DDP_OK)
        fail(err.msg);
    bench->size = (size_t)mib << 20;
}

int main(int argc, char **argv)
{
    struct bench bench = {.comma = ""};
    read_arguments(argc, argv, &bench);
    device_open(&bench.device);
    ddpi_kernels_init(&bench.kernels, &bench.device.cuda);
    for (uint32_t k = 0; k < MOST; k++) {
        bench.in[k] = device_alloc(&bench.device, bench.size);
        bench.out[k] = device_alloc(&bench.device, bench.size);
    }
    if (bench.json != NULL)
        fprintf(bench.json, "{\"device\": \"%s\", \"buffer_bytes\": %zu, \"rows\": [",
                bench.device.name, bench.size);
    run(&bench);
    if (bench.json != NULL && (fputs("\n]}\n", bench.json) == EOF || fclose(bench.json) != 0))
        fail("cannot write the file for JSON");
    for (uint32_t k = 0; k < MOST; k++) {
        device_free(&bench.device, bench.in[k]);
        device_free(&bench.device, bench.out[k]);
    }
    ddpi_kernels_finish(&bench.kernels);
    device_close(&bench.device);
    return EXIT_SUCCESS;
}
