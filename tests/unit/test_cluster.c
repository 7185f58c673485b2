/*
 * test_cluster.c - what keepers decide: one rule at a time, then in a model of three machines that
 * die, come back empty, and lose each other, under many seeds.
 */
#include "check_main.h"
#include "cluster_summary.h"

#include <stdio.h>
#include <string.h>

static struct ddp_error why;

/* ---- three machines ---- */

enum { MACHINES = DDPI_CLUSTER_SIZE, TICK_MS = 50, QUIET_MS = 7000, CLUSTERS = 256 };
enum { SEEDS = 10 /* in one process */ };

/* A cluster of etcd: which life is the member of each machine, and what each of them has. */
struct etcd {
    uint64_t number;
    uint64_t member[MACHINES]; /* 0: none */
    uint64_t log[MACHINES];    /* entries */
    uint64_t acknowledged;
    bool over; /* it says that its job is over, and nothing changes any more */
};

static struct {
    struct ddpi_cluster_list list;
    uint64_t now_ms, random;
    struct {
        bool alive;
        struct ddpi_cluster cluster;
        struct etcd *etcd; /* that its life has started; NULL: none */
        struct ddpi_cluster_step replaces;
        uint64_t replaced_ms; /* when that ends */
        uint64_t paused_ms;   /* its keeper does nothing until then, but its etcd goes on */
        bool had_quorum;      /* in this life */
        bool ended;           /* well, after the job, ... */
        uint64_t ended_with;  /* ... whose cluster had this number */
        struct ddpi_keeper_status told; /* to its ddprund ... */
        uint64_t told_ms;               /* ... then */
    } at[MACHINES];
    /* An answer that is under way to i from j, asked for then; 0: none. */
    struct {
        uint64_t asked_ms, arrives_ms;
        struct ddpi_keeper_status status;
    } answer[MACHINES][MACHINES];
    bool cut[MACHINES][MACHINES];
    struct etcd etcds[CLUSTERS];
    unsigned etcd_count;
    unsigned leader; /* the machine whose store leads; MACHINES: none */
    bool requeues;   /* where a keeper has ended, that of the next job comes at once */
} world;

static uint64_t next_random(void)
{
    world.random ^= world.random << 13;
    world.random ^= world.random >> 7;
    world.random ^= world.random << 17;
    return world.random;
}

static uint64_t below(uint64_t end)
{
    return next_random() % end;
}

static bool reach(unsigned a, unsigned b)
{
    return a == b || (world.at[a].alive && world.at[b].alive && !world.cut[a][b]);
}

static void be_born(unsigned i)
{
    world.at[i].alive = true;
    world.at[i].etcd = NULL;
    world.at[i].replaced_ms = world.at[i].paused_ms = 0;
    world.at[i].had_quorum = world.at[i].ended = false;
    ddpi_cluster_begin(&world.at[i].cluster, &world.list, i, "j", next_random(), QUIET_MS,
                       world.now_ms);
}

static void kill_machine(unsigned i)
{
    world.at[i].alive = false;
    world.at[i].etcd = NULL;
    memset(&world.at[i].cluster, 0, sizeof world.at[i].cluster);
}

static struct etcd *find_etcd(uint64_t number)
{
    for (unsigned i = 0; i < world.etcd_count; i++)
        if (world.etcds[i].number == number)
            return &world.etcds[i];
    ck_assert_uint_lt(world.etcd_count, CLUSTERS);
    world.etcds[world.etcd_count].number = number;
    return &world.etcds[world.etcd_count++];
}

/* Whether the etcd of machine @i runs as a member of @etcd. */
static bool is_member(const struct etcd *etcd, unsigned i)
{
    return world.at[i].alive && world.at[i].etcd == etcd &&
           etcd->member[i] == world.at[i].cluster.own.life;
}

/* The machines that have a member, as bits. */
static unsigned members_of(const struct etcd *etcd)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < MACHINES; i++)
        bits |= etcd->member[i] != 0 ? 1U << i : 0;
    return bits;
}

/* The members that machine @i, one of them, reaches. */
static unsigned reached(const struct etcd *etcd, unsigned i)
{
    unsigned count = 0;
    for (unsigned j = 0; j < MACHINES; j++)
        count += is_member(etcd, j) && reach(i, j);
    return count;
}

