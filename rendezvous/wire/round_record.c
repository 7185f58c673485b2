/*
 * round_record.c - one table of fields for each kind of record, and one writer and one reader that
 * follow it. Owns nothing; allocates only in the caller's buffer.
 */
#include "round_record.h"

#include "error.h"
#include "parse.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_CHARS = 24, FIELDS_MAX = 32, NPROC_MAX = 65536 };

enum kind { TEXT, NUMBER, WORD };

struct field {
    const char *name;
    enum kind kind;
    bool is_signed; /* of 32 bits */
    size_t offset;
    size_t size;
    int64_t min; /* of a number; 1 of a text: it may not be empty */
    int64_t max;
    const char *const *words; /* by value; NULL after the last */
    bool newer;               /* some writers do not have it: then it is 0 or "" */
};

struct table {
    const char *what;
    const struct field *fields;
    size_t count;
};

#define FIELD(type, name, member, kind, is_signed, min, max, words, newer)                    \
    {                                                                                         \
        name, kind, is_signed, offsetof(type, member), sizeof(((type *)0)->member), min, max, \
            words, newer                                                                      \
    }
#define TEXT_OF(type, name, member, min) FIELD(type, name, member, TEXT, false, min, 0, NULL, false)
#define NUMBER_OF(type, name, member, min, max) \
    FIELD(type, name, member, NUMBER, false, min, max, NULL, false)
#define SIGNED_OF(type, name, member, min, max) \
    FIELD(type, name, member, NUMBER, true, min, max, NULL, false)
#define WORD_OF(type, name, member, words) \
    FIELD(type, name, member, WORD, false, 0, 0, words, false)
#define NEWER_WORD_OF(type, name, member, words) \
    FIELD(type, name, member, WORD, false, 0, 0, words, true)
#define NEWER_TEXT_OF(type, name, member) FIELD(type, name, member, TEXT, false, 0, 0, NULL, true)
#define NEWER_NUMBER_OF(type, name, member, max) \
    FIELD(type, name, member, NUMBER, false, 0, max, NULL, true)

static const char *const no_yes[] = {"no", "yes", NULL};
static const char *const joins[] = {[DDP_ROUND_JOIN_NOW] = "now",
                                    [DDP_ROUND_JOIN_CHECKPOINT] = "checkpoint",
                                    [DDP_ROUND_JOIN_NEVER] = "never",
                                    NULL};
static const char *const phases[] = {[DDP_ROUND_IDLE] = "idle",
                                     [DDP_ROUND_STARTING] = "starting",
                                     [DDP_ROUND_RUNNING] = "running",
                                     [DDP_ROUND_DONE] = "done",
                                     NULL};
static const char *const orders[] = {[DDP_ROUND_WAIT] = "wait",
                                     [DDP_ROUND_RUN] = "run",
                                     [DDP_ROUND_STOP] = "stop",
                                     [DDP_ROUND_END] = "end",
                                     NULL};
static const char *const states[] = {
    [ROUNDS_FORMING] = "forming", [ROUNDS_RUNNING] = "running", [ROUNDS_STOPPING] = "stopping",
    [ROUNDS_PAUSING] = "pausing", [ROUNDS_CLOSED] = "closed",   NULL};

#define TERMS_OF(type, least)                                               \
    NUMBER_OF(type, "min_nodes", terms.min_nodes, least, UINT32_MAX),       \
        NUMBER_OF(type, "max_nodes", terms.max_nodes, least, UINT32_MAX),   \
        NUMBER_OF(type, "max_restarts", terms.max_restarts, 0, UINT32_MAX), \
        NUMBER_OF(type, "settle_ms", terms.settle_ms, 0, UINT32_MAX),       \
        NUMBER_OF(type, "lease_ms", terms.lease_ms, 0, UINT32_MAX),         \
        NUMBER_OF(type, "crash_loop", terms.crash_loop, 0, UINT32_MAX),     \
        WORD_OF(type, "join", terms.join, joins)

#define MEMBER  struct ddp_round_member
#define SEAT    struct ddp_round_seat
#define SUMMARY struct ddpi_rounds_summary
#define BLAME   struct ddpi_rounds_blame

