/*
 * flight.c - fuzzes what agents answer to ddpctl dump. A log that is read has unique operations in
 * order, its texts can be printed, and comparing it with itself finds every rank once.
 */
#include "flight_compare.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static void fuzz_printable(const char *text)
{
    for (; *text != '\0'; text++)
        HOLDS((unsigned char)*text >= 0x20 && (unsigned char)*text != 0x7f);
}

static void fuzz_log(const struct ddpi_flight_log *log)
{
    char text[DDPI_FLIGHT_TEXT];
    fuzz_printable(log->place.host);
    HOLDS(log->place.rank < log->place.world_size);
    for (size_t i = 0; i < log->ngroups; i++) {
        fuzz_printable(log->groups[i].name);
        HOLDS(log->groups[i].rank < log->groups[i].size && log->groups[i].serial != 0);
    }
    for (size_t i = 0; i < log->count; i++) {
        HOLDS(i == 0 || log->ops[i - 1].number < log->ops[i].number);
        ddpi_flight_describe(log, &log->ops[i], text);
        fuzz_printable(text);
        fuzz_printable(ddpi_flight_state_name(log->ops[i].state));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddp_error err;
    struct ddpi_flight_log *log;
    struct ddpi_flight_report *report;
    char sentence[DDPI_FLIGHT_SENTENCE];
    uint8_t *exact = fuzz_copy(data, size);
    ddp_status status = ddpi_flight_log_read(exact, size, &log, &err);
    free(exact);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        return 0;
    }
    fuzz_log(log);
    const struct ddpi_flight_log *twice[] = {log, log};
    HOLDS(ddpi_flight_compare(twice, 2, &report, &err) == DDP_OK);
    for (size_t i = 0; i < report->count; i++) {
        ddpi_flight_sentence(&report->teams[i], sentence);
        fuzz_printable(sentence);
        HOLDS(report->teams[i].count == 2);
    }
    ddpi_flight_report_destroy(report);
    ddpi_flight_log_destroy(log);
    return 0;
}
