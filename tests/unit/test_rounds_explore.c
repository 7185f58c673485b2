/*
 * test_rounds_explore.c - the round machine with two or three small members, through all events in
 * all orders up to some depth: messages arrive at any later time, workers end at any later time,
 * members fail, leave and come, and the server starts again.
 *
 * A path is a sequence of events; a situation that has been met before is not followed again. In
 * each one, the promises of rounds.h hold; and when from then on nothing more goes wrong, the job
 * gets going again.
 */
#include "check_main.h"
#include "rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGENTS = 3, DEPTH_MAX = 24, SITUATIONS = 1 << 18, MIN_NODES = 2 };

/* Per agent, then of the job. */
enum event { JOIN, SEE, SAY, UP, CLEARED, DONE, FAIL, LOST, LEAVE, FIT, UNFIT, PER_AGENT };
enum job_event { TIME, RESTART, DRAIN, UNDRAIN, STOP, ADMIT, JOB_EVENTS };

struct agent {
    bool there;
    uint64_t id;
    uint64_t runs; /* workers of this generation are alive; 0: none */
    bool ending;   /* and will not be for long */
    bool unseen;   /* it has been told @told, and does not know yet */
    bool unsaid;   /* the machine does not know @says yet */
    struct ddp_round_member says;
    struct ddp_round_seat told;
    struct ddp_round_member heard; /* by the machine */
};

struct world {
    struct ddpi_rounds *rounds;
    struct agent agents[AGENTS];
    unsigned count;
    uint32_t quarantine;                     /* 0: nodes are not checked either */
    struct ddpi_rounds_blame blamed[AGENTS]; /* as a store would keep it; 0 failures: nothing */
    uint64_t now_ms, ids, generation;
    bool drained, stopped;
    bool lost;         /* a member that was running the latest generation, or was not fit */
    bool free;         /* in this step a node was sent into quarantine */
    uint32_t restarts; /* when that was begun */
};

struct path {
    uint8_t events[DEPTH_MAX];
    unsigned len;
};

/* Like an assertion of Check, which would write to a pipe each time that all is well. */
static void must(bool holds, const char *what)
{
    if (!holds)
        ck_abort_msg("%s", what);
}

/* ---- the machine's side ---- */

static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    (void)seat, (void)err;
    struct world *world = ctx;
    must(generation > world->generation, "a generation came before");
    world->generation = generation;
    world->lost = false;
    for (unsigned i = 0; i < world->count; i++)
        must(world->agents[i].runs == 0, "a generation begins while another runs");
    return DDP_OK;
}

static void on_seat(void *ctx, uint64_t member, const struct ddp_round_seat *seat)
{
    struct world *world = ctx;
    for (unsigned i = 0; i < world->count; i++) {
        struct agent *agent = &world->agents[i];
        if (!agent->there)
            continue;
        if (agent->id == member) {
            bool fit = agent->heard.sick[0] == '\0' && !world->blamed[i].left_out;
            must(seat->order != DDP_ROUND_RUN || (fit && !agent->heard.checking),
                 "a node that is not fit has a seat");
            agent->told = *seat;
            agent->unseen = true;
        } else if (seat->order == DDP_ROUND_RUN && agent->told.order == DDP_ROUND_RUN &&
                   agent->told.generation == seat->generation) {
            must(agent->told.node_rank != seat->node_rank &&
                     agent->told.first_rank != seat->first_rank,
                 "two have one rank");
        }
    }
}

static void on_changed(void *ctx)
{
    (void)ctx;
}

static void on_blame(void *ctx, const char *name, const struct ddpi_rounds_blame *blame)
{
    struct world *world = ctx;
    struct ddpi_rounds_blame none = {0};
    world->blamed[name[0] - 'a'] = blame != NULL ? *blame : none;
    world->free |= blame != NULL && blame->left_out;
}

static struct ddpi_rounds_hooks hooks_of(struct world *world)
{
    return (struct ddpi_rounds_hooks){world, on_begin, on_seat, on_changed, on_blame};
}