static const struct field member_fields[] = {
    TEXT_OF(MEMBER, "name", name, 1),
    TEXT_OF(MEMBER, "address", address, 0),
    NUMBER_OF(MEMBER, "nproc", nproc, 1, NPROC_MAX),
    SIGNED_OF(MEMBER, "node_rank", node_rank, -1, INT32_MAX),
    NUMBER_OF(MEMBER, "master_port", master_port, 0, UINT16_MAX),
    TERMS_OF(MEMBER, 1),
    WORD_OF(MEMBER, "phase", phase, phases),
    NUMBER_OF(MEMBER, "generation", generation, 0, DDPI_GENERATION_MAX),
    WORD_OF(MEMBER, "leaving", leaving, no_yes),
    WORD_OF(MEMBER, "fenced", fenced, no_yes),
    NUMBER_OF(MEMBER, "failure_generation", failure.generation, 0, DDPI_GENERATION_MAX),
    NUMBER_OF(MEMBER, "failure_rank", failure.rank, 0, UINT32_MAX),
    SIGNED_OF(MEMBER, "failure_exit_code", failure.exit_code, -1, INT32_MAX),
    NUMBER_OF(MEMBER, "failure_ran_ms", failure.ran_ms, 0, INT64_MAX),
    WORD_OF(MEMBER, "failure_final", failure.final, no_yes),
    TEXT_OF(MEMBER, "failure", failure.text, 0),
    NEWER_TEXT_OF(MEMBER, "role", role),
    NEWER_TEXT_OF(MEMBER, "sick", sick),
    NEWER_WORD_OF(MEMBER, "checking", checking, no_yes),
    NEWER_NUMBER_OF(MEMBER, "checks", checks, UINT32_MAX),
    NEWER_NUMBER_OF(MEMBER, "quarantine", terms.quarantine, UINT32_MAX),
    NEWER_TEXT_OF(MEMBER, "command", command),
    NEWER_WORD_OF(MEMBER, "failure_program", failure.broken_program, no_yes),
    NEWER_NUMBER_OF(MEMBER, "first_port", first_port, UINT16_MAX),
    NEWER_WORD_OF(MEMBER, "worker_ports", terms.worker_ports, no_yes),
};

static const struct field seat_fields[] = {
    WORD_OF(SEAT, "order", order, orders),
    NUMBER_OF(SEAT, "generation", generation, 0, INT64_MAX),
    WORD_OF(SEAT, "failed", failed, no_yes),
    WORD_OF(SEAT, "spare", spare, no_yes),
    SIGNED_OF(SEAT, "exit_code", exit_code, INT32_MIN, INT32_MAX),
    NUMBER_OF(SEAT, "node_rank", node_rank, 0, UINT32_MAX),
    NUMBER_OF(SEAT, "nodes", nodes, 0, UINT32_MAX),
    NUMBER_OF(SEAT, "first_rank", first_rank, 0, UINT32_MAX),
    NUMBER_OF(SEAT, "world_size", world_size, 0, UINT32_MAX),
    NUMBER_OF(SEAT, "restarts", restarts, 0, UINT32_MAX),
    TEXT_OF(SEAT, "master_address", master_address, 0),
    NUMBER_OF(SEAT, "master_port", master_port, 0, UINT16_MAX),
    TEXT_OF(SEAT, "text", text, 0),
    NEWER_NUMBER_OF(SEAT, "role_first_rank", role_first_rank, UINT32_MAX),
    NEWER_NUMBER_OF(SEAT, "role_world_size", role_world_size, UINT32_MAX),
    NEWER_NUMBER_OF(SEAT, "most_workers", most_workers, UINT32_MAX),
    NEWER_WORD_OF(SEAT, "left_out", left_out, no_yes),
    NEWER_NUMBER_OF(SEAT, "check", check, UINT32_MAX),
    NEWER_WORD_OF(SEAT, "pausing", pausing, no_yes),
    NEWER_TEXT_OF(SEAT, "notice", notice),
    NEWER_TEXT_OF(SEAT, "coordinator_address", coordinator_address),
    NEWER_NUMBER_OF(SEAT, "coordinator_port", coordinator_port, UINT16_MAX),
};

