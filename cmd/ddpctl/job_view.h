/*
 * job_view.h - a job as its keys in the store tell of it (round_keys.h): how it stands, its nodes
 * and their workers, what people want of it. Pure: whoever reads or watches the keys puts each of
 * them in, in any order and as often as he likes; of several values of a key the latest counts.
 *
 * Everything in the store is a stranger's text. A record that cannot be read is there, and bad.
 */
#ifndef CMD_JOB_VIEW_H
#define CMD_JOB_VIEW_H

#include "proof.h"
#include "round_record.h"
#include "worker_status.h"

/* A key's value. */
struct job_record {
    uint64_t version; /* of its latest change; 0: none is known */
    bool there;
    bool bad;
};

struct job_node {
    uint64_t id; /* lower ones have come before */
    struct job_record member;
    struct ddp_round_member says;
    struct job_record order;
    struct ddp_round_seat seat;
    struct job_record node;
    char *workers; /* worker_status.h; NULL: nothing is known of them */
    size_t workers_len;
};

struct job_want {
    struct job_record record;
    char *what; /* "stop", "size", "drain/NAME" */
    char *value;
};

struct job_view {
    char name[DDPI_JOB_MAX + 1];
    struct job_record state;
    struct ddpi_rounds_summary summary;
    struct job_node **nodes; /* by their ids; also such as have gone */
    size_t nnodes, nodes_size;
    struct job_want *wants; /* also such as are wanted no more */
    size_t nwants, wants_size;
};

/* @name is that of a job. */
void job_view_init(struct job_view *view, const char *name);
void job_view_finish(struct job_view *view);

/* The name of the job whose state @key holds; false: it is another key. */
bool job_view_name(const char *key, char name[DDPI_JOB_MAX + 1]);

/* @key of this job has, or had at some time, this value with this @version; @value NULL: it was
 * deleted. DDP_E_NOMEM. */
ddp_status job_view_take(struct job_view *view, const char *key, uint64_t version,
                         const void *value, size_t value_len);

/* ---- questions ---- */

/* The job is there. */
static inline bool job_view_there(const struct job_view *view)
{
    return view->state.there;
}

/* Its state can be read, and is this one. A job that was closed is so, too, when it has gone. */
bool job_view_is(const struct job_view *view, enum ddpi_rounds_state state);

/* This is wanted. The value goes to *@ret_value (may be NULL). */
bool job_view_wants(const struct job_view *view, const char *what, const char **ret_value);
bool job_view_drains(const struct job_view *view, const char *name);

/* How many nodes it is to have. */
void job_view_size(const struct job_view *view, uint32_t *ret_min, uint32_t *ret_max);

/* "MIN:MAX". */
bool job_parse_size(const char *text, uint32_t *ret_min, uint32_t *ret_max);

/* The nodes that are there, as people count them: those with a place first, by that; the others as
 * they have come. Freed by the caller; NULL: no memory, and a count of 0. */
struct job_node **job_view_order(const struct job_view *view, size_t *ret_count);

/* It has not gone. */
bool job_node_there(const struct job_node *node);
/* It has a place in the latest generation; something of that runs there, or may. */
bool job_node_seated(const struct job_view *view, const struct job_node *node);
bool job_node_busy(const struct job_node *node);
bool job_node_spare(const struct job_node *node);
/* It is called @name. */
bool job_node_is(const struct job_node *node, const char *name);

/* Nodes that can have a seat, without those called @name. */
uint32_t job_view_count_without(const struct job_view *view, const char *name);

/* All workers of the latest generation have been started. */
bool job_view_up(const struct job_view *view);

/* What those wait for who wait for a seat; "": nobody does. */
const char *job_view_waiting(const struct job_view *view);

#endif