static struct ddpi_rounds_summary summary_of(const struct world *world)
{
    struct ddpi_rounds_summary summary;
    ddpi_rounds_summary(world->rounds, &summary);
    return summary;
}

/* No member of the closed job is left, and none of the wishes for it. */
static void must_be_new(const struct world *world, const struct ddpi_rounds_summary *summary)
{
    must(summary->restarts == 0 && !summary->closing && summary->exit_code == 0,
         "a job begins with another's history");
    for (unsigned i = 0; i < world->count; i++)
        must(!world->agents[i].there || world->agents[i].told.order != DDP_ROUND_END,
             "the job before has not left");
}

static void step(struct world *world)
{
    bool lost = world->lost; /* in the generation that this step may leave */
    bool closed = summary_of(world).state == ROUNDS_CLOSED;
    ddpi_rounds_step(world->rounds, world->now_ms);
    struct ddpi_rounds_summary summary = summary_of(world);
    must(!world->free || summary.restarts == world->restarts, "quarantine has cost a restart");
    world->free = false;
    if (closed && summary.state != ROUNDS_CLOSED) {
        must_be_new(world, &summary);
        lost = world->lost = world->stopped = world->drained = false;
    }
    if (lost) {
        must(summary.restarts == world->restarts, "a loss has cost a restart");
        must(summary.state != ROUNDS_CLOSED || summary.exit_code != 5, "a loss has cost the job");
    }
    world->restarts = summary.restarts;
}

static void restart(struct world *world)
{
    struct ddpi_rounds_hooks hooks = hooks_of(world);
    struct ddpi_rounds_summary summary = summary_of(world);
    ddpi_rounds_destroy(world->rounds);
    world->rounds = ddpi_rounds_create(&hooks, world->generation);
    ddpi_rounds_restore(world->rounds, &summary);
    for (unsigned i = 0; i < world->count; i++) {
        struct agent *agent = &world->agents[i];
        if (!agent->there)
            continue;
        must(ddpi_rounds_member(world->rounds, agent->id, &agent->heard) == DDP_OK, "no memory");
        ddpi_rounds_restore_seat(world->rounds, agent->id, &agent->told);
    }
    for (unsigned i = 0; i < world->count; i++)
        if (world->blamed[i].failures != 0)
            must(ddpi_rounds_restore_blame(world->rounds, (char[2]){(char)('a' + i), '\0'},
                                           &world->blamed[i]) == DDP_OK,
                 "no memory");
    if (world->drained)
        must(ddpi_rounds_drain(world->rounds, "a", true) == DDP_OK, "no memory");
    ddpi_rounds_wish(world->rounds, &(struct ddpi_rounds_wish){.stop = world->stopped});
}

/* ---- the members' side ---- */

static void say(struct agent *agent, enum ddp_round_phase phase, uint64_t generation)
{
    agent->says.phase = phase;
    agent->says.generation = generation;
    agent->unsaid = true;
}

static bool is_active(const struct world *world, const struct agent *agent);

static void deliver(struct world *world, struct agent *agent)
{
    bool awaited = agent->heard.checking && summary_of(world).judging;
    bool sick = agent->says.sick[0] != '\0' && agent->heard.sick[0] == '\0';
    world->lost |= sick && (is_active(world, agent) || awaited) && !agent->says.leaving;
    agent->unsaid = false;
    agent->heard = agent->says;
    must(ddpi_rounds_member(world->rounds, agent->id, &agent->says) == DDP_OK, "no memory");
}

static void join(struct world *world, struct agent *agent, unsigned index)
{
    *agent = (struct agent){.there = true, .id = ++world->ids};
    agent->says = (struct ddp_round_member){
        .nproc = 1,
        .node_rank = -1,
        .terms = {.min_nodes = MIN_NODES, .max_nodes = 3, .max_restarts = 1, .settle_ms = 10}};
    agent->says.terms.quarantine = world->quarantine;
    (void)snprintf(agent->says.name, sizeof agent->says.name, "%c", 'a' + (int)index);
    deliver(world, agent);
}

