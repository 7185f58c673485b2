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

struct listener {
    int fd;
    struct sockaddr_storage address;
    int refused; /* so many connections are closed at once, then it is closed */
    pthread_t thread;
    atomic_bool asked; /* nobody comes any more */
    uint64_t done_ms;  /* when the thread had done its work */
};

/* A rank that asks waits 620 ms before it connects once more. If the system does not run the thread
 * of a listener for that long, the attempt proves nothing, and the test repeats it. */
enum { IN_TIME_MS = 400 };

static bool was_in_time(const struct listener *listener, uint64_t begun_ms)
{
    return listener->done_ms < begun_ms + IN_TIME_MS;
}

static uint64_t now_ms(void)
{
    return ddpi_monotonic_ms();
}

static void open_listener(struct listener *listener)
{
    ck_assert_int_eq(ddpi_source_address("127.0.0.1", 1, &listener->address, NULL), DDP_OK);
    ck_assert_int_eq(ddpi_listen_tcp(&listener->address, &listener->fd, NULL), DDP_OK);
}

/* false: nobody comes. */
static bool await_connection(struct listener *listener)
{
    struct pollfd pollfd = {.fd = listener->fd, .events = POLLIN};
    while (poll(&pollfd, 1, 1) != 1)
        if (atomic_load(&listener->asked))
            return false;
    return true;
}

static void *accept_and_close(void *arg)
{
    struct listener *listener = arg;
    for (int i = 0; i < listener->refused && await_connection(listener); i++)
        close(ddpi_accept(listener->fd));
    listener->done_ms = now_ms();
    return NULL;
}

static struct ddpi_probe ask(const struct listener *listener)
{
    struct ddpi_probe asked = {.address = &listener->address};
    ddpi_probe_all(&asked, 1);
    return asked;
}

/* Ask once, with @work in another thread; false: that was late. */
static bool ask_beside(struct listener *listener, void *(*work)(void *),
                       struct ddpi_probe *ret_asked)
{
    uint64_t begun_ms = now_ms();
    atomic_store(&listener->asked, false);
    ck_assert_int_eq(pthread_create(&listener->thread, NULL, work, listener), 0);
    *ret_asked = ask(listener);
    atomic_store(&listener->asked, true);
    pthread_join(listener->thread, NULL);
    return was_in_time(listener, begun_ms);
}

START_TEST(who_listens_lives)
{
    struct listener listener = {.refused = _i};
    struct ddpi_probe asked;
    open_listener(&listener);
    while (!ask_beside(&listener, accept_and_close, &asked))
        continue;
    ck_assert_int_eq(asked.fate, DDPI_FATE_ALIVE);
    ck_assert_int_eq(asked.attempts, listener.refused + 1);
    close(listener.fd);
}
END_TEST

static void *close_when_one_has_come(void *arg)
{
    struct listener *listener = arg;
    (void)await_connection(listener);
    close(listener->fd);
    listener->done_ms = now_ms();
    return NULL;
}

/* It has closed its listener, or is about to. */
START_TEST(who_does_not_is_dead)
{
    struct listener listener = {0};
    struct ddpi_probe asked;
    open_listener(&listener);
    if (_i == 0) {
        close(listener.fd);
        asked = ask(&listener);
    }
    while (_i != 0 && !ask_beside(&listener, close_when_one_has_come, &asked))
        open_listener(&listener);
    ck_assert_int_eq(asked.fate, DDPI_FATE_DEAD);
}
END_TEST

/* Somebody connects to @port and has no answer yet. */
static bool is_connecting(uint16_t port)
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

static void *close_when_one_connects(void *arg)
{
    struct listener *listener = arg;
    const struct sockaddr_in *address = (const struct sockaddr_in *)&listener->address;
    while (!is_connecting(ntohs(address->sin_port)) && !atomic_load(&listener->asked))
        poll(NULL, 0, 1);
    close(listener->fd);
    listener->done_ms = now_ms();
    return NULL;
}

/* The accept queue is full, so the kernel drops connections, as it does for a listener that is just
 * being closed. */
START_TEST(one_that_gets_no_answer_is_asked_again)
{
    struct listener listener;
    struct ddpi_probe asked;
    bool in_time;
    do {
        struct pollfd first = {.events = POLLOUT};
        open_listener(&listener);
        ck_assert_int_eq(listen(listener.fd, 0), 0); /* room for one */
        ddpi_begin_tcp(&listener.address, &first.fd);
        ck_assert_int_eq(poll(&first, 1, -1), 1);
        ck_assert_int_eq(ddpi_connect_result(first.fd), 0);
        in_time = ask_beside(&listener, close_when_one_connects, &asked);
        close(first.fd);
    } while (!in_time);
    ck_assert_int_eq(asked.fate, DDPI_FATE_DEAD);
}
END_TEST

enum { MANY = 20 };

/* It holds all who have come to the first listeners until one has come to the last, too. */
static void *close_when_one_is_at_each(void *arg)
{
    struct listener *listeners = arg;
    for (int i = 0; i < MANY; i++) {
        struct pollfd pollfd = {.fd = listeners[i].fd, .events = POLLIN};
        poll(&pollfd, 1, -1);
    }
    for (int i = 0; i < MANY; i++)
        close(listeners[i].fd);
    listeners[0].done_ms = now_ms();
    return NULL;
}

/* One after the other, the first would have been taken for living before the last was asked. */
START_TEST(all_listeners_are_asked_together)
{
    struct listener listeners[MANY];
    struct ddpi_probe asked[MANY];
    uint64_t begun_ms;
    do {
        pthread_t thread;
        for (int i = 0; i < MANY; i++) {
            open_listener(&listeners[i]);
            asked[i] = (struct ddpi_probe){.address = &listeners[i].address};
        }
        begun_ms = now_ms();
        ck_assert_int_eq(pthread_create(&thread, NULL, close_when_one_is_at_each, listeners), 0);
        ddpi_probe_all(asked, MANY);
        pthread_join(thread, NULL);
    } while (!was_in_time(&listeners[0], begun_ms));
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(asked[i].fate, DDPI_FATE_DEAD);
}
END_TEST

START_TEST(each_listener_has_its_own_answer)
{
    struct listener listeners[3];
    struct ddpi_probe asked[3];
    const struct sockaddr_storage nowhere = {0};
    for (int i = 0; i < 3; i++) {
        open_listener(&listeners[i]);
        asked[i] = (struct ddpi_probe){.address = &listeners[i].address};
    }
    close(listeners[1].fd);
    asked[2].address = &nowhere;
    ddpi_probe_all(asked, 3);
    ck_assert_int_eq(asked[0].fate, DDPI_FATE_ALIVE);
    ck_assert_int_eq(asked[1].fate, DDPI_FATE_DEAD);
    ck_assert_int_eq(asked[2].fate, DDPI_FATE_UNKNOWN);
    close(listeners[0].fd);
    close(listeners[2].fd);
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
    tcase_add_test(tcase, all_listeners_are_asked_together);
    tcase_add_test(tcase, each_listener_has_its_own_answer);
    suite_add_tcase(suite, tcase);
    return suite;
}