static const struct field summary_fields[] = {
    WORD_OF(SUMMARY, "state", state, states),
    NUMBER_OF(SUMMARY, "generation", generation, 0, INT64_MAX),
    NUMBER_OF(SUMMARY, "members", members, 0, UINT32_MAX),
    NUMBER_OF(SUMMARY, "seated", seated, 0, UINT32_MAX),
    NUMBER_OF(SUMMARY, "world_size", world_size, 0, UINT32_MAX),
    NUMBER_OF(SUMMARY, "restarts", restarts, 0, UINT32_MAX),
    TERMS_OF(SUMMARY, 0),
    WORD_OF(SUMMARY, "judging", judging, no_yes),
    WORD_OF(SUMMARY, "closing", closing, no_yes),
    SIGNED_OF(SUMMARY, "exit_code", exit_code, INT32_MIN, INT32_MAX),
    /* idle_ms keeps its older name between versions: older ones refuse a record without it. */
    NUMBER_OF(SUMMARY, "quiet_ms", idle_ms, 0, INT64_MAX),
    NUMBER_OF(SUMMARY, "seated_ms", seated_ms, 0, INT64_MAX),
    NUMBER_OF(SUMMARY, "running_ms", running_ms, 0, INT64_MAX),
    TEXT_OF(SUMMARY, "reason", reason, 0),
    NEWER_NUMBER_OF(SUMMARY, "left_out", left_out, UINT32_MAX),
    NEWER_NUMBER_OF(SUMMARY, "quarantine", terms.quarantine, UINT32_MAX),
    NEWER_WORD_OF(SUMMARY, "worker_ports", terms.worker_ports, no_yes),
};

static const struct field blame_fields[] = {
    NUMBER_OF(BLAME, "failures", failures, 0, UINT32_MAX),
    WORD_OF(BLAME, "left_out", left_out, no_yes),
    TEXT_OF(BLAME, "text", text, 0),
};

#define COUNT(fields) (sizeof(fields) / sizeof *(fields))
static const struct table member_table = {"member", member_fields, COUNT(member_fields)};
static const struct table seat_table = {"seat", seat_fields, COUNT(seat_fields)};
static const struct table summary_table = {"state", summary_fields, COUNT(summary_fields)};
static const struct table blame_table = {"blame", blame_fields, COUNT(blame_fields)};
_Static_assert(COUNT(member_fields) <= FIELDS_MAX && COUNT(seat_fields) <= FIELDS_MAX &&
                   COUNT(summary_fields) <= FIELDS_MAX,
               "a bit for each field");

/* ---- fields in memory ---- */

static uint64_t load_bits(const struct field *field, const void *record)
{
    const char *at = (const char *)record + field->offset;
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (field->size) {
    case sizeof one:
        memcpy(&one, at, sizeof one);
        return one;
    case sizeof two:
        memcpy(&two, at, sizeof two);
        return two;
    case sizeof four:
        memcpy(&four, at, sizeof four);
        return four;
    default:
        memcpy(&eight, at, sizeof eight);
        return eight;
    }
}

/* false: it is more than a field may have. */
static bool field_load(const struct field *field, const void *record, int64_t *ret)
{
    uint64_t bits = load_bits(field, record);
    if (bits > INT64_MAX)
        return false;
    *ret = field->is_signed ? (int32_t)(uint32_t)bits : (int64_t)bits;
    return true;
}

static void field_save(const struct field *field, void *record, int64_t value)
{
    char *at = (char *)record + field->offset;
    const uint8_t one = (uint8_t)value;
    const uint16_t two = (uint16_t)value;
    const uint32_t four = (uint32_t)value;
    switch (field->size) {
    case sizeof one:
        memcpy(at, &one, sizeof one);
        break;
    case sizeof two:
        memcpy(at, &two, sizeof two);
        break;
    case sizeof four:
        memcpy(at, &four, sizeof four);
        break;
    default:
        memcpy(at, &value, sizeof value);
    }
}

static bool is_control(uint8_t byte)
{
    return byte < 0x20 || byte == 0x7f;
}

static bool has_control(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (is_control((uint8_t)bytes[i]))
            return true;
    return false;
}

static const char *word_of(const struct field *field, int64_t value)
{
    for (int64_t i = 0; field->words[i] != NULL; i++)
        if (i == value)
            return field->words[i];
    return NULL;
}

/* The terms must be consistent. */
static ddp_status check_terms(const struct ddp_round_terms *terms, ddp_status status,
                              struct ddp_error *err)
{
    if (terms->min_nodes <= terms->max_nodes)
        return DDP_OK;
    return ddpi_error_set(err, status, "at least %u nodes and at most %u", terms->min_nodes,
                          terms->max_nodes);
}

