/*
 * store_loop.c - a libuv loop with a store handle, handlers of the signals that end it, and a watch
 * for the end of standard output. Owns all of these.
 */
#include "store_loop.h"

#include "error.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

static const int signal_numbers[] = {SIGINT, SIGTERM};

static void close_loop_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void on_store_closed(void *data)
{
    struct ddpctl_loop *loop = data;
    uv_walk(&loop->uv, close_loop_handle, NULL);
}

void ddpctl_loop_end(struct ddpctl_loop *loop, ddp_status status, const char *sentence)
{
    if (loop->closing)
        return;
    loop->closing = true;
    loop->status = status;
    if (status != DDP_OK)
        ddpi_error_set(&loop->err, status, "%s", sentence);
    ddp_store_uv *store = loop->store;
    loop->store = NULL;
    ddp_store_uv_close(store, on_store_closed, loop);
}

void ddpctl_loop_ask(struct ddpctl_loop *loop, struct ddp_store_request request,
                     ddp_store_uv_done *done, void *data)
{
    struct ddp_error err;
    if (loop->closing)
        return;
    request.size = sizeof request;
    request.timeout_ms = loop->call->timeout_ms;
    ddp_status status = ddp_store_uv_submit(loop->store, &request, done, data, NULL, &err);
    if (status != DDP_OK)
        ddpctl_loop_end(loop, status, err.msg);
}

bool ddpctl_loop_flush(struct ddpctl_loop *loop)
{
    struct ddp_error err;
    if (fflush(stdout) == 0)
        return true;
    if (errno == EPIPE) {
        loop->stop(loop);
        return false;
    }
    ddp_status status = ddpi_error_sys(&err, errno, "cannot write to standard output");
    ddpctl_loop_end(loop, status, err.msg);
    return false;
}

static void on_loop_signal(uv_signal_t *signal, int number)
{
    struct ddpctl_loop *loop = signal->data;
    (void)number;
    loop->stop(loop);
}

static void on_output_closed(uv_poll_t *poll, int status, int events)
{
    struct ddpctl_loop *loop = poll->data;
    (void)status;
    (void)events;
    uv_poll_stop(poll);
    loop->stop(loop);
}

/* An epoll set becomes readable when the one descriptor in it has an error. libuv would make
 * standard output non-blocking for all processes that share it. epoll refuses regular files. */
static void observe_output(struct ddpctl_loop *loop)
{
    struct epoll_event nothing = {0};
    loop->output_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->output_fd < 0 ||
        epoll_ctl(loop->output_fd, EPOLL_CTL_ADD, STDOUT_FILENO, &nothing) != 0 ||
        uv_poll_init(&loop->uv, &loop->output, loop->output_fd) != 0)
        return;
    loop->output.data = loop;
    uv_poll_start(&loop->output, UV_READABLE, on_output_closed);
}

static bool open_handles(struct ddpctl_loop *loop)
{
    for (size_t i = 0; i < sizeof loop->signals / sizeof *loop->signals; i++) {
        loop->signals[i].data = loop;
        if (uv_signal_init(&loop->uv, &loop->signals[i]) != 0 ||
            uv_signal_start(&loop->signals[i], on_loop_signal, signal_numbers[i]) != 0)
            return false;
    }
    loop->timer.data = loop;
    observe_output(loop);
    return uv_timer_init(&loop->uv, &loop->timer) == 0;
}

ddp_status ddpctl_loop_run(struct ddpctl_loop *loop, const struct ddp_store_options *options,
                           const struct ddp_store_uv_hooks *hooks,
                           void (*begin)(struct ddpctl_loop *loop), struct ddp_error *err)
{
    loop->output_fd = -1;
    if (uv_loop_init(&loop->uv) != 0)
        return ddpi_error_set(err, DDP_E_SYSTEM, "cannot create an event loop");
    signal(SIGPIPE, SIG_IGN);
    ddp_status status = open_handles(loop)
                            ? ddp_store_uv_open(&loop->uv, options, hooks, &loop->store, err)
                            : ddpi_error_set(err, DDP_E_SYSTEM, "cannot watch for signals");
    if (status == DDP_OK)
        begin(loop);
    else
        uv_walk(&loop->uv, close_loop_handle, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    uv_loop_close(&loop->uv);
    if (loop->output_fd >= 0)
        close(loop->output_fd);
    if (status == DDP_OK && loop->status != DDP_OK)
        status = ddpi_error_set(err, loop->status, "%s", loop->err.msg);
    return status;
}
