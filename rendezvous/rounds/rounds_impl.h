/*
 * rounds_impl.h - what the parts of the round machine share: the machine, its members, and the
 * numbers that are kept of them, so that no step has to look at all members to find that nothing is
 * to be done. The functions are listed by file from the bottom to the top. No other folder includes
 * it.
 */
#ifndef DDPI_ROUNDS_IMPL_H
#define DDPI_ROUNDS_IMPL_H

#include "list.h"
#include "rounds.h"
#include "table.h"

/* What counts about a member. The machine always knows how many members have each trait. */
enum round_trait {
    ROUND_LIVE,     /* has not been told END */
    ROUND_WILLING,  /* may have a seat in the next generation, once nothing runs on it */
    ROUND_BUSY,     /* something of some generation may be running on it */
    ROUND_SPARE,    /* willing, not busy, without a seat in the latest generation */
    ROUND_SEATED,   /* in the latest generation */
    ROUND_ACTIVE,   /* seated and busy */
    ROUND_UP,       /* seated, and all its workers of the latest generation have started */
    ROUND_DONE,     /* seated, and all its workers of the latest generation have ended well */
    ROUND_DRAINED,  /* seated, drained, and not done */
    ROUND_LATE,     /* waits until the closed job is gone */
    ROUND_CHECKING, /* willing, if its check does not fail */
    ROUND_LEFT_OUT, /* would be willing, but is sick or in quarantine */
    ROUND_TRAITS
};

struct round_member {
    struct ddpi_table_node node; /* by id */
    struct ddpi_list of_job;     /* in order of arrival */
    struct ddpi_list of_news;    /* the next step computes its seat again */
    uint64_t id;
    uint64_t arrival;
    uint32_t traits; /* set of 1 << enum round_trait, as counted */
    bool seated;     /* in the latest generation; @seat says where */
    bool drained;
    bool late;    /* it came after the job was closed, and is no part of it */
    bool refused; /* its terms are not the job's */
    bool quarantined;
    uint32_t check; /* that it is asked for: the number that it has */
    struct ddp_round_member says;
    struct ddp_round_seat seat; /* as told last */
};

/* Why the running generation must stop. */
enum round_cause { ROUND_NO_CAUSE, ROUND_CAUSE_FAILURE, ROUND_CAUSE_MEMBER };

struct round_failure {
    bool known;
    uint64_t member;
    char node[DDP_ROUND_NAME_SIZE];
    struct ddp_round_failure record;
};

/* What failures in a row have in common; which of many workers fails first may be chance. */
enum round_pattern {
    ROUND_SAME_WORKER, /* the rank and the exit code */
    ROUND_SAME_NODE,   /* the node, one of several */
    ROUND_SAME_CODE,   /* the exit code */
    ROUND_PATTERNS
};

/* Failures in a row that are alike, each soon after the start of the workers. */
struct round_streak {
    uint32_t times;
    uint64_t since_ms;   /* when the first of them was judged */
    uint64_t longest_ms; /* the longest that one of the workers had run */
};

struct ddpi_rounds {
    struct ddpi_sm sm;
    struct ddpi_rounds_hooks hooks;
    struct ddpi_table by_id;      /* round_member::node */
    struct ddpi_list members;     /* round_member::of_job */
    struct ddpi_list news;        /* round_member::of_news */
    struct ddpi_table drained;    /* names */
    struct ddpi_table blamed;     /* names, with what is held against each (blame.c) */
    struct round_member **sorted; /* room for all members, so that a step needs no memory */
    size_t sorted_size;
    uint64_t arrivals;
    uint32_t count[ROUND_TRAITS];

    uint64_t generation; /* the latest that began */
    uint64_t last;       /* the latest that is known, begun here or not */
    uint32_t nodes;      /* of the latest */
    uint32_t world_size;
    uint32_t restarts;
    struct ddp_round_terms terms;
    struct ddpi_rounds_wish wish;
    bool formed;     /* this machine, or the one that it continues, has begun a generation */
    bool finishing;  /* a member is done with the latest generation */
    bool checkpoint; /* noted since the last step */
    bool forgotten;  /* a generation is known only because a new member has named it */
    bool stepped;
    uint64_t born_ms;  /* the first step */
    uint64_t begun_ms; /* the latest generation, or the first step if that is later */
    bool proven;       /* STOPPING: it ran long enough to speak for its nodes */

    uint64_t settle_ms;  /* FORMING: when to seat the members that have come; UINT64_MAX: too few */
    uint64_t refresh_ms; /* when the texts of waiting members may be told again */
    bool stale;          /* these texts are out of date */
    bool retell;         /* the next step computes all seats again */

    enum round_cause cause;
    bool failed; /* the latest generation stopped because workers failed or were lost */
    char reason[DDP_ROUND_TEXT_SIZE];
    char notice[DDP_ROUND_TEXT_SIZE]; /* what may keep nodes away that are waited for */
    bool judging; /* a failure stopped the generation, and no loss explains it so far */
    bool closing;
    int32_t exit_code; /* -1: of a failure whose exit code is not known yet */

