/*
 * dump_json.c - see dump_set.h. Owns nothing. jansson takes NULL for a value that could not be
 * made, and then makes none itself, so only the result is checked.
 */
#include "dump_set.h"

#include "buf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PG_NAME_SIZE = DDPI_FLIGHT_GROUP_NAME + 32, RANKS_MAX = 65536 };

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)(value & INT64_MAX));
}

/* ---- communicators ---- */

static json_t *op_or_null(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op)
{
    char text[DDPI_FLIGHT_TEXT];
    if (op == NULL)
        return json_null();
    ddpi_flight_describe(log, op, text);
    uint64_t end_ns = ddpi_flight_is_pending(op) ? log->place.read_ns : op->ended_ns;
    uint64_t took_ns = end_ns > op->created_ns ? end_ns - op->created_ns : 0;
    return json_pack("{s:s,s:s,s:o,s:s,s:s,s:f}", "operation", ddpi_flight_operation(log, op),
                     "call", text, "number", number(op->seq), "state",
                     ddpi_flight_state_name(op->state), "status",
                     ddp_status_name((ddp_status)op->status), "seconds", (double)took_ns / 1e9);
}

static json_t *seq_or_null(const struct ddpi_flight_op *op)
{
    return op != NULL ? number(op->seq) : json_null();
}

static json_t *member_json(const struct ddpi_flight_member *member)
{
    const struct ddpi_flight_place *place = &member->log->place;
    return json_pack("{s:i,s:s,s:i,s:b,s:o,s:b,s:b,s:o,s:o,s:o,s:o}", "rank", (int)place->rank,
                     "host", place->host, "pid", (int)place->pid, "stopped",
                     place->process == DDPI_FLIGHT_STOPPED, "exit_code",
                     place->process == DDPI_FLIGHT_ENDED ? json_integer(place->exit_code)
                                                         : json_null(),
                     "joined", member->group != NULL, "odd", member->odd, "last_called",
                     seq_or_null(member->last), "last_completed", seq_or_null(member->done),
                     "pending", op_or_null(member->log, member->current), "pending_message",
                     op_or_null(member->log, member->message));
}

static json_t *team_json(const struct ddpi_flight_team *team)
{
    char sentence[DDPI_FLIGHT_SENTENCE];
    json_t *members = json_array();
    ddpi_flight_sentence(team, sentence);
    for (size_t i = 0; i < team->count; i++)
        if (json_array_append_new(members, member_json(&team->members[i])) != 0) {
            json_decref(members);
            return NULL;
        }
    return json_pack("{s:s,s:i,s:I,s:s,s:s,s:o,s:I,s:o}", "name", team->name, "instance",
                     (int)team->instance, "size", (json_int_t)team->size, "verdict",
                     ddpi_flight_verdict_name(team->verdict), "sentence", sentence, "number",
                     team->any ? number(team->seq) : json_null(), "ranks_without_records",
                     (json_int_t)team->missing, "members", members);
}

/* ---- PyTorch's format ---- */

/* Operations that its analyser knows. */
static const char *const known_operations[] = {
    "all_gather",     "all_gather_v", "all_reduce",       "all_to_all", "all_to_all_single",
    "barrier",        "broadcast",    "gather",           "recv",       "reduce",
    "reduce_scatter", "scatter",      "reduce_scatter_v", "send",       "all_to_all_v_single",
};

static bool is_known(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op)
{
    for (size_t i = 0; i < sizeof known_operations / sizeof *known_operations; i++)
        if (strcmp(known_operations[i], ddpi_flight_operation(log, op)) == 0)
            return true;
    return false;
}

/* A process may have made several communicators of one name. */
static void pg_name(const struct ddpi_flight_group *group, char name[PG_NAME_SIZE])
{
    if (group->instance > 1)
        snprintf(name, PG_NAME_SIZE, "%s#%" PRIu32, group->name, group->instance);
    else
        snprintf(name, PG_NAME_SIZE, "%s", group->name);
}

static const struct ddpi_flight_team *team_of(const struct dump_set *set,
                                              const struct ddpi_flight_group *group)
{
    for (size_t i = 0; i < set->report->count; i++)
        for (size_t k = 0; k < set->report->teams[i].count; k++)
            if (set->report->teams[i].members[k].group == group)
                return &set->report->teams[i];
    return NULL;
}

