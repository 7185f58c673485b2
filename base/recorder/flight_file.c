/*
 * flight_file.c - writes and copies the memory of flight_file.h. Owns nothing, makes no system
 * call.
 *
 * The first word of a record is number, status and state. The writer sets it to WRITING, writes the
 * rest, then sets it to SCHEDULED or STARTED; later it changes state by compare-and-swap, so that
 * an operation whose record has been given to a later one does not touch that. A reader that finds
 * another number after reading than before skips the record.
 */
#include "flight_file.h"

#include <string.h>

/* As it is in memory, so that another byte order or version does not match. */
const char ddpi_flight_magic[8] = "ddpfly\1";

enum { STATE_BITS = 8, STATUS_BITS = 8, NUMBER_SHIFT = STATE_BITS + STATUS_BITS, TRIES = 3 };

enum word {
    WORD_STATE,
    WORD_CREATED,
    WORD_STARTED,
    WORD_ENDED,
    WORD_SEQ,
    WORD_COUNT,
    WORD_WHO,
    WORD_WHAT
};

enum flag {
    FLAG_MESSAGE = 1,
    FLAG_SEND = 2,
    FLAG_ROOT = 4,
    FLAG_REDUCES = 8,
    FLAG_ELEMENTS = 16,
    FLAG_UNEVEN = 32,
    FLAG_PAIRS = 64
};

static uint64_t magic_number(void)
{
    uint64_t number;
    memcpy(&number, ddpi_flight_magic, sizeof number);
    return number;
}

static struct ddpi_flight_record *record_of(struct ddpi_flight_header *memory, uint32_t records,
                                            uint64_t number)
{
    struct ddpi_flight_record *ring = (struct ddpi_flight_record *)(memory + 1);
    return &ring[(number - 1) & (records - 1)];
}

uint32_t ddpi_flight_capacity(uint32_t wanted)
{
    uint32_t records = DDPI_FLIGHT_RECORDS_MIN;
    while (records < wanted && records < DDPI_FLIGHT_RECORDS_MAX)
        records *= 2;
    return records;
}

size_t ddpi_flight_size(uint32_t records)
{
    return sizeof(struct ddpi_flight_header) + records * sizeof(struct ddpi_flight_record);
}

void ddpi_flight_format(struct ddpi_flight_header *memory, uint32_t records)
{
    memory->magic = magic_number();
    memory->records = records;
    memory->header_size = sizeof *memory;
}

bool ddpi_flight_is_live(const struct ddpi_flight_header *memory, size_t size)
{
    return size >= sizeof *memory && memory->magic == magic_number() &&
           memory->header_size == sizeof *memory && memory->records >= DDPI_FLIGHT_RECORDS_MIN &&
           memory->records == ddpi_flight_capacity(memory->records) &&
           size >= ddpi_flight_size(memory->records);
}

/* ---- groups ---- */

static void load_words(const _Atomic uint64_t *from, uint64_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
}

static void store_words(_Atomic uint64_t *to, const uint64_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        atomic_store_explicit(&to[i], from[i], memory_order_relaxed);
}

/* Which group of this name the next one is. */
static uint32_t next_instance(const struct ddpi_flight_header *memory, const char *name)
{
    uint32_t instance = 0;
    for (size_t i = 0; i < DDPI_FLIGHT_GROUPS; i++) {
        union {
            struct ddpi_flight_group group;
            uint64_t words[DDPI_FLIGHT_GROUP_WORDS];
        } at;
        load_words(memory->group_words[i], at.words, DDPI_FLIGHT_GROUP_WORDS);
        if (at.group.serial != 0 && at.group.instance > instance &&
            strncmp(at.group.name, name, sizeof at.group.name) == 0)
            instance = at.group.instance;
    }
    return instance + 1;
}

