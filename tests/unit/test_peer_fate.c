/*
 * test_peer_fate.c - whether a process lives, as its sockets and its listener tell, and those that
 * know better.
 */
#include "check_main.h"
#include "clock.h"
#include "peer_fate.h"
#include "route.h"
#include "sockets.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that has connected to us, and with @keep a child of that one, which has its sockets. */
struct peer {
    pid_t pid;
    int fd;  /* our end */
    int end; /* closing it ends the grandchild */
};

static struct peer peer_start(bool keep)
{
    int ends[2], listener, fd;
    char name[32];
    snprintf(name, sizeof name, "ddprun-fate-%d", getpid());
    ck_assert_int_eq(ddpi_listen_local(name, &listener, NULL), DDP_OK);
    ck_assert_int_eq(pipe(ends), 0);
    struct peer peer = {.pid = fork(), .end = ends[1]};
    ck_assert_int_ge(peer.pid, 0);
    if (peer.pid == 0) {
        close(ends[1]);
        if (ddpi_begin_local(name, &fd) != 0)
            _exit(1);
        if (keep && _Fork() == 0) /* runs no handlers */
            _exit((int)read(ends[0], name, 1));
        (void)!write(fd, name, 1); /* now it is all there */
        for (;;)
            pause();
    }
    close(ends[0]);
    struct pollfd pollfd = {.fd = listener, .events = POLLIN};
    ck_assert_int_eq(poll(&pollfd, 1, -1), 1);
    peer.fd = ddpi_accept(listener);
    ck_assert_int_ge(peer.fd, 0);
    pollfd.fd = peer.fd;
    ck_assert_int_eq(poll(&pollfd, 1, -1), 1);
    ck_assert_int_eq(read(peer.fd, name, 1), 1);
    close(listener);
    return peer;
}

static void await_end(const struct ddpi_process *process)
{
    struct pollfd pollfd = {.fd = process->pidfd, .events = POLLIN};
    ck_assert_int_ge(process->pidfd, 0);
    ck_assert_int_eq(poll(&pollfd, 1, -1), 1);
}

START_TEST(a_process_is_known_by_its_socket)
{
    struct peer peer = peer_start(_i != 0);
    struct ddpi_process process;
    ddpi_process_find(peer.fd, &process);
    ck_assert_int_eq(process.pid, peer.pid);
    ck_assert(!ddpi_process_ended(&process));
    ck_assert_int_eq(ddpi_process_fate(&process), DDPI_FATE_ALIVE);
    kill(peer.pid, SIGSTOP);
    ck_assert_int_eq(ddpi_process_fate(&process), DDPI_FATE_ALIVE);
    kill(peer.pid, SIGKILL);
    await_end(&process);
    ck_assert(ddpi_process_ended(&process));
    ck_assert_int_eq(ddpi_process_fate(&process), DDPI_FATE_DEAD); /* nobody has waited for it */
    waitpid(peer.pid, NULL, 0);
    ck_assert_int_eq(ddpi_process_fate(&process), DDPI_FATE_DEAD);
    char byte;
    ck_assert_int_eq(recv(peer.fd, &byte, 1, MSG_DONTWAIT), _i != 0 ? -1 : 0);
    ddpi_process_finish(&process);
    ck_assert_int_eq(process.pidfd, -1);
    close(peer.end);
    close(peer.fd);
}
END_TEST

START_TEST(one_that_is_over_is_known_to_be)
{
    struct peer peer = peer_start(true);
    struct ddpi_process process;
    kill(peer.pid, SIGKILL);
    waitpid(peer.pid, NULL, 0);
    ddpi_process_find(peer.fd, &process);
    ck_assert(ddpi_process_ended(&process));
    ck_assert_int_eq(ddpi_process_fate(&process), DDPI_FATE_DEAD);
    ddpi_process_finish(&process);
    close(peer.end);
    close(peer.fd);
}
END_TEST