/* "[0, 1, 2]": ranks in the job. Those without records are known of a team of all ranks only. */
static json_t *ranks_text(const struct ddpi_flight_team *team)
{
    char rank[16];
    size_t count = team->is_world && team->size <= RANKS_MAX ? team->size : team->count;
    struct ddpi_buf text;
    ddpi_buf_init(&text, SIZE_MAX);
    bool ok = ddpi_buf_append(&text, "[", 1);
    for (size_t i = 0; i < count && ok; i++) {
        uint32_t at = count == team->count ? team->members[i].log->place.rank : (uint32_t)i;
        int len = snprintf(rank, sizeof rank, "%s%" PRIu32, i > 0 ? ", " : "", at);
        ok = ddpi_buf_append(&text, rank, (size_t)len);
    }
    ok = ok && ddpi_buf_append(&text, "]", 1);
    json_t *json =
        ok ? json_stringn((const char *)ddpi_buf_head(&text), ddpi_buf_len(&text)) : NULL;
    ddpi_buf_finish(&text);
    return json;
}

static json_t *pg_configs(const struct dump_set *set, const struct ddpi_flight_log *log)
{
    char name[PG_NAME_SIZE];
    json_t *configs = json_object();
    for (size_t i = 0; i < log->ngroups; i++) {
        const struct ddpi_flight_team *team = team_of(set, &log->groups[i]);
        pg_name(&log->groups[i], name);
        json_t *config = team != NULL ? json_pack("{s:s,s:s,s:o}", "name", name, "desc",
                                                  log->groups[i].name, "ranks", ranks_text(team))
                                      : NULL;
        if (json_object_set_new(configs, name, config) != 0) {
            json_decref(configs);
            return NULL;
        }
    }
    return configs;
}

/* The numbers of its latest collectives in each state; -1: none. */
static json_t *pg_status(const struct ddpi_flight_log *log, const struct ddpi_flight_group *group)
{
    json_int_t last[DDPI_FLIGHT_STATES] = {-1, -1, -1, -1, -1};
    for (size_t i = 0; i < log->count; i++) {
        const struct ddpi_flight_op *op = &log->ops[i];
        if (op->is_message || ddpi_flight_group_of(log, op) != group)
            continue;
        json_int_t seq = (json_int_t)(op->seq & INT64_MAX);
        last[DDPI_FLIGHT_SCHEDULED] = seq;
        if (op->started_ns != 0)
            last[DDPI_FLIGHT_STARTED] = seq;
        if (op->state == DDPI_FLIGHT_COMPLETED)
            last[DDPI_FLIGHT_COMPLETED] = seq;
    }
    return json_pack("{s:I,s:I,s:I}", "last_enqueued_collective", last[DDPI_FLIGHT_SCHEDULED],
                     "last_started_collective", last[DDPI_FLIGHT_STARTED],
                     "last_completed_collective", last[DDPI_FLIGHT_COMPLETED]);
}

static json_t *pg_statuses(const struct ddpi_flight_log *log)
{
    char name[PG_NAME_SIZE];
    json_t *statuses = json_object();
    for (size_t i = 0; i < log->ngroups; i++) {
        pg_name(&log->groups[i], name);
        if (json_object_set_new(statuses, name, pg_status(log, &log->groups[i])) != 0) {
            json_decref(statuses);
            return NULL;
        }
    }
    return statuses;
}

/* CLOCK_MONOTONIC as the time since 1970; null: not yet. */
static json_t *wall_time(const struct ddpi_flight_log *log, uint64_t at_ns)
{
    return at_ns != 0 ? number(log->place.read_real_ns - log->place.read_ns + at_ns) : json_null();
}

/* "nccl:all_reduce", "nccl:send 1->2", "nccl:recv 2<-1". */
static void profiling_name(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                           const struct ddpi_flight_group *group, char name[64])
{
    const char *operation = ddpi_flight_operation(log, op);
    if (op->is_message)
        snprintf(name, 64, "nccl:%s %" PRIu32 "%s%" PRIu32, operation, group->rank,
                 op->is_send ? "->" : "<-", op->peer);
    else
        snprintf(name, 64, "nccl:%s", operation);
}

/* [[elements]]: a buffer that has a part for each rank is longer. */
static json_t *sizes(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                     const struct ddpi_flight_group *group, const char *longer)
{
    if (!op->has_elements)
        return json_array();
    bool all = strcmp(ddpi_flight_operation(log, op), longer) == 0;
    return json_pack("[[o]]", number(op->count * (all ? group->size : 1)));
}

