/*
 * round_keys_impl.h - what the files of the rounds' keys share: round_keys.c (jobs, and what
 * changes) and reload.c (all keys at once). Nobody else includes it.
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
        sizeof DDPI_ROUND_PREFIX + DDPI_JOB_MAX + sizeof "/want/drain/" + ROUND_ID_CHARS,
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
    bool store_is_master; /* some member has no port of its own for its workers to meet at */
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
    bool acting;   /* what changes now is our own doing */
    bool look_all; /* not all that has changed is noted */
    bool restored; /* the same, and jobs that are not known have been known to an earlier server */
};

/* The name of a key below a job's prefix. */
struct round_key {
    char text[ROUND_KEY_CHARS];
    struct ddpi_bytes all;
};

/* "round/JOB/" and @kind, and @id behind it if it is not 0. */
void ddpi_round_key(struct round_key *key, const struct round_job *job, const char *kind,
                    uint64_t id);
/* Take @prefix off @text, if it begins with that. */
bool ddpi_round_take_prefix(struct ddpi_bytes *text, const char *prefix);
/* The first part of @path, up to a slash, which is taken off. */
bool ddpi_round_take_part(struct ddpi_bytes *path, struct ddpi_bytes *ret);
/* Canonical decimal, so that a member has one key. */
bool ddpi_round_parse_id(struct ddpi_bytes text, uint64_t *ret);

void ddpi_round_trouble(const struct round_job *job, const struct ddp_error *err);
/* NULL: there is none. */
struct round_job *ddpi_round_find_job(const struct ddpi_round_keys *keys, struct ddpi_bytes name);
/* NULL: no memory. */
struct round_job *ddpi_round_job_create(struct ddpi_round_keys *keys, struct ddpi_bytes name);
/* What is wanted of the job as a whole. */
void ddpi_round_take_wants(struct round_job *job);
/* Somebody may have raised it. */
void ddpi_round_take_epoch(struct round_job *job);
/* The value of the key of a member, whose data are NULL where there is none. */
void ddpi_round_take_member(struct ddpi_round_keys *keys, struct ddpi_bytes name,
                            struct ddpi_bytes id_text, struct ddpi_bytes value);

/* reload.c */
void ddpi_round_look_at_all(struct ddpi_round_keys *keys);

#endif
