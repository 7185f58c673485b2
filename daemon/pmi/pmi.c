/*
 * pmi.c - sockets and lines of the process manager. It stops reading from a rank that does not read
 * its answers.
 */
#include "pmi.h"

#include "buf.h"
#include "error.h"
#include "mem.h"
#include "pmi_node_exchange.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bytes of answers that a rank has not read. A short request may have a long answer, so reading
 * resumes only when most answers are gone. */
enum { UNREAD_MAX = 64 * 1024, UNREAD_FEW = UNREAD_MAX / 2 };

struct pmi_channel {
    uv_pipe_t pipe;
    struct pmi *pmi;
    uint32_t local_rank;
    bool closing;
    bool paused;
    bool unanswerable; /* writing to it has failed */
    char line[PMI_LINE_MAX];
    size_t used;
};

struct answer {
    uv_write_t request;
    char text[];
};

static void read_lines(struct pmi_channel *channel);

static void on_channel_closed(uv_handle_t *handle)
{
    ddpi_free(handle->data);
}

static void close_channel(struct pmi_channel *channel)
{
    if (channel->closing)
        return;
    channel->closing = true;
    channel->pmi->channels[channel->local_rank] = NULL;
    uv_close((uv_handle_t *)&channel->pipe, on_channel_closed);
}

/* ---- hooks of the node ---- */

static void on_channel_written(uv_write_t *request, int uv_status)
{
    struct pmi_channel *channel = request->handle->data;
    bool few = uv_stream_get_write_queue_size(request->handle) <= UNREAD_FEW;
    ddpi_free(request->data);
    channel->unanswerable = channel->unanswerable || uv_status != 0;
    if (channel->paused && !channel->closing && (few || channel->unanswerable)) {
        channel->paused = false;
        read_lines(channel);
    }
}

/* An answer cannot be sent: shut the connection down, so that the rank and on_channel_read() see
 * its end, the latter after the current call. */
static void stop_answering(struct pmi_channel *channel)
{
    uv_os_fd_t fd;
    channel->unanswerable = true;
    if (uv_fileno((uv_handle_t *)&channel->pipe, &fd) == 0)
        shutdown(fd, SHUT_RDWR);
}

static void on_reply(void *ctx, uint32_t local_rank, const char *text, size_t len)
{
    struct pmi *pmi = ctx;
    struct pmi_channel *channel = pmi->channels[local_rank];
    if (channel == NULL || channel->unanswerable)
        return;
    struct answer *answer = ddpi_calloc(1, sizeof *answer + len);
    if (answer == NULL) {
        stop_answering(channel);
        return;
    }
    answer->request.data = answer;
    memcpy(answer->text, text, len);
    const uv_buf_t buf = uv_buf_init(answer->text, (unsigned)len);
    if (uv_write(&answer->request, (uv_stream_t *)&channel->pipe, &buf, 1, on_channel_written) !=
        0) {
        ddpi_free(answer);
        stop_answering(channel);
    }
}

static void on_hang_up(void *ctx, uint32_t local_rank)
{
    struct pmi *pmi = ctx;
    if (pmi->channels[local_rank] != NULL)
        close_channel(pmi->channels[local_rank]);
}

static void on_aborted(void *ctx, uint32_t local_rank, int exit_code)
{
    struct pmi *pmi = ctx;
    pmi->hooks.aborted(pmi->hooks.ctx, local_rank, exit_code);
}

static ddp_status on_exchange(void *ctx, uint32_t number, const char *text, size_t len,
                              struct ddp_error *err)
{
    struct pmi *pmi = ctx;
    const struct pmi_exchange exchange = {
        .pmi = pmi,
        .generation = pmi->place.generation,
        .number = number,
        .node_rank = pmi->place.node_rank,
        .nodes = pmi->place.nodes,
        .text = text,
        .len = len,
    };
    return pmi->link->exchange(pmi->link->ctx, &exchange, err);
}

static void on_say(void *ctx, const char *line)
{
    struct pmi *pmi = ctx;
    pmi->hooks.say(pmi->hooks.ctx, line);
}

/* ---- lines of the ranks ---- */

/* The owner decides what the end of the connection means: if the process is failing, the generation
 * ends because of that. */
static void lose_channel(struct pmi_channel *channel)
{
    struct pmi *pmi = channel->pmi;
    uint32_t local_rank = channel->local_rank;
    close_channel(channel);
    pmi->hooks.unplugged(pmi->hooks.ctx, local_rank);
}

static void on_channel_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct pmi_channel *channel = handle->data;
    (void)suggested;
    *buf = uv_buf_init(channel->line + channel->used,
                       (unsigned)(sizeof channel->line - channel->used));
}

