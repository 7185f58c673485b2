/*
 * listener.c - accepts connections. Owns the listening socket, a reserve descriptor, and two
 * handles.
 *
 * The happy path: the socket becomes readable, and the waiting connections are passed on.
 *
 * Possible failure modes are:
 *   - no file descriptor is left: the reserve is closed for a moment to accept a connection and
 *     close it, since one that stays in the backlog would keep waking the loop;
 *   - the system has no memory for another connection: accepting pauses for PAUSE_MS.
 */
#include "listener.h"

#include "error.h"
#include "listen.h"
#include "mem.h"
#include "uv_error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPTS_PER_TURN = 8, /* then other handles are served */
    PAUSE_MS = 100,
};

static int accept_one(const struct ddpi_listener *listener, struct sockaddr_storage *ret_peer)
{
    int fd;
    socklen_t len = sizeof *ret_peer;
    do
        fd = accept4(listener->fd, (struct sockaddr *)ret_peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    return fd;
}

static int open_reserve(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* False: there was no reserve. */
static bool shed_connection(struct ddpi_listener *listener)
{
    if (listener->reserve_fd < 0)
        return false;
    close(listener->reserve_fd);
    struct sockaddr_storage peer;
    int fd = accept_one(listener, &peer);
    if (fd >= 0) {
        close(fd);
        listener->env->shed(listener->env->owner);
    }
    listener->reserve_fd = open_reserve();
    return fd >= 0;
}

static void on_connectable(uv_poll_t *poll, int uv_err, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct ddpi_listener *listener = timer->data;
    if (listener->reserve_fd < 0)
        listener->reserve_fd = open_reserve();
    uv_poll_start(&listener->poll, UV_READABLE, on_connectable);
}

static void pause_accepting(struct ddpi_listener *listener, const char *why)
{
    ddpi_log(listener->env->log, DDPI_LOG_WARN, "accepting no connections for %d ms: %s", PAUSE_MS,
             why);
    uv_poll_stop(&listener->poll);
    uv_timer_start(&listener->pause, on_pause_over, PAUSE_MS, 0);
}

static void on_connectable(uv_poll_t *poll, int uv_err, int events)
{
    (void)events;
    struct ddpi_listener *listener = poll->data;
    if (uv_err != 0) {
        pause_accepting(listener, uv_strerror(uv_err));
        return;
    }
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage peer = {0};
        int fd = accept_one(listener, &peer);
        int sys_errno = errno;
        if (fd >= 0) {
            listener->env->connected(listener->env->owner, listener, fd,
                                     (const struct sockaddr *)&peer);
        } else if (sys_errno == EAGAIN) {
            break;
        } else if ((sys_errno != EMFILE && sys_errno != ENFILE) || !shed_connection(listener)) {
            pause_accepting(listener, uv_strerror(uv_translate_sys_error(sys_errno)));
            break;
        }
    }
}

ddp_status ddpi_listener_create(const struct ddpi_listener_env *env, int fd,
                                struct ddpi_listener **ret, struct ddp_error *err)
{
    struct ddpi_listener *listener = ddpi_calloc(1, sizeof(*listener));
    if (listener == NULL) {
        close(fd);
        return ddpi_error_nomem(err, sizeof(*listener));
    }
    int uv_err = uv_poll_init_socket(env->loop, &listener->poll, fd);
    if (uv_err != 0) {
        ddpi_free(listener);
        close(fd);
        return ddpi_uv_error(err, uv_err, "cannot watch the listening socket");
    }
    uv_timer_init(env->loop, &listener->pause);
    listener->poll.data = listener->pause.data = listener;
    listener->handles = 2;
    listener->env = env;
    listener->fd = fd;
    listener->reserve_fd = open_reserve();
    ddpi_list_init(&listener->of_server);
    ddpi_listen_name(fd, listener->endpoint, sizeof listener->endpoint, &listener->port);
    /* Fails only for a descriptor that is polled already, which uv_poll_init_socket() checks. */
    uv_poll_start(&listener->poll, UV_READABLE, on_connectable);
    *ret = listener;
    return DDP_OK;
}

static void on_listener_handle_closed(uv_handle_t *handle)
{
    struct ddpi_listener *listener = handle->data;
    if (--listener->handles > 0)
        return;
    const struct ddpi_listener_env *env = listener->env;
    ddpi_free(listener);
    env->closed(env->owner);
}

void ddpi_listener_close(struct ddpi_listener *listener)
{
    ddpi_list_remove(&listener->of_server);
    uv_poll_stop(&listener->poll);
    uv_close((uv_handle_t *)&listener->poll, on_listener_handle_closed);
    uv_close((uv_handle_t *)&listener->pause, on_listener_handle_closed);
    close(listener->fd);
    if (listener->reserve_fd >= 0)
        close(listener->reserve_fd);
}
