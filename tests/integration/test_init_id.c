/*
 * test_init_id.c - ranks that meet by a unique id, without a store: who may use one and how often,
 * what strangers with another id get, and what the others are told when rank 0 is gone.
 */
#include "check_main.h"
#include "descriptors.h"
#include "unique_id.h"
#include "world.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, LONG_MS = 60000, MISSING_MS = 5000 /* so late the others may be */ };

struct seat {
    struct ddp_unique_id id;
    uint32_t rank;
    uint32_t nranks;
    uint32_t init_timeout_ms;
    bool tcp;
    pthread_t thread;
    ddp_status status;
    struct ddp_error error;
};

/* Join, send to the rank across, and sum the ranks. */
static ddp_status meet(struct seat *seat)
{
    const struct ddp_comm_options options = {
        .size = sizeof options,
        .world_size = seat->nranks,
        .rank = seat->rank,
        .unique_id = &seat->id,
        .timeout_ms = LONG_MS,
        .force_tcp = seat->tcp,
        .init_timeout_ms = seat->init_timeout_ms > 0 ? seat->init_timeout_ms : LONG_MS};
    ddp_comm *comm;
    uint32_t sum = seat->rank;
    ddp_status status = ddp_comm_init(&options, &comm, &seat->error);
    if (status != DDP_OK)
        return status;
    if (seat->nranks == RANKS && seat->rank == 0)
        CHECK_OK(ddp_send(comm, &sum, 1, DDP_INT32, 2, NULL, err));
    if (seat->nranks == RANKS && seat->rank == 2) {
        CHECK_OK(ddp_recv(comm, &sum, 1, DDP_INT32, 0, NULL, err));
        CHECK(sum == 0);
        sum = seat->rank;
    }
    status = ddp_all_reduce(comm, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL, &seat->error);
    CHECK(status != DDP_OK || sum == seat->nranks * (seat->nranks - 1) / 2);
    ddp_comm_destroy(comm);
    return status;
}

static void *sit(void *arg)
{
    struct seat *seat = arg;
    seat->status = meet(seat);
    return NULL;
}

static void start_seat(struct seat *seat)
{
    ck_assert_int_eq(pthread_create(&seat->thread, NULL, sit, seat), 0);
}

static void expect(struct seat *seat, ddp_status status, const char *text)
{
    pthread_join(seat->thread, NULL);
    ck_assert_msg(seat->status == status && (text == NULL || strstr(seat->error.msg, text) != NULL),
                  "rank %u: %s: %s", seat->rank, ddp_status_name(seat->status), seat->error.msg);
}

static struct ddp_unique_id make_id(void)
{
    struct ddp_unique_id id;
    CHECK_OK(ddp_get_unique_id(&id, err));
    return id;
}