static bool has_quorum(const struct etcd *etcd, unsigned i)
{
    return is_member(etcd, i) &&
           2 * reached(etcd, i) > (unsigned)__builtin_popcount(members_of(etcd));
}

/* Those that reach @leader agree on one more entry. None that was acknowledged may be missing. */
static void write_entry(struct etcd *etcd, unsigned leader)
{
    uint64_t longest = 0;
    for (unsigned j = 0; j < MACHINES; j++)
        if (is_member(etcd, j) && reach(leader, j) && etcd->log[j] > longest)
            longest = etcd->log[j];
    ck_assert_msg(longest >= etcd->acknowledged, "acknowledged entries are lost");
    etcd->acknowledged = longest + 1;
    for (unsigned j = 0; j < MACHINES; j++)
        if (is_member(etcd, j) && reach(leader, j))
            etcd->log[j] = longest + 1;
}

static bool is_paused(unsigned i)
{
    return world.now_ms < world.at[i].paused_ms;
}

/* Whether the store of this machine may lead. It asks once what its keeper must know for that. */
static bool serves(unsigned i)
{
    return world.at[i].cluster.serves ||
           (!is_paused(i) && ddpi_cluster_may_serve(&world.at[i].cluster, world.now_ms));
}

static void run_etcd(void)
{
    bool may_lead[MACHINES] = {false};
    const struct etcd *whose = NULL;
    unsigned count = 0;
    for (unsigned i = 0; i < MACHINES; i++) {
        may_lead[i] = world.at[i].etcd != NULL && has_quorum(world.at[i].etcd, i);
        count += may_lead[i];
        if (!may_lead[i])
            continue;
        ck_assert_msg(whose == NULL || whose == world.at[i].etcd, "two clusters have a quorum");
        whose = world.at[i].etcd;
    }
    if (world.leader == MACHINES || !may_lead[world.leader] || below(200) == 0)
        world.leader = count > 0 ? (unsigned)below(MACHINES) : MACHINES;
    if (world.leader < MACHINES && (!may_lead[world.leader] || !serves(world.leader)))
        world.leader = MACHINES; /* an election takes a moment */
    for (unsigned i = 0; i < MACHINES; i++) {
        if (!world.at[i].alive || is_paused(i))
            continue;
        world.at[i].had_quorum |= may_lead[i];
        ddpi_cluster_led(
            &world.at[i].cluster, world.at[i].had_quorum, i == world.leader && may_lead[i],
            may_lead[i] && world.leader < MACHINES && reach(i, world.leader), world.now_ms);
    }
    if (world.leader == MACHINES)
        return;
    if (!world.at[world.leader].etcd->over)
        write_entry(world.at[world.leader].etcd, world.leader);
    else if (!is_paused(world.leader) && below(2) == 0)
        ddpi_cluster_over(&world.at[world.leader].cluster, world.now_ms);
}

/* Its ddprund answers for a keeper that is paused, for a second. */
static void ask(unsigned i, unsigned j)
{
    if (world.at[i].alive && !is_paused(i) && world.at[j].alive && reach(i, j) &&
        world.answer[i][j].asked_ms == 0 && world.now_ms - world.at[j].told_ms <= 1000) {
        world.answer[i][j].asked_ms = world.now_ms;
        world.answer[i][j].arrives_ms = world.now_ms + below(300);
        world.answer[i][j].status = world.at[j].told;
    }
}

static void arrive(unsigned i, unsigned j)
{
    if (world.answer[i][j].asked_ms == 0 || world.now_ms < world.answer[i][j].arrives_ms ||
        is_paused(i))
        return;
    if (world.at[i].alive)
        ddpi_cluster_hear(&world.at[i].cluster, &world.answer[i][j].status,
                          world.answer[i][j].asked_ms);
    world.answer[i][j].asked_ms = 0;
}

static void talk(void)
{
    for (unsigned i = 0; i < MACHINES; i++) {
        if (world.at[i].alive && !is_paused(i)) {
            world.at[i].told = world.at[i].cluster.own;
            world.at[i].told_ms = world.now_ms;
        }
        for (unsigned j = 0; j < MACHINES; j++)
            if (i != j) {
                arrive(i, j);
                ask(i, j);
            }
    }
}

