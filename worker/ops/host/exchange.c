/*
 * exchange.c - pieces to and from any number of ranks as messages of one run. Owns the messages.
 */
#include "exchange.h"

#include "mem.h"

ddp_status ddpi_exchange_begin(struct ddp_comm *comm, struct ddpi_exchange *exchange,
                               const struct ddpi_call *call,
                               const struct ddpi_exchange_piece *pieces, unsigned count)
{
    ddp_status status = DDP_OK;
    *exchange = (struct ddpi_exchange){0};
    if (count == 0)
        return DDP_OK;
    exchange->mails = ddpi_calloc(count, sizeof *exchange->mails);
    if (exchange->mails == NULL)
        return ddpi_comm_fail(comm, NULL, DDP_E_NOMEM,
                              "rank %u: no memory for messages with %u ranks", comm->rank, count);
    exchange->count = count;
    for (unsigned i = 0; i < count && status == DDP_OK; i++) {
        struct ddpi_mail *mail = &exchange->mails[i];
        *mail = (struct ddpi_mail){.call = *call,
                                   .bytes = pieces[i].bytes,
                                   .len = pieces[i].len,
                                   .peer = pieces[i].peer,
                                   .sends = pieces[i].sends};
        mail->call.bytes = mail->len;
        status = ddpi_mail_post(comm, mail);
    }
    return status;
}

/* Bytes that a rank gives itself are not counted. */
static void count_bytes(const struct ddp_comm *comm, const struct ddpi_exchange *exchange,
                        struct ddpi_task *task)
{
    task->bytes_sent = task->bytes_received = 0;
    for (unsigned i = 0; i < exchange->count; i++) {
        const struct ddpi_mail *mail = &exchange->mails[i];
        if (mail->peer != comm->rank)
            *(mail->sends ? &task->bytes_sent : &task->bytes_received) += mail->len;
    }
}

ddp_status ddpi_exchange_advance(struct ddp_comm *comm, struct ddpi_exchange *exchange,
                                 struct ddpi_run *run, enum ddpi_movement *ret_movement)
{
    bool moved = false, complete = true;
    struct ddpi_wait *wait = &run->wait;
    wait->bytes_done = wait->bytes_wanted = 0;
    for (unsigned i = 0; i < exchange->count; i++) {
        struct ddpi_mail *mail = &exchange->mails[i];
        ddp_status status = ddpi_mail_move(comm, wait, mail, &moved);
        if (status != DDP_OK)
            return status;
        complete &= mail->state == DDPI_MAIL_COMPLETE;
        wait->bytes_done += mail->sends ? 0 : mail->done;
        wait->bytes_wanted += mail->sends ? 0 : mail->len;
    }
    *ret_movement = complete ? DDPI_COMPLETE : moved ? DDPI_MOVED : DDPI_IDLE;
    if (complete)
        count_bytes(comm, exchange, &run->task);
    return DDP_OK;
}

unsigned ddpi_exchange_needs(const struct ddp_comm *comm, const struct ddpi_exchange *exchange,
                             struct ddpi_need *needs)
{
    unsigned count = 0;
    for (unsigned i = 0; i < exchange->count; i++)
        count += ddpi_mail_needs(comm, &exchange->mails[i], needs + count);
    return count;
}

bool ddpi_exchange_lacks(const struct ddpi_exchange *exchange, uint32_t rank)
{
    for (unsigned i = 0; i < exchange->count; i++) {
        const struct ddpi_mail *mail = &exchange->mails[i];
        if (mail->peer == rank && !mail->sends && mail->state != DDPI_MAIL_COMPLETE)
            return true;
    }
    return false;
}

void ddpi_exchange_end(struct ddp_comm *comm, struct ddpi_exchange *exchange)
{
    for (unsigned i = 0; i < exchange->count; i++)
        ddpi_mail_drop(comm, &exchange->mails[i]);
    ddpi_free(exchange->mails);
    *exchange = (struct ddpi_exchange){0};
}