/* Threads that begin before rank 0 or after it, two worlds at once; no descriptor is left. */
START_TEST(ranks_meet_by_an_id)
{
    struct seat seats[2][RANKS];
    bool last = _i % 2 != 0;
    unsigned before = open_descriptors();
    for (uint32_t world = 0; world < 2; world++) {
        const struct ddp_unique_id id = make_id();
        for (uint32_t i = 0; i < RANKS; i++)
            seats[world][i] = (struct seat){
                .id = id, .rank = last ? RANKS - 1 - i : i, .nranks = RANKS, .tcp = _i / 2 != 0};
    }
    for (uint32_t i = 0; i < 2 * RANKS; i++)
        start_seat(&seats[i % 2][i / 2]);
    for (uint32_t i = 0; i < 2 * RANKS; i++)
        expect(&seats[i % 2][i / 2], DDP_OK, NULL);
    ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

/* As under ddp_spawn(), or a launcher that passes the id on. */
START_TEST(an_id_may_come_from_the_environment)
{
    const struct ddp_unique_id id = make_id();
    char text[2 * sizeof id.bytes + 1];
    for (size_t i = 0; i < sizeof id.bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)id.bytes[i]);
    ck_assert(setenv("DDP_UNIQUE_ID", text, 1) == 0 && setenv("WORLD_SIZE", "2", 1) == 0 &&
              setenv("RANK", "1", 1) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        ddp_comm *comm;
        CHECK_OK(ddp_comm_init(NULL, &comm, err));
        CHECK_OK(ddp_barrier(comm, NULL, err));
        ddp_comm_destroy(comm);
        _exit(0);
    }
    ddp_comm *comm;
    setenv("RANK", "0", 1);
    CHECK_OK(ddp_comm_init(NULL, &comm, err));
    CHECK_OK(ddp_barrier(comm, NULL, err));
    ddp_comm_destroy(comm);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- who may use it ---- */

START_TEST(an_id_is_good_for_one_init)
{
    ddp_comm *comm;
    unsigned before = open_descriptors();
    struct seat seat = {.id = make_id(), .nranks = 2, .init_timeout_ms = 50};
    ck_assert_uint_eq(open_descriptors(), before + 1);
    ck_assert_int_eq(meet(&seat), DDP_E_TIMEOUT);
    ck_assert_uint_eq(open_descriptors(), before);
    ck_assert_int_eq(meet(&seat), DDP_E_INVALID);
    ck_assert_msg(strstr(seat.error.msg, "good for one") != NULL, "%s", seat.error.msg);
    /* In a world of one, and where it is not used. */
    struct ddp_unique_id ids[] = {make_id(), make_id()};
    const struct ddp_comm_options alone = {
        .size = sizeof alone, .world_size = 1, .unique_id = &ids[0]};
    CHECK_OK(ddp_comm_init(&alone, &comm, err));
    ddp_comm_destroy(comm);
    ck_assert_uint_eq(open_descriptors(), before + 1);
    ddp_drop_unique_id(&ids[1]);
    ddp_drop_unique_id(&ids[1]);
    ddp_drop_unique_id(&ids[0]);
    ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

/* What is not a listener of this process is not touched, whatever the id says. */
START_TEST(an_id_from_elsewhere_closes_nothing)
{
    struct ddp_unique_id id = make_id();
    struct ddpi_id read;
    ck_assert_int_eq(ddpi_id_read(&id, &read, NULL), DDP_OK);
    int fd = ddpi_id_listener(&read), other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(dup3(other, fd, O_CLOEXEC), fd); /* another socket has its number now */
    ck_assert_int_eq(ddpi_id_listener(&read), -1);
    ddp_drop_unique_id(&id);
    ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
    static const uint32_t strange[] = {0, 1, 9999, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        read.fd = strange[i];
        ck_assert_int_eq(ddpi_id_listener(&read), -1);
    }
    close(fd);
    close(other);
    /* Bytes that are no id. */
    for (size_t i = 0; i < 8; i++) {
        struct ddp_unique_id bad = id;
        bad.bytes[i] ^= 1;
        struct seat seat = {.id = bad, .nranks = 2, .rank = 1};
        ck_assert_int_eq(meet(&seat), DDP_E_INVALID);
        ck_assert_msg(strstr(seat.error.msg, "not a unique id") != NULL, "%s", seat.error.msg);
    }
}
END_TEST

START_TEST(rank_0_is_who_made_it)
{
    struct seat seat = {.id = make_id(), .nranks = 2};
    pid_t pid = fork();
    if (pid == 0) {
        bool refused = meet(&seat) == DDP_E_INVALID &&
                       strstr(seat.error.msg, "rank 0 has to be the process") != NULL;
        if (!refused)
            fprintf(stderr, "%s\n", seat.error.msg);
        _exit(refused ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ddp_drop_unique_id(&seat.id);
}
END_TEST

/* The secret, or an earlier id: refused, and those who have the right one meet. */
START_TEST(a_wrong_id_is_refused)
{
    struct seat seats[2], stranger;
    struct ddp_unique_id id = make_id();
    seats[0] = (struct seat){.id = id, .nranks = 2, .rank = 0};
    seats[1] = (struct seat){.id = id, .nranks = 2, .rank = 1};
    stranger = seats[1];
    stranger.id.bytes[8 + (size_t)_i] ^= 0x10; /* one bit of the secret */
    start_seat(&seats[0]);
    start_seat(&stranger);
    expect(&stranger, DDP_E_DENIED, "unique id");
    start_seat(&seats[1]);
    expect(&seats[1], DDP_OK, NULL);
    expect(&seats[0], DDP_OK, NULL);
}
END_TEST

/* ---- when rank 0 is gone ---- */

/* Rank 0 in a process that passes its id on. */
static pid_t start_rank_0(struct ddp_unique_id *ret_id, bool joins)
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct seat seat = {.id = make_id(), .nranks = RANKS, .init_timeout_ms = LONG_MS};
        CHECK(write(fds[1], &seat.id, sizeof seat.id) == sizeof seat.id);
        if (joins)
            (void)!meet(&seat);
        pause();
        _exit(1);
    }
    ck_assert_int_eq(read(fds[0], ret_id, sizeof *ret_id), (ssize_t)sizeof *ret_id);
    close(fds[0]);
    close(fds[1]);
    return pid;
}

/* It has not called init, or waits for others; it dies before they come, or meanwhile. */
START_TEST(the_death_of_rank_0_is_told_at_once)
{
    struct seat seats[RANKS - 1];
    struct ddp_unique_id id;
    bool joins = _i % 2 != 0, waits = _i / 2 != 0;
    pid_t pid = start_rank_0(&id, joins);
    if (!waits)
        kill(pid, SIGKILL), waitpid(pid, NULL, 0);
    for (uint32_t i = 0; i + 1 < RANKS; i++) {
        seats[i] = (struct seat){.id = id, .nranks = RANKS, .rank = i + 1};
        if (i + 2 < RANKS || !waits) /* with @waits the last one never comes */
            start_seat(&seats[i]);
    }
    if (waits)
        kill(pid, SIGKILL), waitpid(pid, NULL, 0);
    for (uint32_t i = 0; i + 1 + waits < RANKS; i++)
        expect(&seats[i], DDP_E_PEER_DEAD, "rank 0");
}
END_TEST

/* Rank 0 lives and does not call: the sentence names it. */
START_TEST(rank_0_that_does_not_call_is_named)
{
    struct ddp_unique_id id;
    pid_t pid = start_rank_0(&id, false);
    struct seat seat = {.id = id, .nranks = RANKS, .rank = 1, .init_timeout_ms = 300};
    char name[32];
    snprintf(name, sizeof name, "rank 0 (pid %d on ", pid);
    ck_assert_int_eq(meet(&seat), DDP_E_TIMEOUT);
    ck_assert_msg(strstr(seat.error.msg, name) != NULL, "%s", seat.error.msg);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
END_TEST

/* Who is missing is told, as with a store. */
START_TEST(a_missing_rank_is_named)
{
    struct seat seats[RANKS];
    struct ddp_unique_id id = make_id();
    for (uint32_t i = 0; i < RANKS; i++) {
        seats[i] =
            (struct seat){.id = id, .nranks = RANKS, .rank = i, .init_timeout_ms = MISSING_MS};
        if (i != 2)
            start_seat(&seats[i]);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        if (i != 2)
            expect(&seats[i], DDP_E_TIMEOUT, "missing: rank 2");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("init by a unique id");
    TCase *tcase = tcase_create("id");
    tcase_add_loop_test(tcase, ranks_meet_by_an_id, 0, 4);
    ADD_TESTS(tcase, an_id_may_come_from_the_environment, an_id_is_good_for_one_init,
              an_id_from_elsewhere_closes_nothing, rank_0_is_who_made_it);
    tcase_add_loop_test(tcase, a_wrong_id_is_refused, 0, 32);
    tcase_add_loop_test(tcase, the_death_of_rank_0_is_told_at_once, 0, 4);
    tcase_add_test(tcase, rank_0_that_does_not_call_is_named);
    tcase_add_test(tcase, a_missing_rank_is_named);
    suite_add_tcase(suite, tcase);
    return suite;
}