/* The machine has seated it, and does not know that it has ended its workers in order. */
static bool is_active(const struct world *world, const struct agent *agent)
{
    enum ddpi_rounds_state state = summary_of(world).state;
    bool told = agent->told.generation == world->generation &&
                (agent->told.order == DDP_ROUND_RUN || agent->told.order == DDP_ROUND_STOP);
    bool idle = agent->heard.generation == world->generation &&
                (agent->heard.phase == DDP_ROUND_IDLE || agent->heard.phase == DDP_ROUND_DONE);
    return (state == ROUNDS_RUNNING || state == ROUNDS_STOPPING) && told && !idle &&
           !agent->heard.leaving;
}

static void vanish(struct world *world, struct agent *agent)
{
    world->lost |= is_active(world, agent);
    ddpi_rounds_gone(world->rounds, agent->id);
    memset(agent, 0, sizeof *agent);
}

static void see(struct world *world, struct agent *agent)
{
    uint64_t generation = agent->told.generation;
    agent->unseen = false;
    switch (agent->told.order) {
    case DDP_ROUND_RUN:
        if (agent->runs != 0 || agent->says.leaving || generation <= agent->says.generation ||
            agent->says.checking || agent->says.sick[0] != '\0')
            return;
        agent->runs = generation;
        say(agent, DDP_ROUND_STARTING, generation);
        return;
    case DDP_ROUND_STOP:
        if (agent->runs != 0)
            agent->ending = true;
        else if (generation > agent->says.generation || agent->says.phase != DDP_ROUND_IDLE)
            say(agent, DDP_ROUND_IDLE, generation);
        return;
    case DDP_ROUND_WAIT:
        agent->ending = agent->runs != 0;
        agent->unsaid |= agent->told.check > agent->says.checks;
        agent->says.checking |= agent->told.check > agent->says.checks;
        return;
    case DDP_ROUND_END:
        if (agent->runs != 0)
            agent->ending = true;
        else
            vanish(world, agent);
        return;
    }
}

static void break_down(struct agent *agent)
{
    agent->says.failure = (struct ddp_round_failure){
        .generation = agent->runs, .rank = agent->told.first_rank, .exit_code = 5, .ran_ms = 1};
    agent->ending = true;
    agent->unsaid = true;
}

static void check(struct agent *agent, bool fails)
{
    agent->says.checking = false;
    agent->says.checks++;
    agent->says.sick[0] = fails ? 'x' : '\0';
    agent->unsaid = true;
    agent->unseen = true; /* it looks now */
}

static bool agent_event(struct world *world, unsigned index, enum event event)
{
    struct agent *agent = &world->agents[index];
    if (agent->there == (event == JOIN))
        return false;
    switch (event) {
    case JOIN:
        join(world, agent, index);
        return true;
    case SEE: /* while it is ending workers, it looks at nothing */
        if (!agent->unseen || agent->ending)
            return false;
        see(world, agent);
        return true;
    case SAY:
        if (!agent->unsaid)
            return false;
        deliver(world, agent);
        return true;
    case UP:
        if (agent->runs == 0 || agent->ending || agent->says.phase != DDP_ROUND_STARTING)
            return false;
        say(agent, DDP_ROUND_RUNNING, agent->runs);
        return true;
    case CLEARED:
        if (!agent->ending)
            return false;
        say(agent, DDP_ROUND_IDLE, agent->runs);
        agent->says.checking = world->quarantine != 0;
        agent->runs = 0;
        agent->ending = false;
        agent->unseen = true; /* it looks now */
        return true;
    case DONE:
        if (agent->runs == 0 || agent->ending || agent->says.phase != DDP_ROUND_RUNNING)
            return false;
        say(agent, DDP_ROUND_DONE, agent->runs);
        agent->runs = 0;
        return true;
    case FAIL:
        if (agent->runs == 0 || agent->ending)
            return false;
        break_down(agent);
        return true;
    case LOST:
        vanish(world, agent);
        return true;
    case LEAVE:
        if (agent->says.leaving)
            return false;
        agent->says.leaving = agent->unsaid = true;
        agent->ending = agent->runs != 0;
        return true;
    case FIT:
    case UNFIT:
        if (!agent->says.checking)
            return false;
        check(agent, event == UNFIT);
        return true;
    case PER_AGENT:
        break;
    }
    return false;
}