START_TEST(nothing_is_known_of_this_process)
{
    struct ddpi_process process;
    int fds[2];
    ck_assert_int_eq(ddpi_socket_pair(fds), 0);
    ddpi_process_find(fds[0], &process);
    ck_assert(process.pidfd == -1 && !ddpi_process_ended(&process));
    ck_assert_int_eq(ddpi_process_fate(&process), DDPI_FATE_UNKNOWN);
    ddpi_process_finish(&process);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

/* ---- the listener of a process on another machine ---- */

struct door {
    int listener;
    struct sockaddr_storage address;
    int visitors; /* so many are let in and thrown out, then it is closed */
    pthread_t thread;
    atomic_bool asked; /* nobody comes any more */
    uint64_t done_ms;  /* when the thread had done its work */
};

/* A rank that asks waits 620 ms before it connects once more. If the system does not run the thread
 * of a door for that long, the attempt proves nothing, and the test repeats it. */
enum { IN_TIME_MS = 400 };

static bool was_in_time(const struct door *door, uint64_t begun_ms)
{
    return door->done_ms < begun_ms + IN_TIME_MS;
}

static uint64_t now_ms(void)
{
    return ddpi_monotonic_ms();
}

static void door_open(struct door *door)
{
    ck_assert_int_eq(ddpi_source_address("127.0.0.1", 1, &door->address, NULL), DDP_OK);
    ck_assert_int_eq(ddpi_listen_tcp(&door->address, &door->listener, NULL), DDP_OK);
}

/* false: nobody comes. */
static bool await_visitor(struct door *door)
{
    struct pollfd pollfd = {.fd = door->listener, .events = POLLIN};
    while (poll(&pollfd, 1, 1) != 1)
        if (atomic_load(&door->asked))
            return false;
    return true;
}

static void *throw_out(void *arg)
{
    struct door *door = arg;
    for (int i = 0; i < door->visitors && await_visitor(door); i++)
        close(ddpi_accept(door->listener));
    door->done_ms = now_ms();
    return NULL;
}

static struct ddpi_probe ask(const struct door *door)
{
    struct ddpi_probe asked = {.address = &door->address};
    ddpi_probe_all(&asked, 1);
    return asked;
}

/* Ask once, with @work in another thread; false: that was late. */
static bool ask_beside(struct door *door, void *(*work)(void *), struct ddpi_probe *ret_asked)
{
    uint64_t begun_ms = now_ms();
    atomic_store(&door->asked, false);
    ck_assert_int_eq(pthread_create(&door->thread, NULL, work, door), 0);
    *ret_asked = ask(door);
    atomic_store(&door->asked, true);
    pthread_join(door->thread, NULL);
    return was_in_time(door, begun_ms);
}

START_TEST(who_listens_lives)
{
    struct door door = {.visitors = _i};
    struct ddpi_probe asked;
    door_open(&door);
    while (!ask_beside(&door, throw_out, &asked))
        continue;
    ck_assert_int_eq(asked.fate, DDPI_FATE_ALIVE);
    ck_assert_int_eq(asked.attempts, door.visitors + 1);
    close(door.listener);
}
END_TEST

static void *close_when_one_has_come(void *arg)
{
    struct door *door = arg;
    (void)await_visitor(door);
    close(door->listener);
    door->done_ms = now_ms();
    return NULL;
}

/* It has closed its listener, or is about to. */
START_TEST(who_does_not_is_dead)
{
    struct door door = {0};
    struct ddpi_probe asked;
    door_open(&door);
    if (_i == 0) {
        close(door.listener);
        asked = ask(&door);
    }
    while (_i != 0 && !ask_beside(&door, close_when_one_has_come, &asked))
        door_open(&door);
    ck_assert_int_eq(asked.fate, DDPI_FATE_DEAD);
}
END_TEST

/* Somebody connects to @port and has no answer yet. */
static bool is_knocking(uint16_t port)
{
    char line[512], wanted[24];
    snprintf(wanted, sizeof wanted, ":%04X 02 ", port); /* TCP_SYN_SENT */
    bool found = false;
    FILE *file = fopen("/proc/net/tcp", "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strstr(line, wanted) != NULL;
    if (file != NULL)
        fclose(file);
    return found;
}

static void *close_when_one_knocks(void *arg)
{
    struct door *door = arg;
    const struct sockaddr_in *address = (const struct sockaddr_in *)&door->address;
    while (!is_knocking(ntohs(address->sin_port)) && !atomic_load(&door->asked))
        poll(NULL, 0, 1);
    close(door->listener);
    door->done_ms = now_ms();
    return NULL;
}

/* The queue of the listener is full, so the kernel drops who knocks, as it does for a listener that
 * is just being closed. */
START_TEST(one_that_gets_no_answer_is_asked_again)
{
    struct door door;
    struct ddpi_probe asked;
    bool in_time;
    do {
        struct pollfd first = {.events = POLLOUT};
        door_open(&door);
        ck_assert_int_eq(listen(door.listener, 0), 0); /* room for one */
        ddpi_begin_tcp(&door.address, &first.fd);
        ck_assert_int_eq(poll(&first, 1, -1), 1);
        ck_assert_int_eq(ddpi_connect_result(first.fd), 0);
        in_time = ask_beside(&door, close_when_one_knocks, &asked);
        close(first.fd);
    } while (!in_time);
    ck_assert_int_eq(asked.fate, DDPI_FATE_DEAD);
}
END_TEST

enum { MANY = 20 };

/* It holds all who have come to the first doors until one has come to the last, too. */
static void *close_when_one_is_at_each(void *arg)
{
    struct door *doors = arg;
    for (int i = 0; i < MANY; i++) {
        struct pollfd pollfd = {.fd = doors[i].listener, .events = POLLIN};
        poll(&pollfd, 1, -1);
    }
    for (int i = 0; i < MANY; i++)
        close(doors[i].listener);
    doors[0].done_ms = now_ms();
    return NULL;
}

/* One after the other, the first would have been taken for living before the last was asked. */
START_TEST(all_doors_are_knocked_at_together)
{
    struct door doors[MANY];
    struct ddpi_probe asked[MANY];
    uint64_t begun_ms;
    do {
        pthread_t thread;
        for (int i = 0; i < MANY; i++) {
            door_open(&doors[i]);
            asked[i] = (struct ddpi_probe){.address = &doors[i].address};
        }
        begun_ms = now_ms();
        ck_assert_int_eq(pthread_create(&thread, NULL, close_when_one_is_at_each, doors), 0);
        ddpi_probe_all(asked, MANY);
        pthread_join(thread, NULL);
    } while (!was_in_time(&doors[0], begun_ms));
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(asked[i].fate, DDPI_FATE_DEAD);
}
END_TEST

START_TEST(each_door_has_its_own_answer)
{
    struct door doors[3];
    struct ddpi_probe asked[3];
    const struct sockaddr_storage nowhere = {0};
    for (int i = 0; i < 3; i++) {
        door_open(&doors[i]);
        asked[i] = (struct ddpi_probe){.address = &doors[i].address};
    }
    close(doors[1].listener);
    asked[2].address = &nowhere;
    ddpi_probe_all(asked, 3);
    ck_assert_int_eq(asked[0].fate, DDPI_FATE_ALIVE);
    ck_assert_int_eq(asked[1].fate, DDPI_FATE_DEAD);
    ck_assert_int_eq(asked[2].fate, DDPI_FATE_UNKNOWN);
    close(doors[0].listener);
    close(doors[2].listener);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("peer_fate");
    TCase *tcase = tcase_create("fate");
    tcase_add_loop_test(tcase, a_process_is_known_by_its_socket, 0, 2);
    tcase_add_test(tcase, one_that_is_over_is_known_to_be);
    tcase_add_test(tcase, nothing_is_known_of_this_process);
    tcase_add_loop_test(tcase, who_listens_lives, 0, 3);
    tcase_add_loop_test(tcase, who_does_not_is_dead, 0, 2);
    tcase_add_test(tcase, one_that_gets_no_answer_is_asked_again);
    tcase_add_test(tcase, all_doors_are_knocked_at_together);
    tcase_add_test(tcase, each_door_has_its_own_answer);
    suite_add_tcase(suite, tcase);
    return suite;
}
