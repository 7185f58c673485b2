/*
 * flight_file.h - the format of the flight recorder: the last operations of a rank, in memory that
 * its agent made and keeps, so that they can be read after the rank has died.
 *
 * A header, then a ring of records. The process of the rank writes; any number of its threads and
 * communicators share one ring. The agent makes the memory and copies it at any time; a copy has
 * the same format and can be sent or written to a file. Nobody trusts the writer: a reader takes
 * sizes from what it has made itself, skips records that change while it reads them, and checks the
 * rest (flight_log.h). Numbers have the byte order of the machine, and the magic number shows it.
 *
 * All of it is 64-bit words that are read and written one by one; flight_file.c packs them.
 */
#ifndef DDPI_FLIGHT_FILE_H
#define DDPI_FLIGHT_FILE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The seals identify the memory file, as in life_slot.h. */
#define DDPI_FLIGHT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* The environment variable of a worker that has the descriptor of its file; "" without one. */
#define DDPI_FLIGHT_FD_ENV "DDPRUN_FLIGHT_FD"

enum {
    DDPI_FLIGHT_RECORDS_MIN = 16,
    DDPI_FLIGHT_RECORDS_MAX = 65536,
    DDPI_FLIGHT_RECORDS_DEFAULT = 2048, /* 128 KiB */
    DDPI_FLIGHT_NAME_SIZE = 16,         /* of an operation, a type or a reduction, with its NUL */
    DDPI_FLIGHT_OPERATIONS = 48,
    DDPI_FLIGHT_DTYPES = 32,
    DDPI_FLIGHT_REDUCTIONS = 16,
    DDPI_FLIGHT_GROUPS = 16, /* the latest communicators of the process */
    DDPI_FLIGHT_GROUP_NAME = 104,
    DDPI_FLIGHT_HOST_SIZE = 64,
    DDPI_FLIGHT_COUNTERS = 32,
};

enum ddpi_flight_state {
    DDPI_FLIGHT_WRITING,
    DDPI_FLIGHT_SCHEDULED, /* called; it waits for its turn, or for a stream */
    DDPI_FLIGHT_STARTED,
    DDPI_FLIGHT_COMPLETED,
    DDPI_FLIGHT_FAILED,
    DDPI_FLIGHT_STATES
};

/* One operation. Times are of CLOCK_MONOTONIC, in nanoseconds; 0: not yet. */
struct ddpi_flight_op {
    uint64_t number; /* among all operations of the process, from 1 */
    enum ddpi_flight_state state;
    int8_t status; /* of a failed one */
    uint64_t created_ns, started_ns, ended_ns;
    uint64_t seq;   /* in its group: of collectives, or of messages to or from @peer */
    uint64_t count; /* elements */
    uint32_t timeout_ms;
    uint32_t peer;  /* or root */
    uint32_t group; /* serial number of its group, modulo 2^16 */
    uint8_t operation, dtype, reduction;
    uint16_t parts; /* of uneven parts, or a list of buffers: the digest of their counts; or, if
                       @in_pairs, numbers whose sum is 0 if ranks agree about the counts */
    bool is_uneven, in_pairs;
    bool is_message; /* between two ranks only: @peer is the other one */
    bool is_send;
    bool has_root;
    bool reduces;
    bool has_elements;
};

/* A communicator of the process. */
struct ddpi_flight_group {
    uint64_t serial; /* from 1; 0: none */
    uint64_t id;     /* the same on all its ranks, and of no other one; 0: not known */
    uint32_t rank, size;
    uint32_t instance; /* which one of this name it is in this process, from 1 */
    uint32_t pid;
    char name[DDPI_FLIGHT_GROUP_NAME];
};

enum ddpi_flight_process {
    DDPI_FLIGHT_RUNS,
    DDPI_FLIGHT_ENDED,  /* with ddpi_flight_place::exit_code */
    DDPI_FLIGHT_STOPPED /* by SIGSTOP, for example */
};

/* Where and when a copy was made; the writer does not know it. */
struct ddpi_flight_place {
    uint64_t generation;
    uint64_t read_ns;      /* CLOCK_MONOTONIC */
    uint64_t read_real_ns; /* CLOCK_REALTIME at the same moment */
    uint32_t rank, world_size;
    uint32_t node_rank, local_rank;
    uint32_t pid;
    uint32_t process; /* enum ddpi_flight_process */
    int32_t exit_code;
    uint32_t no_recorder; /* 1: the process has nothing to record to */
    char host[DDPI_FLIGHT_HOST_SIZE];
};