static json_t *dtypes(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op)
{
    const char *name = ddpi_flight_dtype(log, op);
    if (!op->has_elements)
        return json_array();
    return strcmp(name, "float32") == 0 ? json_pack("[s]", "Float") : json_pack("[s]", name);
}

static const char *torch_state(const struct ddpi_flight_op *op)
{
    return ddpi_flight_state_name(op->state == DDPI_FLIGHT_FAILED ? DDPI_FLIGHT_STARTED
                                                                  : op->state);
}

static json_t *duration_or_null(const struct ddpi_flight_op *op)
{
    bool known = op->state == DDPI_FLIGHT_COMPLETED && op->ended_ns >= op->started_ns;
    return known ? json_real((double)(op->ended_ns - op->started_ns) / 1e6) : json_null();
}

static json_t *entry_json(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                          const struct ddpi_flight_group *group)
{
    char pg[PG_NAME_SIZE], profiling[64];
    pg_name(group, pg);
    profiling_name(log, op, group, profiling);
    bool ended = !ddpi_flight_is_pending(op);
    json_t *entry =
        json_pack("{s:o,s:o,s:[s,s],s:o,s:o,s:o,s:b,s:s,s:s}", "record_id", number(op->number),
                  "pg_id", number(group->serial - 1), "process_group", pg, group->name,
                  "collective_seq_id", number(op->is_message ? 0 : op->seq), "p2p_seq_id",
                  number(op->is_message ? op->seq : 0), "op_id", number(op->number), "is_p2p",
                  op->is_message, "profiling_name", profiling, "state", torch_state(op));
    json_t *rest = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:b,s:[]}", "input_sizes",
        sizes(log, op, group, "reduce_scatter"), "output_sizes",
        sizes(log, op, group, "all_gather"), "input_dtypes", dtypes(log, op), "output_dtypes",
        dtypes(log, op), "time_created_ns", wall_time(log, op->created_ns),
        "time_discovered_started_ns", wall_time(log, op->started_ns),
        "time_discovered_completed_ns", wall_time(log, ended ? op->ended_ns : 0), "duration_ms",
        duration_or_null(op), "timeout_ms", (json_int_t)op->timeout_ms, "retired", ended, "frames");
    if (rest == NULL || json_object_update_new(entry, rest) != 0) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

static json_t *entries_json(const struct ddpi_flight_log *log)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < log->count; i++) {
        const struct ddpi_flight_group *group = ddpi_flight_group_of(log, &log->ops[i]);
        if (group == NULL || !is_known(log, &log->ops[i]))
            continue;
        if (json_array_append_new(entries, entry_json(log, &log->ops[i], group)) != 0) {
            json_decref(entries);
            return NULL;
        }
    }
    return entries;
}

json_t *dump_json_rank(const struct dump_set *set, size_t index)
{
    const struct ddpi_flight_log *log = set->logs[index];
    return json_pack("{s:s,s:o,s:o,s:{},s:i,s:s,s:o}", "version", "2.10", "pg_config",
                     pg_configs(set, log), "pg_status", pg_statuses(log), "nccl_comm_state", "rank",
                     (int)log->place.rank, "host_name", log->place.host, "entries",
                     entries_json(log));
}

json_t *dump_json(const struct dump_set *set, const char *job)
{
    char rank[16];
    json_t *teams = json_array(), *ranks = json_object();
    int failed = 0;
    for (size_t i = 0; i < set->report->count; i++)
        failed |= json_array_append_new(teams, team_json(&set->report->teams[i]));
    for (size_t i = 0; i < set->count; i++) {
        snprintf(rank, sizeof rank, "%" PRIu32, set->logs[i]->place.rank);
        failed |= json_object_set_new(ranks, rank, dump_json_rank(set, i));
    }
    json_t *json =
        json_pack("{s:i,s:s,s:o,s:I,s:o,s:o}", "schema", DUMP_JSON_SCHEMA, "job",
                  job != NULL ? job : "", "generation", number(set->generation), "world_size",
                  (json_int_t)set->world_size, "communicators", teams, "ranks", ranks);
    if (failed == 0)
        return json;
    json_decref(json);
    return NULL;
}