/* The first word is the serial number. */
void ddpi_flight_add_group(struct ddpi_flight_header *memory, struct ddpi_flight_group *group)
{
    uint64_t words[DDPI_FLIGHT_GROUP_WORDS];
    group->instance = next_instance(memory, group->name);
    group->serial = atomic_fetch_add(&memory->groups, 1) + 1;
    memcpy(words, group, sizeof words);
    _Atomic uint64_t *to = memory->group_words[(group->serial - 1) % DDPI_FLIGHT_GROUPS];
    atomic_store_explicit(&to[0], 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    store_words(to + 1, words + 1, DDPI_FLIGHT_GROUP_WORDS - 1);
    atomic_store_explicit(&to[0], words[0], memory_order_release);
}

/* ---- records ---- */

static uint64_t state_word(uint64_t number, enum ddpi_flight_state state, int8_t status)
{
    return number << NUMBER_SHIFT | (uint64_t)(uint8_t)status << STATE_BITS | (uint64_t)state;
}

static uint64_t what_word(const struct ddpi_flight_op *op)
{
    unsigned flags = (op->is_message ? FLAG_MESSAGE : 0u) | (op->is_send ? FLAG_SEND : 0u) |
                     (op->has_root ? FLAG_ROOT : 0u) | (op->reduces ? FLAG_REDUCES : 0u) |
                     (op->has_elements ? FLAG_ELEMENTS : 0u) | (op->is_uneven ? FLAG_UNEVEN : 0u) |
                     (op->in_pairs ? FLAG_PAIRS : 0u);
    return (uint64_t)(uint16_t)op->group | (uint64_t)op->operation << 16 |
           (uint64_t)op->dtype << 24 | (uint64_t)op->reduction << 32 | (uint64_t)flags << 40 |
           (uint64_t)op->parts << 48;
}

void ddpi_flight_begin(struct ddpi_flight_header *memory, uint32_t records,
                       struct ddpi_flight_op *op)
{
    op->number = atomic_fetch_add_explicit(&memory->begun, 1, memory_order_relaxed) + 1;
    struct ddpi_flight_record *record = record_of(memory, records, op->number);
    const uint64_t words[DDPI_FLIGHT_OP_WORDS] = {
        [WORD_STATE] = state_word(op->number, DDPI_FLIGHT_WRITING, 0),
        [WORD_CREATED] = op->created_ns,
        [WORD_STARTED] = op->started_ns,
        [WORD_SEQ] = op->seq,
        [WORD_COUNT] = op->count,
        [WORD_WHO] = (uint64_t)op->timeout_ms << 32 | op->peer,
        [WORD_WHAT] = what_word(op),
    };
    atomic_store_explicit(&record->words[WORD_STATE], words[WORD_STATE], memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    store_words(record->words + 1, words + 1, DDPI_FLIGHT_OP_WORDS - 1);
    atomic_store_explicit(&record->words[WORD_STATE], state_word(op->number, op->state, 0),
                          memory_order_release);
}

bool ddpi_flight_waits(const struct ddpi_flight_header *memory, uint32_t records, uint64_t number)
{
    const struct ddpi_flight_record *record =
        &ddpi_flight_records(memory)[(number - 1) & (records - 1)];
    return atomic_load_explicit(&record->words[WORD_STATE], memory_order_relaxed) ==
           state_word(number, DDPI_FLIGHT_SCHEDULED, 0);
}

void ddpi_flight_move(struct ddpi_flight_header *memory, uint32_t records, uint64_t number,
                      enum ddpi_flight_state state, int8_t status, uint64_t now_ns)
{
    struct ddpi_flight_record *record = record_of(memory, records, number);
    uint64_t before = atomic_load_explicit(&record->words[WORD_STATE], memory_order_relaxed);
    if (before >> NUMBER_SHIFT != number || (before & 0xff) >= DDPI_FLIGHT_COMPLETED)
        return;
    size_t time = state == DDPI_FLIGHT_STARTED ? WORD_STARTED : WORD_ENDED;
    atomic_store_explicit(&record->words[time], now_ns, memory_order_relaxed);
    atomic_compare_exchange_strong_explicit(&record->words[WORD_STATE], &before,
                                            state_word(number, state, status), memory_order_release,
                                            memory_order_relaxed);
}

bool ddpi_flight_get(const struct ddpi_flight_record *record, struct ddpi_flight_op *ret_op)
{
    uint64_t words[DDPI_FLIGHT_OP_WORDS];
    load_words(record->words, words, DDPI_FLIGHT_OP_WORDS);
    uint64_t state = words[WORD_STATE] & ((1u << STATE_BITS) - 1);
    uint64_t what = words[WORD_WHAT];
    unsigned flags = (unsigned)(what >> 40 & 0xff);
    if (words[WORD_STATE] >> NUMBER_SHIFT == 0 || state == DDPI_FLIGHT_WRITING ||
        state >= DDPI_FLIGHT_STATES)
        return false;
    *ret_op = (struct ddpi_flight_op){
        .number = words[WORD_STATE] >> NUMBER_SHIFT,
        .state = (enum ddpi_flight_state)state,
        .status = (int8_t)(words[WORD_STATE] >> STATE_BITS & 0xff),
        .created_ns = words[WORD_CREATED],
        .started_ns = words[WORD_STARTED],
        .ended_ns = words[WORD_ENDED],
        .seq = words[WORD_SEQ],
        .count = words[WORD_COUNT],
        .timeout_ms = (uint32_t)(words[WORD_WHO] >> 32),
        .peer = (uint32_t)words[WORD_WHO],
        .group = (uint32_t)(what & 0xffff),
        .operation = (uint8_t)(what >> 16),
        .dtype = (uint8_t)(what >> 24),
        .reduction = (uint8_t)(what >> 32),
        .parts = (uint16_t)(what >> 48),
        .is_uneven = (flags & FLAG_UNEVEN) != 0,
        .in_pairs = (flags & FLAG_PAIRS) != 0,
        .is_message = (flags & FLAG_MESSAGE) != 0,
        .is_send = (flags & FLAG_SEND) != 0,
        .has_root = (flags & FLAG_ROOT) != 0,
        .reduces = (flags & FLAG_REDUCES) != 0,
        .has_elements = (flags & FLAG_ELEMENTS) != 0,
    };
    return true;
}

/* ---- counters ---- */

/* An atomic addition would cost some 8 ns, which a small all_reduce would feel. */
void ddpi_flight_add_all_reduced(struct ddpi_flight_header *memory, uint64_t serial, uint64_t bytes)
{
    bool shares = serial >= DDPI_FLIGHT_COUNTERS;
    _Atomic uint64_t *word = &memory->all_reduced[shares ? 0 : serial];
    if (shares)
        atomic_fetch_add_explicit(word, bytes, memory_order_relaxed);
    else
        atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + bytes,
                              memory_order_relaxed);
}

uint64_t ddpi_flight_all_reduced(const struct ddpi_flight_header *copy)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < DDPI_FLIGHT_COUNTERS; i++)
        bytes += atomic_load_explicit(&copy->all_reduced[i], memory_order_relaxed);
    return bytes;
}

