/*
 * flight_compare.h - compares the operations that ranks have recorded: who is behind whom, and who
 * called something else. Pure.
 *
 * Ranks that recorded a communicator of the same name, size, id and instance are members of one
 * team. Its collectives are aligned by their numbers. Messages are not compared; the oldest that a
 * rank waits for is noted.
 */
#ifndef DDPI_FLIGHT_COMPARE_H
#define DDPI_FLIGHT_COMPARE_H

#include "flight_log.h"

/* X(symbol, name): what is the matter with a team; the first that applies. */
#define DDPI_FLIGHT_VERDICT_MAP(X)                                                           \
    X(DDPI_FLIGHT_DIFFER, "differ")         /* ranks called different things as @seq */      \
    X(DDPI_FLIGHT_COUNTS, "counts")         /* of @seq some send others than are expected */ \
    X(DDPI_FLIGHT_BEHIND, "behind")         /* some have not called @seq */                  \
    X(DDPI_FLIGHT_UNFINISHED, "unfinished") /* all have called @seq; some are in it */       \
    X(DDPI_FLIGHT_TOGETHER, "together")     /* all known ranks have called and left it */

enum ddpi_flight_verdict {
#define DDPI_FLIGHT_VERDICT_ENUM(symbol, name) symbol,
    DDPI_FLIGHT_VERDICT_MAP(DDPI_FLIGHT_VERDICT_ENUM)
#undef DDPI_FLIGHT_VERDICT_ENUM
};

struct ddpi_flight_member {
    const struct ddpi_flight_log *log;
    const struct ddpi_flight_group *group; /* NULL: it has not made the communicator */
    const struct ddpi_flight_op *last;     /* its latest collective; NULL: none, as far as known */
    const struct ddpi_flight_op *done;     /* its latest completed one; NULL: the same */
    const struct ddpi_flight_op *current;  /* the oldest that has not completed; NULL: none */
    const struct ddpi_flight_op *message;  /* the oldest pending message; NULL: none */
    const struct ddpi_flight_op *at_seq;   /* its collective @seq of the team; NULL: none */
    bool odd; /* DIFFER: it called something else than most; BEHIND: it has not called @seq;
                 UNFINISHED: it is in @seq */
};

struct ddpi_flight_team {
    const char *name;
    uint64_t id;
    uint32_t instance;
    uint32_t size;
    bool is_world; /* ranks in the team are ranks in the job */
    size_t count;
    struct ddpi_flight_member *members; /* those known, by their ranks in the job */
    uint32_t missing;                   /* ranks of which there are no records */
    enum ddpi_flight_verdict verdict;
    bool any;     /* a collective was called, so @seq is valid */
    uint64_t seq; /* that the verdict is about */
};

struct ddpi_flight_report {
    size_t count;
    struct ddpi_flight_team *teams; /* in the order in which the first rank made them */
};

/* Compare @count logs of one generation, which must outlive the report. DDP_E_NOMEM. */
DDP_MUST_CHECK ddp_status ddpi_flight_compare(const struct ddpi_flight_log *const *logs,
                                              size_t count, struct ddpi_flight_report **ret_report,
                                              struct ddp_error *err);
void ddpi_flight_report_destroy(struct ddpi_flight_report *report); /* NULL is allowed */

/* Whether the calls @a of @la and @b of @lb are the same but for their numbers. They are compared
 * by names, as ranks may have different versions of the library. */
bool ddpi_flight_same_call(const struct ddpi_flight_log *la, const struct ddpi_flight_op *a,
                           const struct ddpi_flight_log *lb, const struct ddpi_flight_op *b);

const char *ddpi_flight_verdict_name(enum ddpi_flight_verdict verdict);

/* The verdict as a sentence without its full stop: "rank 3 has not called all_reduce #17, in which
 * ranks 0 to 2 wait". */
enum { DDPI_FLIGHT_SENTENCE = 512 };
void ddpi_flight_sentence(const struct ddpi_flight_team *team, char text[DDPI_FLIGHT_SENTENCE]);

#endif
