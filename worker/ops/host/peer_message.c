/*
 * peer_message.c - the algorithm of ddp_send() and ddp_recv(): one message of the mailbox, which
 * moves it. Owns nothing.
 *
 * A message leaves as the edge has room: the sender does not wait for the receiver's call, and
 * hears later if that call does not match. When its rank leaves, nobody may be left who would send
 * what a request still waits for: it is given up.
 */
#include "peer_message.h"

#include "mailbox.h"

/* The state of a run. */
struct message {
    struct ddpi_mail mail;
    unsigned most_needs;
};
DDPI_RUN_STATE_FITS(struct message);

static struct message *message_of(struct ddpi_run *run)
{
    return (struct message *)(void *)run->state;
}

static struct ddpi_mail *message_mail(struct ddpi_run *run)
{
    return &message_of(run)->mail;
}

static ddp_status message_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    const struct ddpi_task *task = &run->task;
    struct ddpi_mail *mail = message_mail(run);
    *mail = (struct ddpi_mail){.call = task->call,
                               .len = task->call.bytes,
                               .peer = task->call.root,
                               .sends = task->call.operation == DDPI_SEND};
    mail->bytes = mail->sends ? (uint8_t *)(uintptr_t)task->send : task->recv;
    message_of(run)->most_needs = ddpi_mail_most_needs(comm, mail);
    run->wait.sends = mail->sends;
    run->wait.bytes_wanted = mail->len;
    return ddpi_mail_post(comm, mail);
}

/* No message has come for it, and this rank leaves: it takes what comes over an edge that is there,
 * but needs nothing, as the other rank may have left. */
static bool is_left(const struct ddp_comm *comm, const struct ddpi_run *run,
                    const struct ddpi_mail *mail)
{
    return run->is_request && mail->state == DDPI_MAIL_WAITING &&
           atomic_load_explicit(&comm->finalized, memory_order_relaxed);
}

static bool has_edge(const struct ddp_comm *comm, const struct ddpi_mail *mail)
{
    return mail->peer < comm->world_size && ddpi_edges_peer(&comm->edges, mail->peer) != NULL;
}

static ddp_status message_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                  enum ddpi_movement *ret_movement)
{
    struct ddpi_mail *mail = message_mail(run);
    bool moved = false;
    *ret_movement = atomic_load(&comm->leaves) ? DDPI_GIVEN_UP : DDPI_IDLE;
    if (is_left(comm, run, mail) && !has_edge(comm, mail))
        return DDP_OK;
    ddp_status status = ddpi_mail_move(comm, &run->wait, mail, &moved);
    run->wait.bytes_done = mail->done;
    if (status != DDP_OK || (!moved && is_left(comm, run, mail)))
        return status;
    *ret_movement = moved ? DDPI_MOVED : DDPI_IDLE;
    if (mail->state != DDPI_MAIL_COMPLETE)
        return DDP_OK;
    *(mail->sends ? &run->task.bytes_sent : &run->task.bytes_received) = mail->done;
    if (run->task.source != NULL)
        *run->task.source = mail->peer;
    *ret_movement = DDPI_COMPLETE;
    return DDP_OK;
}

static unsigned message_most_needs(const struct ddpi_run *run)
{
    return ((const struct message *)(const void *)run->state)->most_needs;
}

static unsigned message_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                              struct ddpi_need *needs)
{
    struct ddpi_mail *mail = message_mail(run);
    return is_left(comm, run, mail) ? 0 : ddpi_mail_needs(comm, mail, needs);
}

static void message_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    (void)status;
    if (run->begun)
        ddpi_mail_drop(comm, message_mail(run));
}

const struct ddpi_algorithm ddpi_message_algorithm = {.name = "message",
                                                      .begin = message_begin,
                                                      .advance = message_advance,
                                                      .most_needs = message_most_needs,
                                                      .needs = message_needs,
                                                      .end = message_end};
