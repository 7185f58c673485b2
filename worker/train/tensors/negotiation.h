/*
 * negotiation.h - which named tensors all ranks want. Pure: lists of requests in, responses out.
 *
 * Every rank gives it the lists of all ranks, in the same order, and so every rank computes the
 * same responses in the same order. Lists come from other ranks and may be anything.
 */
#ifndef DDPI_NEGOTIATION_H
#define DDPI_NEGOTIATION_H

#include "name_table.h"
#include "tensor_request.h"

#include "list.h"

/* What all ranks of a set want, or why it is refused. */
struct ddpi_tensor_response {
    struct ddpi_tensor_request request;
    bool failed;
    bool from_cache;
    uint32_t last_joined;    /* of a join */
    struct ddp_error reason; /* if it has failed */
};

/* What a rank has told of a group. */
struct ddpi_group_share {
    uint32_t left; /* tensors of its group that it has not told of yet */
    bool failed;   /* those fail */
};

/* A group that some ranks want. */
struct ddpi_tensor_group {
    struct ddpi_list link;     /* in `open_groups` */
    struct ddpi_list members;  /* its tensors that have not failed, by `group_link` */
    struct ddpi_list complete; /* of these, those to which all ranks have come, by `link` */
    uint32_t ncomplete;
    uint32_t nuntold;        /* ranks that have some left */
    uint32_t set;            /* with `name` its name */
    struct ddp_error reason; /* why what is left fails */
    char name[DDPI_TENSOR_NAME];
    struct ddpi_group_share shares[]; /* for each rank */
};

/* A tensor that some ranks want. */
struct ddpi_wanted_tensor {
    struct ddpi_list link; /* in `wanted`; when all have come, in its group or in `ready` */
    struct ddpi_list group_link;
    struct ddpi_tensor_group *group; /* of the rank that came first; NULL: none, or it has failed */
    struct ddpi_tensor_response response;
    uint32_t first_rank;
    uint32_t ncome;
    uint64_t since_ms; /* when the first rank enqueued it, by this rank's clock */
    bool warned;
    uint8_t come[]; /* for each rank */
};

struct ddpi_process_set {
    uint32_t size;
    uint8_t *has; /* for each rank */
};

/* A rank that has a GPU gives zeros there, too. */
enum ddpi_joined { DDPI_NOT_JOINED, DDPI_JOINED, DDPI_JOINED_WITH_GPU };

struct ddpi_negotiation {
    uint32_t world_size;
    struct ddpi_process_set *sets; /* set 0 has all ranks */
    uint32_t nsets;
    struct ddpi_name_table names;
    struct ddpi_list wanted; /* in the order in which they came */
    struct ddpi_list ready;
    struct ddpi_name_table groups;
    struct ddpi_list open_groups;
    uint8_t *joined; /* for each rank: enum ddpi_joined */
    uint32_t njoined;
    uint32_t last_joined;
    bool stopped; /* a rank has asked all to stop */
    uint32_t stopped_by;
    struct ddpi_tensor_request stop; /* what it said */
};

/* DDP_E_NOMEM: nothing is to be finished. */
ddp_status ddpi_negotiation_init(struct ddpi_negotiation *negotiation, uint32_t world_size,
                                 struct ddp_error *err);
void ddpi_negotiation_finish(struct ddpi_negotiation *negotiation);

/* Add the set of the ranks for which @has is not 0; it becomes the last of the sets. */
ddp_status ddpi_negotiation_add_set(struct ddpi_negotiation *negotiation, const uint8_t *has,
                                    struct ddp_error *err);

/* Read the list of @rank. DDP_E_PROTOCOL: it is none that a rank would send; the negotiation can
 * only be finished then, and so after DDP_E_NOMEM. */
ddp_status ddpi_negotiation_take(struct ddpi_negotiation *negotiation, uint32_t rank,
                                 const void *list, size_t len, uint64_t now_ms,
                                 struct ddp_error *err);

/* Find what has become ready, after the lists of all ranks were taken. */
void ddpi_negotiation_settle(struct ddpi_negotiation *negotiation);

/* Whether @rank, which has joined, takes part in @request: its elements are 0, or it gives none. */
bool ddpi_negotiation_takes_part(const struct ddpi_negotiation *negotiation, uint32_t rank,
                                 const struct ddpi_tensor_request *request);

/* The next response: free it with ddpi_free(). NULL: there is none. */
struct ddpi_wanted_tensor *ddpi_negotiation_next(struct ddpi_negotiation *negotiation);

/* "1, 3 and 4": the ranks that have not asked for @wanted, at most six of them. */
enum { DDPI_RANKS_TEXT = 96 };
void ddpi_negotiation_missing(const struct ddpi_negotiation *negotiation,
                              const struct ddpi_wanted_tensor *wanted, char text[DDPI_RANKS_TEXT]);

#endif