/* ---- writing ---- */

static ddp_status invalid(const struct table *table, const struct field *field,
                          struct ddp_error *err)
{
    switch (field->kind) {
    case NUMBER:
        return ddpi_error_set(err, DDP_E_INVALID, "the %s of a %s must be %" PRId64 " to %" PRId64,
                              field->name, table->what, field->min, field->max);
    case TEXT:
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the %s of a %s must have %d to %zu bytes, and no control characters",
                              field->name, table->what, (int)field->min, field->size - 1);
    case WORD:
    default:
        return ddpi_error_set(err, DDP_E_INVALID, "the %s of a %s has no known value", field->name,
                              table->what);
    }
}

/* The value as text, in @number if it is a number; NULL: it breaks the rule of the field. */
static const char *value_of(const struct field *field, const void *record,
                            char number[NUMBER_CHARS])
{
    int64_t value;
    if (field->kind == TEXT) {
        const char *text = (const char *)record + field->offset;
        size_t len = strnlen(text, field->size);
        bool fits = len < field->size && len >= (size_t)field->min && !has_control(text, len);
        return fits ? text : NULL;
    }
    if (!field_load(field, record, &value))
        return NULL;
    if (field->kind == WORD)
        return word_of(field, value);
    if (value < field->min || value > field->max)
        return NULL;
    snprintf(number, NUMBER_CHARS, "%" PRId64, value);
    return number;
}

static bool record_put_line(struct ddpi_buf *buf, const char *name, const char *value)
{
    return ddpi_buf_append(buf, name, strlen(name)) && ddpi_buf_put_u8(buf, ' ') &&
           ddpi_buf_append(buf, value, strlen(value)) && ddpi_buf_put_u8(buf, '\n');
}

static ddp_status record_put(const struct table *table, struct ddpi_buf *buf, const void *record,
                             struct ddp_error *err)
{
    size_t before = ddpi_buf_len(buf);
    ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < table->count; i++) {
        char number[NUMBER_CHARS];
        const char *value = value_of(&table->fields[i], record, number);
        if (value == NULL)
            status = invalid(table, &table->fields[i], err);
        else if (!record_put_line(buf, table->fields[i].name, value))
            status = ddpi_error_nomem(err, strlen(value));
    }
    if (status != DDP_OK)
        ddpi_buf_truncate(buf, before);
    return status;
}

ddp_status ddpi_round_member_put(struct ddpi_buf *buf, const struct ddp_round_member *member,
                                 struct ddp_error *err)
{
    ddp_status status = check_terms(&member->terms, DDP_E_INVALID, err);
    return status == DDP_OK ? record_put(&member_table, buf, member, err) : status;
}

ddp_status ddpi_round_seat_put(struct ddpi_buf *buf, const struct ddp_round_seat *seat,
                               struct ddp_error *err)
{
    return record_put(&seat_table, buf, seat, err);
}

ddp_status ddpi_round_summary_put(struct ddpi_buf *buf, const struct ddpi_rounds_summary *summary,
                                  struct ddp_error *err)
{
    return record_put(&summary_table, buf, summary, err);
}

ddp_status ddpi_round_blame_put(struct ddpi_buf *buf, const struct ddpi_rounds_blame *blame,
                                struct ddp_error *err)
{
    return record_put(&blame_table, buf, blame, err);
}

/* ---- reading ---- */

static bool field_take_number(const struct field *field, const char *value, size_t len,
                              void *record)
{
    char text[NUMBER_CHARS];
    int64_t number;
    if (len >= sizeof text)
        return false;
    memcpy(text, value, len);
    text[len] = '\0';
    if (ddpi_parse_int(text, field->min, field->max, &number, NULL) != DDP_OK)
        return false;
    field_save(field, record, number);
    return true;
}

static bool field_take_word(const struct field *field, const char *value, size_t len, void *record)
{
    for (int64_t i = 0; field->words[i] != NULL; i++) {
        if (strlen(field->words[i]) != len || memcmp(field->words[i], value, len) != 0)
            continue;
        field_save(field, record, i);
        return true;
    }
    return false;
}