static void start_etcd(unsigned i, bool founds)
{
    struct ddpi_keeper_status *own = &world.at[i].cluster.own;
    struct etcd *etcd = find_etcd(own->number);
    ck_assert_msg(world.at[i].etcd == NULL, "a life starts a second etcd");
    world.at[i].etcd = etcd;
    if (!founds)
        return;
    for (unsigned j = 0; j < MACHINES; j++) {
        /* A machine that was not there is a member all the same, which never comes. */
        uint64_t life = own->founders[j] != 0 ? own->founders[j] : UINT64_MAX;
        if (etcd->acknowledged == 0 && etcd->member[j] == 0)
            etcd->member[j] = life;
    }
}

static void begin_replacing(unsigned i, const struct ddpi_cluster_step *step)
{
    if (has_quorum(world.at[i].etcd, i))
        world.at[i].etcd->member[step->machine] = 0;
    world.at[i].replaces = *step;
    world.at[i].replaced_ms = world.now_ms + below(3000);
}

static void end_replacing(unsigned i)
{
    struct etcd *etcd = world.at[i].etcd;
    const struct ddpi_cluster_step *step = &world.at[i].replaces;
    if (world.at[i].replaced_ms == 0 || world.now_ms < world.at[i].replaced_ms)
        return;
    world.at[i].replaced_ms = 0;
    bool done = etcd != NULL && has_quorum(etcd, i) && etcd->member[step->machine] == 0;
    if (done) {
        etcd->member[step->machine] = step->life;
        etcd->log[step->machine] = 0;
    }
    ddpi_cluster_replaced(&world.at[i].cluster, step, done, world.now_ms);
}

static void end_well(unsigned i)
{
    const struct etcd *etcd = world.at[i].etcd;
    ck_assert_msg(etcd != NULL && etcd->over, "a keeper ends before the job");
    ck_assert_msg(etcd->number != world.at[i].ended_with, "one of the next job ends with the last");
    kill_machine(i);
    world.at[i].ended = true;
    world.at[i].ended_with = etcd->number;
    if (world.requeues)
        be_born(i);
}

static void act(unsigned i)
{
    struct ddpi_cluster_step step =
        ddpi_cluster_step(&world.at[i].cluster, next_random(), world.now_ms);
    switch (step.action) {
    case CLUSTER_NONE:
        break;
    case CLUSTER_START_NEW:
    case CLUSTER_START_EXISTING:
        start_etcd(i, step.action == CLUSTER_START_NEW);
        break;
    case CLUSTER_REPLACE:
        begin_replacing(i, &step);
        break;
    case CLUSTER_WIPE:
        be_born(i);
        break;
    case CLUSTER_END:
        end_well(i);
        return;
    }
    ck_assert_msg(world.at[i].cluster.own.phase != KEEPER_ENDING || world.at[i].etcd->over,
                  "a keeper ends before the job");
    /* etcd ends with 0 when its member was removed. */
    const struct etcd *etcd = world.at[i].etcd;
    if (etcd != NULL && etcd->member[i] != world.at[i].cluster.own.life)
        for (unsigned j = 0; j < MACHINES; j++)
            if (j != i && has_quorum(etcd, j) && reach(i, j)) {
                be_born(i);
                return;
            }
}

static void tick(void)
{
    world.now_ms += TICK_MS;
    run_etcd();
    talk();
    for (unsigned i = 0; i < MACHINES; i++)
        if (world.at[i].alive && !is_paused(i)) {
            act(i);
            end_replacing(i);
        }
}

static void begin_world(uint64_t seed)
{
    memset(&world, 0, sizeof world);
    world.random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    world.now_ms = 1000000;
    world.leader = MACHINES;
    ck_assert_int_eq(ddpi_cluster_list_parse("a,b,c", 29400, 0, &world.list, &why), DDP_OK);
}

/* The number of the cluster that all three are members of, with a leader; 0: not so. */
static uint64_t whole(void)
{
    const struct etcd *etcd = world.at[0].etcd;
    if (etcd == NULL || world.leader == MACHINES)
        return 0;
    for (unsigned i = 0; i < MACHINES; i++)
        if (!is_member(etcd, i) || world.at[i].cluster.own.phase != KEEPER_MEMBER)
            return 0;
    return etcd->number;
}

