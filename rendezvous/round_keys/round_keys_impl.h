/*
 * round_keys_impl.h - what the files of the rounds' keys share: the data, and what they call of
 * each other, from the bottom to the top; turn.c uses them all. No other folder includes it.
 */
#ifndef DDPI_ROUND_KEYS_IMPL_H
#define DDPI_ROUND_KEYS_IMPL_H

#include "buf.h"
#include "list.h"
#include "proof.h"
#include "round_keys.h"
#include "table.h"

enum {
    ROUND_ID_CHARS = 20,
    ROUND_KEY_CHARS =
        sizeof DDPI_ROUND_PREFIX + DDPI_JOB_MAX + sizeof "/want/drain/" + DDP_ROUND_NAME_SIZE,
};

struct round_job {
    struct ddpi_table_node node;
    struct ddpi_list of_keys;
    struct ddpi_round_keys *keys;
    struct ddpi_rounds *rounds;
    struct ddpi_rounds_summary told; /* to the hook */
    uint64_t deadline_ms;
    bool fed;             /* since the last step */
    bool changed;         /* in this step */
    bool introduced;      /* it has waited, and been compared with other jobs that wait */
    bool store_is_master; /* some member has no port at which its workers could meet */
    char name[DDPI_JOB_MAX + 1];
};

struct ddpi_round_keys {
    struct ddpi_kv *kv;
    struct ddpi_round_keys_hooks hooks;
    struct ddpi_table jobs; /* round_job::node */
    struct ddpi_list all;   /* round_job::of_keys */
    struct ddpi_buf noted;  /* packed names of keys */
    uint32_t nnoted;
    struct ddpi_buf record; /* being written */
    uint64_t deadline_ms;
    bool acting;   /* changes are made here, and not noted */
    bool look_all; /* a change could not be noted */
    bool restored; /* the same after a restart: jobs may be known from an earlier server */
};

/* The name of a key below a job's prefix. */
struct round_key {
    char text[ROUND_KEY_CHARS];
    struct ddpi_bytes all;
};

/* ---- round_jobs.c: jobs, and the names of their keys ---- */

/* "round/JOB/" and @kind, followed by @id if it is not 0. */
void ddpi_round_key(struct round_key *key, const struct round_job *job, const char *kind,
                    uint64_t id);
/* Takes @prefix off @text, if it begins with that. */
bool ddpi_round_take_prefix(struct ddpi_bytes *text, const char *prefix);
/* The first part of @path, up to a slash, which is taken off. */
bool ddpi_round_take_part(struct ddpi_bytes *path, struct ddpi_bytes *ret);
/* Canonical decimal, so that a member has one key. */
bool ddpi_round_parse_id(struct ddpi_bytes text, uint64_t *ret);

static inline struct round_job *ddpi_round_job_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct round_job, of_keys);
}

/* NULL: there is none. */
struct round_job *ddpi_round_find_job(const struct ddpi_round_keys *keys, struct ddpi_bytes name);
/* NULL: no memory. */
struct round_job *ddpi_round_job_create(struct ddpi_round_keys *keys, struct ddpi_bytes name);
void ddpi_round_job_destroy(struct round_job *job);
void ddpi_round_trouble(const struct round_job *job, const struct ddp_error *err);
/* Writes keys->record to @key, if @status, of its encoding, is DDP_OK; and empties it. */
ddp_status ddpi_round_poke_record(struct ddpi_round_keys *keys, struct ddpi_bytes key,
                                  ddp_status status, struct ddp_error *err);

/* ---- intake.c: keys that members and users write ---- */

/* The job's epoch may have been raised. */
void ddpi_round_take_epoch(struct round_job *job);
/* want/stop and want/size may have changed. */
void ddpi_round_take_wish(struct round_job *job);
/* want/drain/NAME was set (@drain), or removed. */
void ddpi_round_take_drain(struct round_job *job, struct ddpi_bytes name, bool drain);
/* want/admit/NAME was set. */
void ddpi_round_take_admit(struct round_job *job, struct ddpi_bytes name);
/* Reads all keys below want/. */
void ddpi_round_take_wants(struct round_job *job);
/* @value is that of member/ID; its data are NULL if there is no such key. */
void ddpi_round_take_member(struct ddpi_round_keys *keys, struct ddpi_bytes name,
                            struct ddpi_bytes id_text, struct ddpi_bytes value);

/* ---- reload.c: all keys at once ---- */

void ddpi_round_look_at_all(struct ddpi_round_keys *keys);

#endif
