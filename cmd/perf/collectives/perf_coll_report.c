/*
 * perf_coll_report.c - tables and JSON lines of the benchmarks of collectives. Owns the rows and
 * the file.
 */
#include "perf_coll_report.h"

#include "error.h"
#include "mem.h"
#include "version.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *const algorithms[] = {
#define ALGORITHM_NAME(symbol, name) [symbol] = name,
    DDP_ALGORITHM_MAP(ALGORITHM_NAME)
#undef ALGORITHM_NAME
};

/* ---- opening and closing ---- */

bool coll_report_open(struct coll_report *report, struct ddp_error *err)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* show each row at once, even through a pipe */
    const char *path = report->options->json;
    if (path != NULL && (report->json = fopen(path, "we")) == NULL)
        return ddpi_error_sys(err, errno, "cannot write to '%s'", path) == DDP_OK;
    return true;
}

bool coll_report_close(struct coll_report *report, struct ddp_error *err)
{
    bool written = report->json == NULL || fclose(report->json) == 0;
    if (!written)
        ddpi_error_sys(err, errno, "cannot write to '%s'", report->options->json);
    ddpi_free(report->rows);
    report->rows = NULL;
    report->json = NULL;
    return written;
}

/* ---- speed ---- */

static double algbw(const struct coll_row *row, double us)
{
    return us > 0 ? (double)row->shape.size / us / 1e3 : 0;
}

static double busbw(const struct coll_report *report, const struct coll_row *row, double us)
{
    return algbw(row, us) * coll_bus_factor(report->call, report->ranks);
}

static uint64_t total_wrong(const struct coll_report *report)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < report->count; i++)
        wrong += report->rows[i].out.wrong + report->rows[i].in.wrong;
    return wrong;
}

bool coll_report_correct(const struct coll_report *report)
{
    return total_wrong(report) == 0;
}

/* ---- header ---- */

static void print_seat(const struct coll_seat *seat, uint32_t rank)
{
    printf("#  Rank %3u Group  0 Pid %6d on %10s device ", rank, seat->pid, seat->host);
    if (*seat->name != '\0')
        printf("%2d [%s] %s\n", seat->device, seat->bus, seat->name);
    else
        printf(" - [-] memory of the host\n");
}