enum { DDPI_FLIGHT_OP_WORDS = 8, DDPI_FLIGHT_GROUP_WORDS = sizeof(struct ddpi_flight_group) / 8 };

/* The names of what the records have as numbers, from the library that writes them. */
struct ddpi_flight_names {
    char operations[DDPI_FLIGHT_OPERATIONS][DDPI_FLIGHT_NAME_SIZE];
    char dtypes[DDPI_FLIGHT_DTYPES][DDPI_FLIGHT_NAME_SIZE];
    char reductions[DDPI_FLIGHT_REDUCTIONS][DDPI_FLIGHT_NAME_SIZE];
};

struct ddpi_flight_record {
    _Atomic uint64_t words[DDPI_FLIGHT_OP_WORDS];
};

struct ddpi_flight_header {
    uint64_t magic;
    uint32_t records;     /* that follow the header; in the live file a power of two */
    uint32_t header_size; /* another version has another one */
    struct ddpi_flight_place place;
    struct ddpi_flight_names names;
    _Atomic uint64_t begun;  /* operations */
    _Atomic uint64_t groups; /* communicators */
    _Atomic uint64_t group_words[DDPI_FLIGHT_GROUPS][DDPI_FLIGHT_GROUP_WORDS];
    /* Bytes that all_reduce has reduced. Each of the first communicators has a word of its own,
     * which no other thread writes to at the same time; the others share word 0. */
    _Atomic uint64_t all_reduced[DDPI_FLIGHT_COUNTERS];
    uint64_t spare[5];
};

_Static_assert(sizeof(struct ddpi_flight_record) == 64, "a record is a cache line");
_Static_assert(sizeof(struct ddpi_flight_header) % 64 == 0, "records begin at a cache line");
_Static_assert(sizeof(struct ddpi_flight_group) % 8 == 0, "a group is whole words");

/* ---- the agent ---- */

/* @wanted rounded up to what a file can have. */
uint32_t ddpi_flight_capacity(uint32_t wanted);

/* The bytes of a file of @records. */
size_t ddpi_flight_size(uint32_t records);

/* Begin a file of @records at @memory, which has zeros. */
void ddpi_flight_format(struct ddpi_flight_header *memory, uint32_t records);

/* Copy the file of @records at @memory, which may be in use, with its last @last records at most,
 * to @copy, of ddpi_flight_size(@last) bytes. Returns the bytes of the copy. */
size_t ddpi_flight_copy(const struct ddpi_flight_header *memory, uint32_t records, uint32_t last,
                        const struct ddpi_flight_place *place, struct ddpi_flight_header *copy);

/* ---- the writer ---- */

/* Whether the @size bytes at @memory are a file to write to. */
bool ddpi_flight_is_live(const struct ddpi_flight_header *memory, size_t size);

/* Add a group; sets serial and instance of @group. */
void ddpi_flight_add_group(struct ddpi_flight_header *memory, struct ddpi_flight_group *group);

/* Add a record; sets number of @op. @records: what the header said when it was checked. */
void ddpi_flight_begin(struct ddpi_flight_header *memory, uint32_t records,
                       struct ddpi_flight_op *op);

/* Whether the operation still waits for its start. */
bool ddpi_flight_waits(const struct ddpi_flight_header *memory, uint32_t records, uint64_t number);

/* The operation has got to @state at @now_ns. Nothing happens if it has ended, or if its record is
 * gone. */
void ddpi_flight_move(struct ddpi_flight_header *memory, uint32_t records, uint64_t number,
                      enum ddpi_flight_state state, int8_t status, uint64_t now_ns);

/* An all_reduce of @bytes has ended well in the group that has the @serial number; calls for one
 * group must not overlap. */
void ddpi_flight_add_all_reduced(struct ddpi_flight_header *memory, uint64_t serial,
                                 uint64_t bytes);

/* ---- a reader of a copy ---- */

/* Bytes that all_reduce has reduced, in all groups. */
uint64_t ddpi_flight_all_reduced(const struct ddpi_flight_header *copy);

/* Decode a record. False: it is empty, or was being written. */
bool ddpi_flight_get(const struct ddpi_flight_record *record, struct ddpi_flight_op *ret_op);

static inline const struct ddpi_flight_record *
ddpi_flight_records(const struct ddpi_flight_header *memory)
{
    return (const struct ddpi_flight_record *)(memory + 1);
}

extern const char ddpi_flight_magic[8];

#endif
