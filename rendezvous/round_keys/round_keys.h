/*
 * round_keys.h - rounds as keys: what members and users write below "round/JOB/" goes to the
 * machine of that job (rounds.h), and what the machine says becomes keys, which members watch.
 * Pure: it works on the key-value core alone.
 *
 *     member/ID        what a member says of itself (round_record.h), ephemeral; a member's ID is a
 *                      decimal number, and earlier members have lower ones
 *     node/ID          the state of the member's workers, for users; nothing here reads it
 *     seat/ID          what the member must do
 *     state            the state of the job
 *     want/stop        end the job; if it is older than the first member, it is removed
 *     want/size        "MIN:MAX", how many nodes the job should have
 *     want/drain/NAME  nodes with this name must go
 *     want/admit/NAME  nodes with this name may have seats again; removed when that is noted
 *     blame/NAME       what is held against nodes with this name (round_record.h)
 *
 * Raising the key "epoch/JOB" makes the next generation come after that epoch.
 *
 * A job exists from its first member to its last, with which all its keys go. Where other members
 * wait for its end, the keys below want/ go, and the other keys become theirs. A change is noted,
 * and acted upon at the end of the turn: before the answers of that turn leave, and in the same
 * commit. A store that starts again with these keys continues where it was.
 */
#ifndef DDPI_ROUND_KEYS_H
#define DDPI_ROUND_KEYS_H

#include "kv.h"
#include "round_names.h"
#include "rounds.h"

struct ddpi_round_keys;

struct ddpi_round_keys_hooks {
    void *ctx;
    bool named_only; /* members of DDPI_JOB_UNNAMED are refused */
    /* The latest epoch of @job; its next generation comes after it. */
    uint64_t (*epoch)(void *ctx, const char *job);
    /* As in struct ddpi_rounds_hooks; @store_is_master: the workers meet at the store. */
    ddp_status (*begin)(void *ctx, const char *job, uint64_t generation, bool store_is_master,
                        struct ddp_round_seat *seat, struct ddp_error *err);
    /* The store has restarted while a generation of @job is running; @seat is one of its seats. */
    void (*resume)(void *ctx, const char *job, const struct ddp_round_seat *seat);
    void (*changed)(void *ctx, const char *job, const struct ddpi_rounds_summary *before,
                    const struct ddpi_rounds_summary *now);
    /* Something could not be read, or written. */
    void (*trouble)(void *ctx, const char *job, const char *what);
    /* The last member is gone, and @job is forgotten. @closed: it had a result; else its nodes were
     * lost, and may come back. */
    void (*over)(void *ctx, const char *job, bool closed);
};

/* NULL: no memory. @hooks is copied; they may change all keys but those with the prefix. */
struct ddpi_round_keys *ddpi_round_keys_create(struct ddpi_kv *kv,
                                               const uint8_t seed[DDPI_SEED_SIZE],
                                               const struct ddpi_round_keys_hooks *hooks);
/* Before the core is destroyed. NULL is allowed. */
void ddpi_round_keys_destroy(struct ddpi_round_keys *keys);

/* Called from the core's sink: notes the change. */
void ddpi_round_keys_note(struct ddpi_round_keys *keys, const struct ddpi_mutation *mutation);

/* The core has been restored: the next act reads all keys. */
void ddpi_round_keys_restore(struct ddpi_round_keys *keys);

/* Acts upon the changes noted, and on the time. */
void ddpi_round_keys_act(struct ddpi_round_keys *keys, uint64_t now_ms);

/* When to act without a change; UINT64_MAX: never. */
uint64_t ddpi_round_keys_deadline(const struct ddpi_round_keys *keys);

/* Whether @job has members. */
bool ddpi_round_keys_has(const struct ddpi_round_keys *keys, struct ddpi_bytes job);

/* The name of a job with members that is not @job, until the next act; NULL: there is none. */
const char *ddpi_round_keys_other(const struct ddpi_round_keys *keys, const char *job);

/* The numbers of jobs and of members. */
void ddpi_round_keys_count(const struct ddpi_round_keys *keys, uint64_t *ret_jobs,
                           uint64_t *ret_members);

#endif