static uint64_t run_until_whole(uint64_t most_ms)
{
    for (uint64_t end = world.now_ms + most_ms; world.now_ms < end && whole() == 0;)
        tick();
    return whole();
}

static void run_for(uint64_t ms)
{
    for (uint64_t end = world.now_ms + ms; world.now_ms < end;)
        tick();
}

START_TEST(three_empty_keepers_found_a_cluster_at_once)
{
    begin_world(1);
    for (unsigned i = 0; i < MACHINES; i++)
        be_born(i);
    ck_assert_uint_ne(run_until_whole(2000), 0);
    ck_assert_uint_eq(world.etcd_count, 1);
}
END_TEST

START_TEST(a_keeper_knows_how_many_others_are_there)
{
    begin_world(8);
    for (unsigned i = 0; i < MACHINES; i++)
        be_born(i);
    const struct ddpi_cluster *cluster = &world.at[1].cluster;
    ck_assert_uint_eq(ddpi_cluster_others(cluster, 1000, world.now_ms), 0);
    run_until_whole(5000);
    run_for(1000);
    ck_assert_uint_eq(ddpi_cluster_others(cluster, 1000, world.now_ms), 2);
    kill_machine(0);
    run_for(1500);
    ck_assert_uint_eq(ddpi_cluster_others(cluster, 1000, world.now_ms), 1);
    ck_assert_uint_eq(ddpi_cluster_others(cluster, 2000, world.now_ms), 2);
}
END_TEST

START_TEST(a_job_takes_no_store_that_is_of_none)
{
    struct ddpi_cluster cluster = {0};
    struct ddpi_keeper_status says[] = {{.self = 1, .phase = KEEPER_MEMBER, .number = 5},
                                        {.self = 2, .phase = KEEPER_MEMBER, .number = 5}};
    begin_world(1);
    ddpi_cluster_begin(&cluster, &world.list, 0, "j", 1, QUIET_MS, world.now_ms);
    ddpi_cluster_hear(&cluster, &says[0], world.now_ms);
    ck_assert(!ddpi_cluster_is_of_no_job(&cluster, world.now_ms)); /* a witness */
    ddpi_cluster_hear(&cluster, &says[1], world.now_ms);
    ck_assert(ddpi_cluster_is_of_no_job(&cluster, world.now_ms));
    says[1].job[0] = 'j';
    ddpi_cluster_hear(&cluster, &says[1], world.now_ms);
    ck_assert(!ddpi_cluster_is_of_no_job(&cluster, world.now_ms));
}
END_TEST

START_TEST(a_store_of_no_job_takes_in_no_keeper_of_a_job)
{
    enum { LATER_MS = 3000 };
    struct ddpi_cluster cluster = {0};
    struct ddpi_keeper_status says[] = {{.self = 1, .phase = KEEPER_MEMBER, .number = 5},
                                        {.self = 2, .life = 9, .job = "j"}};
    begin_world(1);
    ddpi_cluster_begin(&cluster, &world.list, 0, "", 1, QUIET_MS, world.now_ms);
    cluster.own.number = 5;
    cluster.own.phase = KEEPER_MEMBER;
    ddpi_cluster_led(&cluster, true, true, true, world.now_ms);
    ddpi_cluster_hear(&cluster, &says[0], world.now_ms + LATER_MS);
    ddpi_cluster_hear(&cluster, &says[1], world.now_ms + LATER_MS);
    ck_assert_int_eq(ddpi_cluster_step(&cluster, 3, world.now_ms + LATER_MS).action, CLUSTER_NONE);
    says[0].job[0] = 'j'; /* this one is a witness of that job */
    ddpi_cluster_hear(&cluster, &says[0], world.now_ms + LATER_MS);
    ck_assert_int_eq(ddpi_cluster_step(&cluster, 3, world.now_ms + LATER_MS).action,
                     CLUSTER_REPLACE);
}
END_TEST