static bool field_take_text(const struct field *field, const char *value, size_t len, void *record)
{
    if (len < (size_t)field->min || len >= field->size)
        return false;
    memcpy((char *)record + field->offset, value, len);
    return true;
}

/* The field with this name. Fields mostly come in order, so the search begins at @from. */
static size_t find_field(const struct table *table, const char *name, size_t len, size_t from)
{
    for (size_t i = 0; i < table->count; i++) {
        size_t at = (from + i) % table->count;
        const char *known = table->fields[at].name;
        if (strlen(known) == len && memcmp(known, name, len) == 0)
            return at;
    }
    return table->count;
}

static ddp_status record_take_line(const struct table *table, const char *line, size_t len,
                                   void *record, uint32_t *seen, struct ddp_error *err)
{
    static bool (*const takers[])(const struct field *, const char *, size_t, void *) = {
        [TEXT] = field_take_text, [NUMBER] = field_take_number, [WORD] = field_take_word};
    const char *blank = memchr(line, ' ', len);
    if (blank == NULL || blank == line || has_control(line, len))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a line of it is no field and value");
    size_t name_len = (size_t)(blank - line), value_len = len - name_len - 1;
    size_t at = find_field(table, line, name_len, (size_t)__builtin_popcount(*seen));
    if (at == table->count)
        return DDP_OK;
    const struct field *field = &table->fields[at];
    if (*seen >> at & 1)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "it has '%s' twice", field->name);
    *seen |= UINT32_C(1) << at;
    if (!takers[field->kind](field, blank + 1, value_len, record))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "'%.*s' cannot be its '%s'",
                              (int)(value_len < 80 ? value_len : 80), blank + 1, field->name);
    return DDP_OK;
}

static ddp_status record_take_lines(const struct table *table, struct ddpi_bytes record, void *ret,
                                    struct ddp_error *err)
{
    const char *at = record.data, *end = at + record.len;
    uint32_t seen = 0;
    if (record.len > DDPI_ROUND_RECORD_MAX)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "it has %zu bytes; at most %d are possible",
                              record.len, DDPI_ROUND_RECORD_MAX);
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            return ddpi_error_set(err, DDP_E_PROTOCOL, "its last line has no newline");
        ddp_status status = record_take_line(table, at, (size_t)(newline - at), ret, &seen, err);
        if (status != DDP_OK)
            return status;
        at = newline + 1;
    }
    for (size_t i = 0; i < table->count; i++)
        if (!(seen >> i & 1) && !table->fields[i].newer)
            return ddpi_error_set(err, DDP_E_PROTOCOL, "it has no '%s'", table->fields[i].name);
    return DDP_OK;
}

static ddp_status record_get(const struct table *table, struct ddpi_bytes record, void *ret,
                             struct ddp_error *err)
{
    ddp_status status = record_take_lines(table, record, ret, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "this is no %s", table->what);
}

ddp_status ddpi_round_member_get(struct ddpi_bytes record, struct ddp_round_member *ret,
                                 struct ddp_error *err)
{
    struct ddp_round_member member = {0};
    ddp_status status = record_get(&member_table, record, &member, err);
    if (status == DDP_OK)
        status = check_terms(&member.terms, DDP_E_PROTOCOL, err);
    if (status == DDP_OK)
        *ret = member;
    return status;
}

ddp_status ddpi_round_seat_get(struct ddpi_bytes record, struct ddp_round_seat *ret,
                               struct ddp_error *err)
{
    struct ddp_round_seat seat = {0};
    ddp_status status = record_get(&seat_table, record, &seat, err);
    if (status == DDP_OK)
        *ret = seat;
    return status;
}

ddp_status ddpi_round_summary_get(struct ddpi_bytes record, struct ddpi_rounds_summary *ret,
                                  struct ddp_error *err)
{
    struct ddpi_rounds_summary summary = {0};
    ddp_status status = record_get(&summary_table, record, &summary, err);
    if (status == DDP_OK)
        *ret = summary;
    return status;
}

ddp_status ddpi_round_blame_get(struct ddpi_bytes record, struct ddpi_rounds_blame *ret,
                                struct ddp_error *err)
{
    struct ddpi_rounds_blame blame = {0};
    ddp_status status = record_get(&blame_table, record, &blame, err);
    if (status == DDP_OK)
        *ret = blame;
    return status;
}