    struct round_failure root;   /* the first failure of the latest generation */
    struct round_failure before; /* the root of the last generation that failed */
    struct round_streak streaks[ROUND_PATTERNS];
    uint64_t pause_ms;  /* before the next generation; 0: none */
    uint64_t resume_ms; /* PAUSING: when that is over */

    struct {
        char node[DDP_ROUND_NAME_SIZE]; /* "": none since the latest generation began */
        bool drained;                   /* else it left by itself */
    } departed;                         /* the first member that left in order and was needed */

    bool restored;            /* no step has followed the restoration */
    uint32_t restored_seated; /* members that should have a seat */

    bool recovering;
    uint64_t recovery_ms; /* when its cause was noted */
    uint64_t idle_ms;
    uint64_t seated_ms;
    uint64_t running_ms;

    struct ddpi_rounds_summary summary; /* as last reported */
};

static inline enum ddpi_rounds_state ddpi_rounds_state(const struct ddpi_rounds *rounds)
{
    return (enum ddpi_rounds_state)rounds->sm.state;
}

#define ddpi_rounds_member_of(list) ddpi_container_of(list, struct round_member, of_job)

/* ---- terms.c: terms, texts and seats ---- */

/* printf into a text of DDP_ROUND_TEXT_SIZE; all bytes after its end are 0, so that structures with
 * texts can be compared as bytes. */
void ddpi_rounds_say(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* How many nodes the terms and the users' wish allow. 1 <= min <= max. */
uint32_t ddpi_rounds_min(const struct ddpi_rounds *rounds);
uint32_t ddpi_rounds_max(const struct ddpi_rounds *rounds);
/* The first term that differs, with both values as users write them. */
enum { ROUND_TERM_SIZE = 24 };
struct round_difference {
    const char *option;
    char job[ROUND_TERM_SIZE], own[ROUND_TERM_SIZE];
};
/* Whether @own terms differ from the job's; *@ret then says how. */
bool ddpi_rounds_terms_differ(const struct ddp_round_terms *job, const struct ddp_round_terms *own,
                              struct round_difference *ret);
void ddpi_rounds_copy_seat(struct ddp_round_seat *to, const struct ddp_round_seat *from);

/* ---- traits.c: what counts about members ---- */

/* @member has changed, or what its traits depend on. */
void ddpi_rounds_recount(struct ddpi_rounds *rounds, struct round_member *member);
/* The next step computes @member's seat again. */
void ddpi_rounds_look_at(struct ddpi_rounds *rounds, struct round_member *member);

/* ---- blame.c: nodes that are left out ---- */

/* At the end of the machine. */
void ddpi_rounds_forget_all_blame(struct ddpi_rounds *rounds);
/* Nothing is held against any node any more. */
void ddpi_rounds_forgive_all(struct ddpi_rounds *rounds);
/* Whether nodes with this name are in quarantine. */
bool ddpi_rounds_in_quarantine(const struct ddpi_rounds *rounds, const char *name);
/* The generation has ended, and was stopped by the failure rounds->root if @failed. Returns whether
 * that sends the first cause's node into quarantine, which rounds->reason then says. */
bool ddpi_rounds_assign_blame(struct ddpi_rounds *rounds, bool failed);
/* Why @member is left out, into @text of DDP_ROUND_TEXT_SIZE; false: it is not. */
bool ddpi_rounds_why_left_out(const struct ddpi_rounds *rounds, const struct round_member *member,
                              char *text);
/* Appends to @text, of that size, "; left out: " and which nodes are, and why; or nothing. */
void ddpi_rounds_say_left_out(const struct ddpi_rounds *rounds, char *text);

/* ---- crash_loop.c: failures in a row that are alike ---- */

/* Counts the failure that has stopped the generation among those that are like it. By now its exit
 * code is known, if it ever will be. */
void ddpi_rounds_count_failure(struct ddpi_rounds *rounds, uint64_t now_ms);
/* Whether that failure would come again, however often the workers are started. */
bool ddpi_rounds_in_crash_loop(const struct ddpi_rounds *rounds, uint64_t now_ms);
/* How long to wait before they are; 0: not at all. */
uint64_t ddpi_rounds_pause_ms(const struct ddpi_rounds *rounds);
/* What has failed how often, and @what_follows, into @text of DDP_ROUND_TEXT_SIZE. */
void ddpi_rounds_say_loop(const struct ddpi_rounds *rounds, char *text, const char *what_follows);

/* ---- facts.c: members, and the facts noted about them ---- */

/* Notes what @member, which is seated in the latest generation, has said (or that it is @gone), if
 * that is why the generation must stop, or explains the failure that has stopped it. */
void ddpi_rounds_notice(struct ddpi_rounds *rounds, const struct round_member *member, bool gone);
/* All members of the closed job have left: makes a new job of those that have waited. The wishes
 * for the old job are forgotten. */
void ddpi_rounds_renew(struct ddpi_rounds *rounds);

/* ---- seats.c: seats, and what members are told ---- */

/* Gives out the seats of the next generation, for which there are enough members. */
ddp_status ddpi_rounds_seat_all(struct ddpi_rounds *rounds, struct ddp_error *err);
/* Tells the members whose seats have changed. */
void ddpi_rounds_tell(struct ddpi_rounds *rounds, uint64_t now_ms);

#endif
