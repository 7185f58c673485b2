/*
 * flight_answers.c - see flight_answers.h. Owns a client of the store. What cannot be sent is not
 * sent again: the asker has a time limit and says who has not answered.
 */
#include "flight_answers.h"

#include "agent.h"
#include "flight_ask.h"
#include "mem.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    LATER_MS = 1000,
    UNSENT_MAX = 1024, /* more answers than these are on their way: somebody asks too much */
    ANSWER_MS = 60000,
    KEY_SIZE = sizeof DDPI_FLIGHT_ANSWER_PREFIX + DDPI_FLIGHT_ID_CHARS + 16,
};
_Static_assert(sizeof(struct ddp_store_session) == DDPI_FLIGHT_SESSION, "an ask has a session");

static void on_answer_sent(void *data, const struct ddp_store_result *result)
{
    struct flight_answers *answers = data;
    (void)result;
    answers->unsent--;
}

static void send_answer(struct flight_answers *answers, const struct ddpi_flight_ask *ask,
                        uint32_t local_rank)
{
    char key[KEY_SIZE];
    size_t len;
    struct ddp_store_session session;
    struct ddpi_flight_header *copy =
        agent_flight_copy(answers->agent, local_rank, ask->last, &len);
    if (copy == NULL)
        return;
    memcpy(session.token, ask->session, sizeof session.token);
    snprintf(key, sizeof key, DDPI_FLIGHT_ANSWER_PREFIX "%s/%" PRIu32, ask->id, copy->place.rank);
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = DDP_STORE_OP_SET_EPHEMERAL,
                                              .timeout_ms = ANSWER_MS,
                                              .key = key,
                                              .value = copy,
                                              .value_len = len,
                                              .session = &session};
    ddp_status status =
        ddp_store_uv_submit(answers->store, &request, on_answer_sent, answers, NULL, NULL);
    answers->unsent += status == DDP_OK;
    ddpi_free(copy);
}

static void on_ask(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    struct flight_answers *answers = data;
    struct ddpi_flight_ask ask;
    (void)store;
    if (event->kind != DDP_STORE_EVENT_SET ||
        !ddpi_flight_ask_get(event->key, event->value, event->value_len, &ask))
        return;
    for (uint32_t i = 0; i < answers->agent->config->nproc && answers->unsent < UNSENT_MAX; i++)
        send_answer(answers, &ask, i);
}

static void on_later(uv_timer_t *timer)
{
    struct flight_answers *answers = timer->data;
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .data = answers, .event = on_ask};
    const struct ddp_store_request watch = {.size = sizeof watch,
                                            .op = DDP_STORE_OP_WATCH,
                                            .timeout_ms = DDP_STORE_FOREVER,
                                            .key = DDPI_FLIGHT_ASK_PREFIX,
                                            .flags = DDP_STORE_WATCH_PREFIX};
    if (ddp_store_uv_open(timer->loop, &answers->options, &hooks, &answers->store, NULL) == DDP_OK)
        (void)!ddp_store_uv_submit(answers->store, &watch, NULL, NULL, NULL, NULL);
}

void flight_answers_open(struct flight_answers *answers, uv_loop_t *loop,
                         const struct ddp_store_options *options, const struct agent *agent)
{
    *answers = (struct flight_answers){.agent = agent, .options = *options};
    if (uv_timer_init(loop, &answers->later) != 0)
        return;
    answers->open = true;
    answers->later.data = answers;
    uv_timer_start(&answers->later, on_later, LATER_MS, 0);
}

void flight_answers_close(struct flight_answers *answers)
{
    if (answers->open)
        uv_close((uv_handle_t *)&answers->later, NULL);
    if (answers->store != NULL)
        ddp_store_uv_close(answers->store, NULL, NULL);
    answers->open = false;
    answers->store = NULL;
}