static bool job_event(struct world *world, enum job_event event)
{
    switch (event) {
    case TIME:
        if (ddpi_rounds_deadline(world->rounds) == UINT64_MAX)
            return false;
        world->now_ms += 1000;
        return true;
    case RESTART:
        restart(world);
        return true;
    case DRAIN:
    case UNDRAIN:
        if (world->drained == (event == DRAIN))
            return false;
        world->drained = event == DRAIN;
        must(ddpi_rounds_drain(world->rounds, "a", world->drained) == DDP_OK, "no memory");
        return true;
    case STOP:
        if (world->stopped)
            return false;
        world->stopped = true;
        ddpi_rounds_wish(world->rounds, &(struct ddpi_rounds_wish){.stop = true});
        return true;
    case ADMIT:
        if (world->quarantine == 0)
            return false;
        ddpi_rounds_admit(world->rounds, "a");
        return true;
    case JOB_EVENTS:
        break;
    }
    return false;
}

/* false: it cannot happen now. */
static bool happen(struct world *world, unsigned event)
{
    bool happened = event < PER_AGENT * world->count
                        ? agent_event(world, event / PER_AGENT, (enum event)(event % PER_AGENT))
                        : job_event(world, (enum job_event)(event - PER_AGENT * world->count));
    if (happened)
        step(world);
    return happened;
}

/* ---- situations ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* All that can make a difference. */
static uint64_t situation(const struct world *world)
{
    struct ddpi_rounds_summary summary = summary_of(world);
    uint64_t deadline_ms = ddpi_rounds_deadline(world->rounds);
    uint64_t hash = mix(mix(summary.state, summary.generation), summary.restarts);
    hash = mix(mix(hash, summary.closing), (uint64_t)summary.exit_code);
    hash = mix(mix(hash, summary.judging), world->lost);
    hash = mix(hash, deadline_ms == UINT64_MAX ? 0 : deadline_ms <= world->now_ms ? 1 : 2);
    hash = mix(hash, (uint64_t)world->drained << 1 | world->stopped);
    for (unsigned i = 0; i < world->count; i++) {
        const struct agent *agent = &world->agents[i];
        hash = mix(hash, (uint64_t)agent->there << 3 | (uint64_t)agent->ending << 2 |
                             (uint64_t)agent->unseen << 1 | agent->unsaid);
        hash = mix(mix(hash, agent->runs), agent->told.order);
        hash = mix(mix(hash, agent->told.generation), agent->told.node_rank);
        const struct ddp_round_member *said[] = {&agent->says, &agent->heard};
        for (unsigned j = 0; j < 2; j++)
            hash = mix(mix(mix(mix(hash, said[j]->phase), said[j]->generation),
                           said[j]->leaving | (unsigned)said[j]->checking << 1 |
                               (unsigned)(unsigned char)said[j]->sick[0] << 2),
                       said[j]->failure.generation);
        hash = mix(mix(hash, world->blamed[i].failures),
                   (uint64_t)agent->told.check << 32 | agent->says.checks);
    }
    return hash;
}

static void world_init(struct world *world, unsigned agents)
{
    memset(world, 0, sizeof *world);
    world->count = agents;
    struct ddpi_rounds_hooks hooks = hooks_of(world);
    world->rounds = ddpi_rounds_create(&hooks, 0);
    must(world->rounds != NULL, "no memory");
}