/* ---- copies ---- */

/* Copy @count words whose first one tells them apart. False: they changed meanwhile, each time. */
static bool copy_whole(const _Atomic uint64_t *from, _Atomic uint64_t *to, size_t count)
{
    uint64_t words[DDPI_FLIGHT_GROUP_WORDS];
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load_explicit(&from[0], memory_order_acquire);
        load_words(from, words, count);
        words[0] = before;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&from[0], memory_order_relaxed) == before) {
            store_words(to, words, count);
            return true;
        }
    }
    return false;
}

size_t ddpi_flight_copy(const struct ddpi_flight_header *memory, uint32_t records, uint32_t last,
                        const struct ddpi_flight_place *place, struct ddpi_flight_header *copy)
{
    memset(copy, 0, sizeof *copy);
    ddpi_flight_format(copy, 0);
    copy->place = *place;
    memcpy(&copy->names, &memory->names, sizeof copy->names);
    uint64_t begun = atomic_load(&memory->begun);
    atomic_store(&copy->begun, begun);
    atomic_store(&copy->groups, atomic_load(&memory->groups));
    for (size_t i = 0; i < DDPI_FLIGHT_GROUPS; i++)
        (void)copy_whole(memory->group_words[i], copy->group_words[i], DDPI_FLIGHT_GROUP_WORDS);
    for (size_t i = 0; i < DDPI_FLIGHT_COUNTERS; i++)
        atomic_store_explicit(&copy->all_reduced[i],
                              atomic_load_explicit(&memory->all_reduced[i], memory_order_relaxed),
                              memory_order_relaxed);
    uint64_t most = last < records ? last : records;
    most = most < begun ? most : begun;
    struct ddpi_flight_record *to = (struct ddpi_flight_record *)(copy + 1);
    const struct ddpi_flight_record *from = ddpi_flight_records(memory);
    for (uint64_t number = begun - most; number < begun; number++)
        copy->records += copy_whole(from[number & (records - 1)].words, to[copy->records].words,
                                    DDPI_FLIGHT_OP_WORDS);
    return ddpi_flight_size(copy->records);
}