/* Pass on whole lines. A line that does not fit is not PMI-1: the node rejects its beginning. */
static void take_lines(struct pmi_channel *channel)
{
    struct pmi *pmi = channel->pmi;
    size_t from = 0;
    while (!channel->closing) {
        const char *at = channel->line + from;
        const char *end = memchr(at, '\n', channel->used - from);
        if (end == NULL && (from > 0 || channel->used < sizeof channel->line))
            break;
        size_t len = end != NULL ? (size_t)(end - at) : channel->used;
        pmi_node_line(pmi->node, channel->local_rank, at, len);
        from += end != NULL ? len + 1 : len;
    }
    memmove(channel->line, channel->line + from, channel->used - from);
    channel->used -= from;
}

static void on_channel_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct pmi_channel *channel = stream->data;
    (void)buf;
    if (count < 0) {
        lose_channel(channel);
        return;
    }
    channel->used += (size_t)count;
    take_lines(channel);
    if (!channel->closing && uv_stream_get_write_queue_size(stream) > UNREAD_MAX) {
        channel->paused = true;
        uv_read_stop(stream);
    }
}

static void read_lines(struct pmi_channel *channel)
{
    if (uv_read_start((uv_stream_t *)&channel->pipe, on_channel_alloc, on_channel_read) != 0)
        lose_channel(channel);
}

/* ---- opening and closing ---- */

void pmi_init(struct pmi *pmi, uv_loop_t *loop, const struct pmi_link *link,
              const struct pmi_hooks *hooks)
{
    *pmi = (struct pmi){.loop = loop, .link = link, .hooks = *hooks};
}

ddp_status pmi_begin(struct pmi *pmi, const struct pmi_place *place, struct ddp_error *err)
{
    const struct pmi_node_hooks hooks = {.ctx = pmi,
                                         .reply = on_reply,
                                         .hang_up = on_hang_up,
                                         .aborted = on_aborted,
                                         .exchange = on_exchange,
                                         .say = on_say};
    pmi->place = *place;
    pmi->channels = ddpi_calloc(place->nproc, sizeof(struct pmi_channel *));
    if (pmi->channels != NULL)
        pmi->node = pmi_node_create(place, &hooks);
    if (pmi->node != NULL)
        return DDP_OK;
    ddpi_free(pmi->channels);
    pmi->channels = NULL;
    return ddpi_error_nomem(err, place->nproc * sizeof(struct pmi_channel *));
}

void pmi_end(struct pmi *pmi)
{
    if (pmi->node == NULL)
        return;
    if (pmi->link != NULL)
        pmi->link->forget(pmi->link->ctx);
    for (uint32_t i = 0; i < pmi->place.nproc; i++)
        on_hang_up(pmi, i);
    pmi_node_destroy(pmi->node);
    ddpi_free(pmi->channels);
    pmi->node = NULL;
    pmi->channels = NULL;
}

ddp_status pmi_connect(struct pmi *pmi, uint32_t local_rank, int *ret_fd, struct ddp_error *err)
{
    int fds[2];
    struct pmi_channel *channel = ddpi_calloc(1, sizeof *channel);
    if (channel == NULL)
        return ddpi_error_nomem(err, sizeof *channel);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        ddpi_free(channel);
        return ddpi_error_advise(
            err, ddpi_error_sys(err, errno, "cannot make a socket for worker %u", local_rank),
            "raise the limit on open files, 'ulimit -n', or start fewer workers");
    }
    channel->pmi = pmi;
    channel->local_rank = local_rank;
    uv_pipe_init(pmi->loop, &channel->pipe, 0);
    channel->pipe.data = channel;
    pmi->channels[local_rank] = channel;
    int uv_status = uv_pipe_open(&channel->pipe, fds[0]);
    if (uv_status == 0)
        uv_status = uv_read_start((uv_stream_t *)&channel->pipe, on_channel_alloc, on_channel_read);
    else
        close(fds[0]);
    if (uv_status != 0) {
        close_channel(channel);
        close(fds[1]);
        return ddpi_error_sys(err, -uv_status, "cannot watch the socket of worker %u", local_rank);
    }
    *ret_fd = fds[1];
    return DDP_OK;
}

void pmi_rank_gone(struct pmi *pmi, uint32_t local_rank)
{
    if (pmi->node != NULL)
        pmi_node_gone(pmi->node, local_rank);
}

void pmi_heard(struct pmi *pmi, uint32_t from_node, const char *text, size_t len)
{
    if (pmi->node != NULL)
        pmi_node_exchange_text(pmi->node, from_node, text, len);
}

void pmi_cut_off(struct pmi *pmi, const char *why)
{
    if (pmi->node != NULL)
        pmi_node_exchange_cut_off(pmi->node, why);
}