static bool running(const struct world *world)
{
    if (summary_of(world).state != ROUNDS_RUNNING)
        return false;
    for (unsigned i = 0; i < world->count; i++)
        if (world->agents[i].there && world->agents[i].told.order == DDP_ROUND_RUN &&
            world->agents[i].runs != world->generation &&
            world->agents[i].says.phase != DDP_ROUND_DONE)
            return false;
    return true;
}

/* There is a reason for which nothing runs. */
static bool excused(const struct world *world)
{
    struct ddpi_rounds_summary summary = summary_of(world);
    unsigned there = 0, fit = 0;
    for (unsigned i = 0; i < world->count; i++) {
        const struct agent *agent = &world->agents[i];
        there += agent->there;
        fit += agent->there && agent->says.sick[0] == '\0' && !world->blamed[i].left_out;
    }
    return summary.state == ROUNDS_CLOSED ? there == 0
                                          : summary.state == ROUNDS_FORMING && fit < MIN_NODES;
}

/* From here on everything goes well, and members that are leaving leave. */
static void settle(struct world *world)
{
    for (unsigned turn = 0; turn < 12; turn++) {
        for (unsigned i = 0; i < world->count; i++) {
            static const enum event good[] = {CLEARED, FIT, SAY, SEE, FIT, SAY, UP, SAY};
            for (unsigned j = 0; j < sizeof good / sizeof *good; j++)
                (void)happen(world, i * PER_AGENT + (unsigned)good[j]);
            const struct agent *agent = &world->agents[i];
            if (agent->there && agent->says.leaving && agent->runs == 0)
                (void)happen(world, i * PER_AGENT + LOST);
        }
        (void)happen(world, PER_AGENT * world->count + TIME);
    }
}

static void describe(unsigned agents, const struct path *path, char *text, size_t size)
{
    static const char *const names[] = {"join", "see",  "say",   "up",  "cleared", "done",
                                        "fail", "lost", "leave", "fit", "unfit"};
    static const char *const job_names[] = {"time", "restart", "drain", "undrain", "stop", "admit"};
    size_t len = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < path->len && len < size; i++) {
        unsigned event = path->events[i];
        len += (size_t)(event < PER_AGENT * agents
                            ? snprintf(text + len, size - len, " %c:%s",
                                       'a' + (int)(event / PER_AGENT), names[event % PER_AGENT])
                            : snprintf(text + len, size - len, " %s",
                                       job_names[event - PER_AGENT * agents]));
    }
}

struct search {
    unsigned agents;
    uint32_t quarantine;
    uint64_t *seen;     /* open addressing; 0: free */
    struct path *paths; /* one to each situation, in the order in which they were found */
    unsigned found;
};

static bool is_new(struct search *search, uint64_t hash)
{
    hash |= hash == 0;
    size_t at = hash % SITUATIONS;
    while (search->seen[at] != 0 && search->seen[at] != hash)
        at = (at + 1) % SITUATIONS;
    if (search->seen[at] == hash)
        return false;
    search->seen[at] = hash;
    return true;
}

static void assert_gets_going(struct world *world, const struct path *path)
{
    settle(world);
    if (running(world) || excused(world))
        return;
    char text[1000];
    describe(world->count, path, text, sizeof text);
    ck_abort_msg("stuck in %s after%s", ddpi_rounds_sm.states[summary_of(world).state].name, text);
}

/* Where @path leads to, and @event from there. */
static void follow(struct search *search, struct path path, unsigned event)
{
    struct world world;
    world_init(&world, search->agents);
    world.quarantine = search->quarantine;
    for (unsigned i = 0; i < path.len; i++)
        (void)happen(&world, path.events[i]);
    if (happen(&world, event) && is_new(search, situation(&world))) {
        must(search->found < SITUATIONS / 2, "too many situations");
        path.events[path.len++] = (uint8_t)event;
        search->paths[search->found++] = path;
        assert_gets_going(&world, &path);
    }
    ddpi_rounds_destroy(world.rounds);
}