START_TEST(one_keeper_alone_founds_none)
{
    begin_world(2);
    be_born(1);
    run_for(120000);
    ck_assert_uint_eq(world.etcd_count, 0);
    ck_assert_int_eq(world.at[1].cluster.own.phase, KEEPER_EMPTY);
}
END_TEST

START_TEST(two_keepers_wait_then_found_and_take_the_third_in)
{
    begin_world(3);
    be_born(0);
    be_born(2);
    run_for(QUIET_MS - 500);
    ck_assert_uint_eq(world.etcd_count, 0);
    run_for(3000);
    ck_assert_uint_eq(world.etcd_count, 1);
    ck_assert_uint_lt(world.leader, MACHINES);
    be_born(1);
    ck_assert_uint_eq(run_until_whole(10000), world.etcds[0].number);
}
END_TEST

START_TEST(a_machine_that_comes_back_empty_is_another_member)
{
    begin_world(4);
    for (unsigned i = 0; i < MACHINES; i++)
        be_born(i);
    uint64_t number = run_until_whole(5000);
    for (unsigned i = 0; i < MACHINES; i++) { /* one after the other, the leader among them */
        kill_machine(i);
        be_born(i); /* at once, before anybody has noticed */
        ck_assert_uint_eq(run_until_whole(20000), number);
    }
    ck_assert_uint_eq(world.etcd_count, 1);
}
END_TEST

START_TEST(who_was_left_behind_begins_again)
{
    begin_world(5);
    for (unsigned i = 0; i < MACHINES; i++)
        be_born(i);
    uint64_t number = run_until_whole(5000);
    for (unsigned i = 0; i < MACHINES; i++)
        world.cut[0][i] = world.cut[i][0] = true;
    kill_machine(1);
    kill_machine(2);
    be_born(1);
    be_born(2);
    run_for(30000); /* the data is lost: two of three have died */
    ck_assert_uint_eq(world.etcd_count, 2);
    ck_assert_int_eq(world.at[0].cluster.own.phase, KEEPER_MEMBER);
    memset(world.cut, 0, sizeof world.cut);
    ck_assert_uint_ne(run_until_whole(20000), number);
    ck_assert_uint_eq(world.etcd_count, 2);
}
END_TEST

/* ---- the end of the job ---- */

/* All three have a cluster whose leader knows that the job is over. */
static void end_job(uint64_t seed)
{
    begin_world(seed);
    for (unsigned i = 0; i < MACHINES; i++)
        be_born(i);
    ck_assert_uint_ne(run_until_whole(5000), 0);
    run_for(5000);
    world.etcds[0].over = true;
}

static unsigned ended(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MACHINES; i++)
        count += world.at[i].ended;
    return count;
}

/* A machine whose store does not lead. */
static unsigned follower(void)
{
    while (world.leader == MACHINES)
        tick();
    return (world.leader + 1) % MACHINES;
}

START_TEST(a_witness_knows_the_job_of_its_cluster)
{
    struct ddpi_cluster cluster = {0};
    struct ddpi_keeper_status says = {.self = 1, .job = "old", .number = 5};
    begin_world(1);
    ddpi_cluster_begin(&cluster, &world.list, 0, "", 1, QUIET_MS, world.now_ms);
    ddpi_cluster_hear(&cluster, &says, world.now_ms);
    ck_assert_str_eq(ddpi_cluster_job(&cluster), "");
    says = (struct ddpi_keeper_status){.self = 2, .job = "new", .number = 7};
    ddpi_cluster_hear(&cluster, &says, world.now_ms);
    cluster.own.number = 7;
    ck_assert_str_eq(ddpi_cluster_job(&cluster), "new");
}
END_TEST

START_TEST(all_hear_the_end)
{
    for (uint64_t seed = 1; seed < 200; seed++) {
        end_job(seed);
        run_for(2000);
        ck_assert_msg(ended() == MACHINES, "seed %u", (unsigned)seed);
    }
}
END_TEST

START_TEST(a_leader_that_dies_with_the_end_has_a_successor)
{
    for (uint64_t seed = 1; seed < 200; seed++) {
        end_job(seed);
        unsigned first = MACHINES;
        while (first == MACHINES) {
            tick();
            for (unsigned i = 0; i < MACHINES; i++)
                if (world.at[i].cluster.own.phase == KEEPER_ENDING)
                    first = i;
        }
        kill_machine(first); /* nobody has heard of it */
        run_for(5000);
        ck_assert_msg(ended() == MACHINES - 1, "seed %u", (unsigned)seed);
    }
}
END_TEST

