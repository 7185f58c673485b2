/*
 * round_keys.h - rounds as keys: what members and people write below "round/JOB/" goes to the
 * machine of that job (rounds.h), and what the machine says becomes keys, which members watch.
 * Pure: it works on the key-value core alone.
 *
 *     member/ID        what a member says of itself (round_record.h), ephemeral; a member's ID is a
 *                      decimal number, and lower ones have come before
 *     node/ID          what people may want to know of its workers; nothing here reads it
 *     seat/ID          what the member is to do
 *     state            how the job stands
 *     want/stop        end the job; one from before its first member ends nothing, and is removed
 *     want/size        "MIN:MAX", how many nodes it is to have
 *     want/drain/NAME  nodes of this name are to go
 *
 * Whoever raises the key "epoch/JOB" has the next generation come after that.
 *
 * A job is there from its first member to its last, with which all its keys go; where others wait
 * for its end, what is wanted of it goes, and the rest becomes theirs. What changes is
 * noted, and acted upon at the end of the turn: so it is before the answers of that turn leave, and
 * in the same commit. A store that starts again with these keys goes on where it was.
 */
#ifndef DDPI_ROUND_KEYS_H
#define DDPI_ROUND_KEYS_H

#include "kv.h"
#include "round_names.h"
#include "rounds.h"

struct ddpi_round_keys;

struct ddpi_round_keys_hooks {
    void *ctx;
    /* The latest epoch that @job has had; its generations come behind it. */
    uint64_t (*epoch)(void *ctx, const char *job);
    /* As in struct ddpi_rounds_hooks; @store_is_master: the workers are to meet at the store. */
    ddp_status (*begin)(void *ctx, const char *job, uint64_t generation, bool store_is_master,
                        struct ddp_round_seat *seat, struct ddp_error *err);
    /* The store has started again, and a generation of @job is running, of which this is a seat. */
    void (*resume)(void *ctx, const char *job, const struct ddp_round_seat *seat);
    void (*changed)(void *ctx, const char *job, const struct ddpi_rounds_summary *before,
                    const struct ddpi_rounds_summary *now);
    /* Something could not be understood, or done. */
    void (*trouble)(void *ctx, const char *job, const char *what);
    /* The last member has gone; @job is forgotten. */
    void (*over)(void *ctx, const char *job);
};

/* NULL: no memory. @hooks is copied; they may change all keys but those with the prefix. */
struct ddpi_round_keys *ddpi_round_keys_create(struct ddpi_kv *kv,
                                               const uint8_t seed[DDPI_SEED_SIZE],
                                               const struct ddpi_round_keys_hooks *hooks);
/* Before the core is destroyed. NULL is allowed. */
void ddpi_round_keys_destroy(struct ddpi_round_keys *keys);

/* From the core's sink: note what has changed. */
void ddpi_round_keys_note(struct ddpi_round_keys *keys, const struct ddpi_mutation *mutation);

/* The core has been restored: look at all keys the next time. */
void ddpi_round_keys_restore(struct ddpi_round_keys *keys);

/* Act upon what was noted, and on the time. */
void ddpi_round_keys_act(struct ddpi_round_keys *keys, uint64_t now_ms);

/* When to act although nothing has changed; UINT64_MAX: never. */
uint64_t ddpi_round_keys_deadline(const struct ddpi_round_keys *keys);

/* Whether @job has members. */
bool ddpi_round_keys_has(const struct ddpi_round_keys *keys, struct ddpi_bytes job);

/* How many there are. */
void ddpi_round_keys_count(const struct ddpi_round_keys *keys, uint64_t *ret_jobs,
                           uint64_t *ret_members);

#endif
