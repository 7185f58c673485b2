/*
 * job_view.h - a job as described by its keys in the store (round_keys.h): its state, its nodes and
 * their workers, and the requested changes. Pure: the caller reads or watches the keys and passes
 * in each value, in any order and any number of times; the value with the highest version counts.
 *
 * No text from the store is trusted. A record that cannot be decoded exists, and is marked bad.
 */
#ifndef CMD_JOB_VIEW_H
#define CMD_JOB_VIEW_H

#include "proof.h"
#include "round_record.h"
#include "worker_status.h"

/* The state of one key. */
struct job_record {
    uint64_t version; /* of its latest known change; 0: none */
    bool there;
    bool bad;
};

struct job_node {
    uint64_t id; /* in the order of joining */
    struct job_record member;
    struct ddp_round_member says;
    struct job_record order;
    struct ddp_round_seat seat;
    struct job_record node;
    char *workers; /* worker_status.h; NULL: unknown */
    size_t workers_len;
};

struct job_want {
    struct job_record record;
    char *what; /* "stop", "size", "drain/NAME", "admit/NAME" */
    char *value;
};

/* What is held against nodes of a name, which may be gone. */
struct job_blame {
    struct job_record record;
    char *name;
    struct ddpi_rounds_blame blame;
};

struct job_view {
    char name[DDPI_JOB_MAX + 1];
    struct job_record state;
    struct ddpi_rounds_summary summary;
    struct job_node **nodes; /* sorted by id, including nodes that left */
    size_t nnodes, nodes_size;
    struct job_want *wants; /* including withdrawn requests */
    size_t nwants, wants_size;
    struct job_blame *blames; /* including what is forgiven */
    size_t nblames, blames_size;
};

/* @name is a valid job name. */
void job_view_init(struct job_view *view, const char *name);
void job_view_finish(struct job_view *view);

/* Get the job's name from the key of its state. False: not such a key. */
bool job_view_name(const char *key, char name[DDPI_JOB_MAX + 1]);

/* Record that @key had this value at @version; @value NULL: it was deleted. Keys of other jobs are
 * ignored. DDP_E_NOMEM. */
ddp_status job_view_take(struct job_view *view, const char *key, uint64_t version,
                         const void *value, size_t value_len);

/* Drop nodes that have left, for a view that is kept for long: what comes in order of versions. */
void job_view_forget_gone(struct job_view *view);

/* ---- questions ---- */

/* Whether the job exists. */
static inline bool job_view_there(const struct job_view *view)
{
    return view->state.there;
}

/* Whether the job's state is known to be @state. A closed job stays so when its keys are gone. */
bool job_view_is(const struct job_view *view, enum ddpi_rounds_state state);

/* Whether the change @what is requested; its value goes to *@ret_value (may be NULL). */
bool job_view_wants(const struct job_view *view, const char *what, const char **ret_value);
bool job_view_drains(const struct job_view *view, const char *name);

/* Whether nodes named @name are left out; why goes to @text of @size bytes (may be NULL). */
bool job_view_left_out(const struct job_view *view, const char *name, char *text, size_t size);

/* The minimum and maximum number of nodes in force. */
void job_view_size(const struct job_view *view, uint32_t *ret_min, uint32_t *ret_max);

/* Parse "MIN:MAX". */
bool job_parse_size(const char *text, uint32_t *ret_min, uint32_t *ret_max);

/* The present nodes: first those with a seat, by node rank, then the others in the order of
 * joining. The caller frees the array. NULL: out of memory, with a count of 0. */
struct job_node **job_view_order(const struct job_view *view, size_t *ret_count);

/* Whether it has a seat in the latest generation, may be running workers, or is a spare. */
bool job_node_seated(const struct job_view *view, const struct job_node *node);
bool job_node_busy(const struct job_node *node);
bool job_node_spare(const struct job_node *node);
/* Why it is left out; NULL: it is not. */
const char *job_node_left_out(const struct job_node *node);
/* Whether its name is @name. */
bool job_node_is(const struct job_node *node, const char *name);

/* The number of nodes that can have a seat, not counting those named @name. */
uint32_t job_view_count_without(const struct job_view *view, const char *name);

/* Whether all workers of the latest generation have been started. */
bool job_view_up(const struct job_view *view);

/* What the nodes without a seat are waiting for; "": no node is waiting. */
const char *job_view_waiting(const struct job_view *view);

#endif