/* Who has not heard of the end cannot know that it was one: its machines may be back soon. It ends
 * for the sake of its agent, or becomes a member of what the next job founds. */
static void be_left_behind(unsigned who)
{
    run_for(3000);
    ck_assert_uint_eq(ended(), MACHINES - 1);
    memset(world.cut, 0, sizeof world.cut);
    world.at[who].paused_ms = 0;
    run_for(60000);
    ck_assert_int_eq(world.at[who].cluster.own.phase, KEEPER_MEMBER);
    for (unsigned i = 0; i < MACHINES; i++)
        if (i != who)
            be_born(i);
    ck_assert_uint_ne(run_until_whole(30000), 0);
    ck_assert_uint_eq(world.etcd_count, 2);
}

START_TEST(who_is_cut_off_from_the_end_is_left_behind)
{
    end_job(6);
    unsigned who = follower();
    for (unsigned i = 0; i < MACHINES; i++)
        world.cut[who][i] = world.cut[i][who] = true;
    be_left_behind(who);
}
END_TEST

START_TEST(who_is_stopped_through_the_end_is_left_behind)
{
    end_job(7);
    unsigned who = follower();
    world.at[who].paused_ms = UINT64_MAX;
    be_left_behind(who);
}
END_TEST

START_TEST(the_next_job_waits_for_the_end)
{
    for (uint64_t seed = 1; seed < 200; seed++) {
        end_job(seed);
        world.requeues = true;
        run_for(1500);
        ck_assert_msg(run_until_whole(20000) != world.etcds[0].number, "seed %u", (unsigned)seed);
        ck_assert_uint_ne(whole(), 0);
        ck_assert_uint_eq(world.etcd_count, 2);
    }
}
END_TEST

/* ---- any order ---- */

static void cut_at_random(void)
{
    unsigned a = (unsigned)below(MACHINES), b = (unsigned)below(MACHINES);
    if (a != b)
        world.cut[a][b] = world.cut[b][a] = below(3) > 0;
}

/* Machines die, come back and lose each other, and jobs end, without any order. At the end all are
 * well. */
static void have_any_order(int seed)
{
    begin_world((uint64_t)seed + 100);
    world.requeues = true;
    for (unsigned i = 0; i < MACHINES; i++)
        if (below(4) > 0)
            be_born(i);
    for (unsigned events = 0; events < 60; events++) {
        unsigned i = (unsigned)below(MACHINES);
        if (below(12) == 0 && world.leader < MACHINES)
            world.at[world.leader].etcd->over = true;
        else if (below(3) == 0)
            cut_at_random();
        else if (below(4) == 0)
            world.at[i].paused_ms = world.now_ms + below(20000);
        else if (world.at[i].alive && below(3) > 0)
            kill_machine(i);
        else if (!world.at[i].alive)
            be_born(i);
        run_for(below(2) == 0 ? below(500) : below(15000));
    }
    memset(world.cut, 0, sizeof world.cut);
    for (unsigned i = 0; i < MACHINES; i++) {
        world.at[i].paused_ms = 0;
        if (!world.at[i].alive)
            be_born(i);
    }
    ck_assert_msg(run_until_whole(120000) != 0, "they do not agree, seed %d", seed);
}

START_TEST(no_order_of_events_founds_two_or_loses_an_entry)
{
    for (int i = 0; i < SEEDS; i++)
        have_any_order(_i * SEEDS + i);
}
END_TEST

/* Something happens to one machine: it dies if it @may, is cut off, or its keeper is stopped. */
static void have_a_fault(unsigned i, bool may)
{
    unsigned kind = may ? (unsigned)below(3) : 1 + (unsigned)below(2);
    if (kind == 0)
        kill_machine(i);
    for (unsigned j = 0; j < MACHINES && kind == 1; j++)
        world.cut[i][j] = world.cut[j][i] = true;
    if (kind == 2)
        world.at[i].paused_ms = world.now_ms + 100000;
    run_for(below(2) == 0 ? below(1000) : below(30000));
    if (kind == 0)
        be_born(i);
    world.at[i].paused_ms = 0;
    memset(world.cut, 0, sizeof world.cut);
}