void coll_report_header(const struct coll_report *report)
{
    const struct coll_options *options = report->options;
    printf("# ddp-perf %s " DDPRUN_VERSION "\n", coll_kinds[report->call].name);
    printf("# nRanks %u minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64 "(%s) "
           "warmup iters: %u iters: %u validate: %u algorithm: %s\n#\n# Using devices\n",
           report->ranks, options->begin, options->end,
           options->factor > 1 ? (uint64_t)options->factor : options->step,
           options->factor > 1 ? "factor" : "bytes", options->warmup, options->iters,
           options->check, algorithms[options->algorithm]);
    for (uint32_t rank = 0; rank < report->ranks; rank++)
        print_seat(&report->seats[rank], rank);
    printf("#\n#%62s%37s\n", "out-of-place", "in-place");
    printf("#%11s%14s%10s%9s%8s%9s%8s%8s%7s%9s%8s%8s%7s\n", "size", "count", "type", "redop",
           "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    printf("#%11s%14s%10s%9s%8s%9s%8s%8s%7s%9s%8s%8s%7s\n", "(B)", "(elements)", "", "", "", "(us)",
           "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

/* ---- rows ---- */

static void print_figure(const struct coll_report *report, const struct coll_row *row,
                         const struct coll_figure *figure)
{
    if (!figure->there) {
        printf("%9s%8s%8s%7s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    printf("%9.*f%8.2f%8.2f", figure->us < 1000 ? 2 : 1, figure->us, algbw(row, figure->us),
           busbw(report, row, figure->us));
    if (report->options->check)
        printf("%7" PRIu64, figure->wrong);
    else
        printf("%7s", "N/A");
}

static void print_coll_row(const struct coll_report *report, const struct coll_row *row)
{
    const struct coll_kind *kind = &coll_kinds[report->call];
    const struct coll_options *options = report->options;
    bool barrier = report->call == COLL_BARRIER;
    printf("%12zu%14zu%10s%9s%8d", row->shape.size, row->shape.count,
           barrier ? "none" : ddp_dtype_name(options->dtype),
           kind->reduces ? ddp_reduce_op_name(options->op) : "none",
           kind->rooted ? (int)options->root : -1);
    print_figure(report, row, &row->out);
    print_figure(report, row, &row->in);
    putchar('\n');
}

static void write_figure(FILE *json, const char *name, const struct coll_report *report,
                         const struct coll_row *row, const struct coll_figure *figure)
{
    if (!figure->there)
        return;
    fprintf(json, ",\"%s_us\":%.3f,\"%s_algbw\":%.4f,\"%s_busbw\":%.4f", name, figure->us, name,
            algbw(row, figure->us), name, busbw(report, row, figure->us));
    if (report->options->check)
        fprintf(json, ",\"%s_wrong\":%" PRIu64, name, figure->wrong);
    if (row->floor_us > 0)
        fprintf(json, ",\"%s_x_floor\":%.4f", name, figure->us / row->floor_us);
}

static uint32_t count_processes(const struct coll_report *report)
{
    uint32_t processes = 0;
    for (uint32_t rank = 0; rank < report->ranks; rank++) {
        uint32_t same = 0;
        while (same < rank && (report->seats[same].pid != report->seats[rank].pid ||
                               strcmp(report->seats[same].host, report->seats[rank].host) != 0))
            same++;
        processes += same == rank;
    }
    return processes;
}

/* The fields that every line begins with. Device names come from the driver and have no quotes. */
static void begin_json_line(const struct coll_report *report, const char *benchmark,
                            const struct coll_shape *shape)
{
    const struct coll_options *options = report->options;
    const char *gpu = report->seats[0].name;
    fprintf(report->json,
            "{\"benchmark\":\"%s\",\"call\":\"%s\",\"device\":\"%s\",\"gpu\":\"%s\",\"ranks\":%u,"
            "\"processes\":%u,\"algorithm\":\"%s\",\"dtype\":\"%s\",\"op\":\"%s\",\"size\":%zu,"
            "\"count\":%zu,\"iters\":%u",
            benchmark, coll_kinds[report->call].name, *gpu != '\0' ? "cuda" : "cpu", gpu,
            report->ranks, count_processes(report), algorithms[options->algorithm],
            ddp_dtype_name(options->dtype), ddp_reduce_op_name(options->op), shape->size,
            shape->count, options->iters);
}

bool coll_report_row(struct coll_report *report, const struct coll_row *row, struct ddp_error *err)
{
    struct coll_row *rows = ddpi_realloc(report->rows, report->count + 1, sizeof *rows);
    if (rows == NULL)
        return ddpi_error_nomem(err, (report->count + 1) * sizeof *rows) == DDP_OK;
    report->rows = rows;
    rows[report->count++] = *row;
    print_coll_row(report, row);
    if (report->json == NULL)
        return true;
    begin_json_line(report, "collective", &row->shape);
    write_figure(report->json, "out_of_place", report, row, &row->out);
    write_figure(report->json, "in_place", report, row, &row->in);
    if (row->floor_us > 0)
        fprintf(report->json, ",\"floor_us\":%.3f", row->floor_us);
    fputs("}\n", report->json);
    return true;
}

/* ---- footer ---- */

static double average_busbw(const struct coll_report *report)
{
    double sum = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < report->count; i++) {
        const struct coll_figure *figures[] = {&report->rows[i].out, &report->rows[i].in};
        for (int k = 0; k < 2; k++)
            if (figures[k]->there) {
                sum += busbw(report, &report->rows[i], figures[k]->us);
                count++;
            }
    }
    return count > 0 ? sum / count : 0;
}

static void print_floors(const struct coll_report *report)
{
    printf("# In multiples of 2NS/D, the time of copying the S bytes of each of the N ranks once:\n"
           "#%11s%14s%14s%14s\n",
           "size", "2NS/D (us)", "out-of-place", "in-place");
    for (size_t i = 0; i < report->count; i++) {
        const struct coll_row *row = &report->rows[i];
        if (row->floor_us > 0)
            printf("#%11zu%14.1f%14.2f%14.2f\n", row->shape.size, row->floor_us,
                   row->out.us / row->floor_us, row->in.us / row->floor_us);
    }
}

void coll_report_footer(const struct coll_report *report, double copy_gb_s)
{
    uint64_t wrong = total_wrong(report);
    printf("# Out of bounds values : %" PRIu64 " %s\n", wrong, wrong == 0 ? "OK" : "FAILED");
    printf("# Avg bus bandwidth    : %.4g\n#\n", average_busbw(report));
    if (copy_gb_s == 0)
        return;
    printf("# %s, D : %.1f GB/s, bytes read and written\n",
           *report->seats[0].name != '\0' ? "Device-to-device copy" : "Copies of all ranks at once",
           copy_gb_s);
    print_floors(report);
    putchar('\n');
}

/* ---- breakdown ---- */

static const char *const stage_names[COLL_STAGES] = {[COLL_CALL] = "call",
                                                     [COLL_STREAM] = "stream",
                                                     [COLL_EXCHANGE] = "exchange",
                                                     [COLL_WORK] = "work",
                                                     [COLL_COMPLETION] = "completion"};

void coll_report_breakdown_header(void)
{
    printf("Where the time of one call goes (us, rank 0, the stream synchronized after each)\n\n"
           "| size (B) | total | stream | exchange | work | completion | rest | the call returns "
           "after |\n"
           "|---|---|---|---|---|---|---|---|\n");
}

void coll_report_breakdown(const struct coll_report *report, const struct coll_shape *shape,
                           double total_us, const double stages_us[COLL_STAGES])
{
    double rest_us = total_us;
    printf("| %zu | %.1f |", shape->size, total_us);
    for (int stage = COLL_STREAM; stage < COLL_STAGES; stage++) {
        printf(" %.1f |", stages_us[stage]);
        rest_us -= stages_us[stage];
    }
    printf(" %.1f | %.1f |\n", rest_us, stages_us[COLL_CALL]);
    if (report->json == NULL)
        return;
    begin_json_line(report, "collective-breakdown", shape);
    fprintf(report->json, ",\"total_us\":%.3f", total_us);
    for (int stage = 0; stage < COLL_STAGES; stage++)
        fprintf(report->json, ",\"%s_us\":%.3f", stage_names[stage], stages_us[stage]);
    fputs("}\n", report->json);
}

/* ---- another library ---- */

void coll_report_peer_header(const char *peer)
{
    printf("\n| size (B) | ddprun (us) | %s (us) | speed, x %s |\n|---|---|---|---|\n", peer, peer);
}

/* The smaller time of the two figures; 0 if there is none. */
static double best_us(const struct coll_row *row)
{
    if (!row->out.there || !row->in.there)
        return row->out.there ? row->out.us : row->in.there ? row->in.us : 0;
    return row->out.us < row->in.us ? row->out.us : row->in.us;
}

void coll_report_peer(const struct coll_report *report, const struct coll_row *row,
                      const char *peer, double us)
{
    double ours_us = best_us(row);
    printf("| %zu | %.2f | %.2f | %.2f |\n", row->shape.size, ours_us, us,
           ours_us > 0 ? us / ours_us : 0);
    if (report->json == NULL)
        return;
    begin_json_line(report, "collective-peer", &row->shape);
    fprintf(report->json, ",\"peer\":\"%s\",\"ddprun_us\":%.3f,\"peer_us\":%.3f,\"ratio\":%.4f}\n",
            peer, ours_us, us, ours_us > 0 ? us / ours_us : 0);
}