/* From what @start leads to, everything that @depth events can do; one more with EXPLORE_FURTHER,
 * as "make check" has it. */
static void explore(unsigned agents, uint32_t quarantine, const struct path *start, unsigned depth)
{
    depth += getenv("EXPLORE_FURTHER") != NULL;
    struct search search = {.agents = agents,
                            .quarantine = quarantine,
                            .seen = calloc(SITUATIONS, sizeof(uint64_t)),
                            .paths = malloc(SITUATIONS / 2 * sizeof(struct path)),
                            .found = 1};
    ck_assert(search.seen != NULL && search.paths != NULL);
    search.paths[0] = *start;
    for (unsigned i = 0; i < search.found; i++)
        if (search.paths[i].len < start->len + depth)
            for (unsigned event = 0; event < PER_AGENT * agents + JOB_EVENTS; event++)
                follow(&search, search.paths[i], event);
    ck_assert_uint_gt(search.found, 1000);
    printf("%u members, %u events: %u situations\n", agents, depth, search.found);
    free(search.seen);
    free(search.paths);
}

#define OF(agent, event) ((agent)*PER_AGENT + (event))

START_TEST(from_nothing)
{
    explore(2, 0, &(struct path){.len = 0}, 8);
}
END_TEST

/* With as many as fit, so that they are seated at once. */
START_TEST(from_a_generation_that_starts)
{
    static const struct path start = {{OF(0, JOIN), OF(1, JOIN), OF(2, JOIN)}, 3};
    explore(3, 0, &start, 4);
}
END_TEST

START_TEST(from_a_generation_that_runs)
{
    static const struct path start = {{OF(0, JOIN), OF(1, JOIN), 2 * PER_AGENT + TIME, OF(0, SEE),
                                       OF(1, SEE), OF(0, UP), OF(1, UP), OF(0, SAY), OF(1, SAY)},
                                      9};
    explore(2, 0, &start, 6);
}
END_TEST

/* Stopped, and one has left when it comes again. */
START_TEST(from_a_job_that_is_over)
{
    static const struct path start = {
        {OF(0, JOIN), OF(1, JOIN), 2 * PER_AGENT + STOP, OF(0, SEE), OF(0, JOIN)}, 5};
    explore(2, 0, &start, 7);
}
END_TEST

/* A worker of "a" has failed, all workers have ended, and each node checks itself. */
START_TEST(from_nodes_that_may_be_sick)
{
    static const struct path start = {{OF(0, JOIN), OF(1, JOIN), OF(2, JOIN), OF(0, SEE),
                                       OF(1, SEE), OF(2, SEE), OF(0, FAIL), OF(0, SAY), OF(1, SEE),
                                       OF(2, SEE), OF(0, CLEARED), OF(1, CLEARED), OF(2, CLEARED),
                                       OF(0, SAY), OF(1, SAY), OF(2, SAY)},
                                      16};
    explore(3, _i == 0 ? 1 : 9, &start, 4);
}
END_TEST

START_TEST(from_two_nodes_that_may_be_sick)
{
    static const struct path start = {{OF(0, JOIN), OF(1, JOIN), 2 * PER_AGENT + TIME, OF(0, SEE),
                                       OF(1, SEE), OF(0, FAIL), OF(0, SAY), OF(1, SEE),
                                       OF(0, CLEARED), OF(1, CLEARED), OF(0, SAY), OF(1, SAY)},
                                      12};
    explore(2, _i == 0 ? 1 : 9, &start, 6);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds_explore");
    TCase *tcase = tcase_create("everything");
    ADD_TESTS(tcase, from_nothing, from_a_generation_that_starts, from_a_generation_that_runs,
              from_a_job_that_is_over);
    tcase_add_loop_test(tcase, from_nodes_that_may_be_sick, 0, 2);
    tcase_add_loop_test(tcase, from_two_nodes_that_may_be_sick, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