/* One machine at a time has a fault, and the next one only when all are well again. What was
 * acknowledged is still there, as the cluster is the same. Before the third machine has come, two
 * may not lose their data. */
static void have_single_faults(int seed)
{
    begin_world((uint64_t)seed + 5000);
    be_born(0);
    be_born(1);
    if (below(2) == 0)
        be_born(2);
    run_for(below(2) == 0 ? 0 : below(12000));
    have_a_fault((unsigned)below(world.at[2].alive ? 3 : 2), world.at[2].alive);
    if (!world.at[2].alive)
        be_born(2);
    uint64_t number = run_until_whole(60000);
    ck_assert_uint_ne(number, 0);
    for (unsigned i = 0; i < world.etcd_count; i++)
        ck_assert_msg(world.etcds[i].number == number || world.etcds[i].acknowledged == 0,
                      "acknowledged entries are lost, seed %d", seed);
    for (unsigned faults = 0; faults < 10; faults++) {
        have_a_fault((unsigned)below(MACHINES), true);
        ck_assert_msg(run_until_whole(90000) == number, "fault %u, seed %d", faults, seed);
    }
}

START_TEST(one_fault_at_a_time_loses_nothing)
{
    for (int i = 0; i < SEEDS; i++)
        have_single_faults(_i * SEEDS + i);
}
END_TEST

/* Whether the machine whose store leads says that any one may die. */
static bool says_any_one(void)
{
    struct ddpi_cluster_summary summary;
    return world.leader < MACHINES && !is_paused(world.leader) &&
           ddpi_cluster_summarize(&world.at[world.leader].cluster, &world.list, world.now_ms,
                                  &summary) &&
           ddpi_cluster_members(&summary) == MACHINES;
}

/* Whenever it says so, one machine has a fault, and what was acknowledged is still there. It says
 * what was so in the last second, and an answer takes a while. */
static void have_a_fault_whenever_it_is_said_to_be_survived(int seed)
{
    begin_world((uint64_t)seed + 9000);
    for (unsigned i = 0; i < MACHINES; i++)
        be_born(i);
    for (unsigned faults = 0; faults < 10; faults++) {
        run_for(DDPI_CLUSTER_FRESH_MS + 500);
        for (uint64_t end = world.now_ms + 90000; !says_any_one(); tick())
            ck_assert_msg(world.now_ms < end, "fault %u, seed %d", faults, seed);
        have_a_fault((unsigned)below(MACHINES), true);
    }
    ck_assert_uint_ne(run_until_whole(90000), 0);
    ck_assert_uint_eq(world.etcd_count, 1);
}

START_TEST(what_it_says_that_it_survives_it_survives)
{
    for (int i = 0; i < SEEDS; i++)
        have_a_fault_whenever_it_is_said_to_be_survived(_i * SEEDS + i);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cluster");
    TCase *model = tcase_create("model");
    ADD_TESTS(model, three_empty_keepers_found_a_cluster_at_once,
              a_keeper_knows_how_many_others_are_there, a_job_takes_no_store_that_is_of_none,
              a_store_of_no_job_takes_in_no_keeper_of_a_job, one_keeper_alone_founds_none,
              two_keepers_wait_then_found_and_take_the_third_in,
              a_machine_that_comes_back_empty_is_another_member, who_was_left_behind_begins_again,
              a_witness_knows_the_job_of_its_cluster, all_hear_the_end,
              a_leader_that_dies_with_the_end_has_a_successor,
              who_is_cut_off_from_the_end_is_left_behind,
              who_is_stopped_through_the_end_is_left_behind, the_next_job_waits_for_the_end);
    tcase_add_loop_test(model, no_order_of_events_founds_two_or_loses_an_entry, 0, 20);
    tcase_add_loop_test(model, one_fault_at_a_time_loses_nothing, 0, 20);
    tcase_add_loop_test(model, what_it_says_that_it_survives_it_survives, 0, 20);
    suite_add_tcase(suite, model);
    return suite;
}
