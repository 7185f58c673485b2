/*
 * perf_coll_report.h - the output of the benchmarks of collectives: a table in the columns of
 * nccl-tests, and JSON lines. Only rank 0 has a report.
 */
#ifndef CMD_PERF_COLL_REPORT_H
#define CMD_PERF_COLL_REPORT_H

#include "perf_coll.h"

#include <stdio.h>

/* A rank and its device, known to all ranks. */
struct coll_seat {
    int32_t pid;
    int32_t device;
    char host[64];
    char name[64]; /* of the device; "": host memory */
    char bus[16];
    uint8_t uuid[16];
};

struct coll_figure {
    bool there;
    double us;
    uint64_t wrong;
};

enum coll_stage {
    COLL_CALL, /* until the call returns; the other stages overlap it */
    COLL_STREAM,
    COLL_EXCHANGE,
    COLL_WORK,
    COLL_COMPLETION,
    COLL_STAGES
};

struct coll_row {
    struct coll_shape shape;
    struct coll_figure out, in; /* out of place, in place */
    double floor_us; /* time to copy as many bytes as all ranks read and write; 0: unknown */
};

struct coll_report {
    const struct coll_options *options;
    enum coll_call call;
    const struct coll_seat *seats;
    uint32_t ranks;
    FILE *json;
    struct coll_row *rows;
    size_t count;
};

bool coll_report_open(struct coll_report *report, struct ddp_error *err);
bool coll_report_close(struct coll_report *report, struct ddp_error *err);

void coll_report_header(const struct coll_report *report);
bool coll_report_row(struct coll_report *report, const struct coll_row *row, struct ddp_error *err);

/* @copy_gb_s: bytes read and written by copies within the device, or the host; 0: not measured. */
void coll_report_footer(const struct coll_report *report, double copy_gb_s);

void coll_report_breakdown_header(void);
/* The times of one call of rank 0. */
void coll_report_breakdown(const struct coll_report *report, const struct coll_shape *shape,
                           double total_us, const double stages_us[COLL_STAGES]);

/* The time of another library for the call of a row. */
void coll_report_peer_header(const char *peer);
void coll_report_peer(const struct coll_report *report, const struct coll_row *row,
                      const char *peer, double us);

/* Whether all elements were right. */
bool coll_report_correct(const struct coll_report *report);

#endif
