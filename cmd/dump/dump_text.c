/*
 * dump_text.c - see dump_set.h. All texts in a log are printable. Owns nothing.
 */
#include "dump_set.h"

#include <inttypes.h>
#include <string.h>

enum { NUMBER_SIZE = 24, NOW_SIZE = DDPI_FLIGHT_TEXT + 96 };

/* What a rank is in: the call that the verdict is about if it differs, else the oldest that has not
 * completed. */
static const struct ddpi_flight_op *present_op(const struct ddpi_flight_team *team,
                                               const struct ddpi_flight_member *member)
{
    if ((team->verdict == DDPI_FLIGHT_DIFFER || team->verdict == DDPI_FLIGHT_COUNTS) &&
        member->at_seq != NULL)
        return member->at_seq;
    return member->current != NULL ? member->current : member->message;
}

static double seconds_since(uint64_t later_ns, uint64_t earlier_ns)
{
    return later_ns > earlier_ns ? (double)(later_ns - earlier_ns) / 1e9 : 0;
}

static void describe_process(const struct ddpi_flight_place *place, char *text, size_t size)
{
    if (place->process == DDPI_FLIGHT_ENDED)
        snprintf(text, size, "exited with code %" PRId32, place->exit_code);
    else if (place->process == DDPI_FLIGHT_STOPPED)
        snprintf(text, size, "stopped");
    else if (place->no_recorder != 0)
        snprintf(text, size, "keeps no records");
    else
        snprintf(text, size, "-");
}

static void describe_op(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                        char *text, size_t size)
{
    char call[DDPI_FLIGHT_TEXT], how[64] = "";
    ddpi_flight_describe(log, op, call);
    uint64_t end_ns = ddpi_flight_is_pending(op) ? log->place.read_ns : op->ended_ns;
    if (op->state == DDPI_FLIGHT_FAILED)
        snprintf(how, sizeof how, " failed (%s) after", ddp_status_name((ddp_status)op->status));
    else if (op->state == DDPI_FLIGHT_COMPLETED)
        snprintf(how, sizeof how, " completed in");
    snprintf(text, size, "%s%s %.1f s", call, how, seconds_since(end_ns, op->created_ns));
    size_t at = strlen(text);
    if (log->place.process == DDPI_FLIGHT_ENDED)
        snprintf(text + at, size - at, "; exited with code %" PRId32, log->place.exit_code);
    else if (log->place.process == DDPI_FLIGHT_STOPPED)
        snprintf(text + at, size - at, "; stopped");
}

static void print_member(const struct ddpi_flight_team *team,
                         const struct ddpi_flight_member *member, FILE *out)
{
    char done[NUMBER_SIZE] = "-", now[NOW_SIZE];
    const struct ddpi_flight_place *place = &member->log->place;
    const struct ddpi_flight_op *op = present_op(team, member);
    if (member->done != NULL)
        snprintf(done, sizeof done, "#%" PRIu64, member->done->seq);
    if (op != NULL)
        describe_op(member->log, op, now, sizeof now);
    else
        describe_process(place, now, sizeof now);
    fprintf(out, "%s%5" PRIu32 "  %-16s %8" PRIu32 "  %9s  %s\n", member->odd ? "->" : "  ",
            place->rank, place->host, place->pid, done, now);
}

static void print_team(const struct ddpi_flight_team *team, FILE *out)
{
    char sentence[DDPI_FLIGHT_SENTENCE];
    ddpi_flight_sentence(team, sentence);
    fprintf(out, "\ncommunicator %s", team->name);
    if (team->id == 0 && team->instance > 1)
        fprintf(out, " (number %" PRIu32 " of this name)", team->instance);
    fprintf(out, ", %" PRIu32 " ranks: %s\n", team->size, sentence);
    fprintf(out, "   rank  host                  pid  completed  now\n");
    for (size_t i = 0; i < team->count; i++)
        print_member(team, &team->members[i], out);
}

void dump_text_print(const struct dump_set *set, const char *job, FILE *out)
{
    fprintf(out, "job %s, generation %" PRIu64 ": records of %zu of %" PRIu32 " ranks\n",
            job != NULL ? job : "of one node", set->generation, set->count, set->world_size);
    for (size_t i = 0; i < set->report->count; i++)
        print_team(&set->report->teams[i], out);
    if (set->report->count == 0)
        fputs("no rank has made a communicator of libddpcomm; where ranks wait in NCCL or gloo is "
              "not seen here\n",
              out);
}
