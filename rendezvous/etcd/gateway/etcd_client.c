/*
 * etcd_client.c - see etcd_client.h.
 *
 * Possible failure modes are:
 *   - a member does not answer, answers that it has no leader or is overloaded, or answers what is
 *     not etcd's: the next member is asked; after all of them there is a short pause;
 *   - the token of the user has expired: a new one is obtained, and the call goes on;
 *   - no member answers the login: it lasts as long as the first of the calls that wait for it, and
 *     is repeated for the others.
 */
#include "etcd_client.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "text.h"
#include "token_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAUSE_MS = 50, /* after all members have failed; up to twice as long, at random */
    ANSWER_MAX = 256 * 1024 * 1024,
    TOKEN_MAX = 900,
};

struct ddpi_etcd_client {
    uv_loop_t *loop;
    struct ddpi_etcd_http *http;
    struct ddpi_etcd_address address;
    char *user;
    char *password;
    char token[TOKEN_MAX];
    struct ddpi_list calls; /* ddpi_etcd_call::of_client */
    unsigned member;        /* the one that has answered last */
    struct ddpi_etcd_call login;
    struct ddpi_etcd_times times;
    void (*on_away)(void *ctx, const struct ddp_error *why);
    void (*on_back)(void *ctx);
    void *ctx;
    bool away; /* and the owner knows */
};

uint64_t ddpi_etcd_now_ms(void)
{
    return ddpi_now_ms(&ddpi_clock_boottime);
}

/* ---- the end of a call ---- */

static void end_call(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    ddpi_list_remove(&call->of_client);
    call->client = NULL;
    call->done(call, outcome);
}

static void describe(const struct ddpi_etcd_call *call, ddp_status status, const char *reason,
                     struct ddp_error *err)
{
    char member[DDPI_ETCD_MEMBER_TEXT];
    ddpi_etcd_member_text(&call->client->address, call->member, member);
    ddpi_error_set(err, status, "etcd at %s: %s", member, reason);
    ddpi_text_mask(err->msg);
}

static void fail_call(struct ddpi_etcd_call *call, ddp_status status, const char *reason)
{
    struct ddp_error err;
    describe(call, status, reason, &err);
    end_call(call, &(struct ddpi_etcd_outcome){
                       .status = status, .err = &err, .begun_ms = call->begun_ms});
}

/* ---- whether etcd answers ---- */

static void tell_away(const struct ddpi_etcd_call *call, const char *reason)
{
    struct ddp_error err;
    struct ddpi_etcd_client *client = call->client;
    describe(call, DDP_E_TIMEOUT, reason, &err);
    client->away = true;
    if (client->on_away != NULL)
        client->on_away(client->ctx, &err);
}

static void tell_back(struct ddpi_etcd_client *client)
{
    if (client->away && client->on_back != NULL)
        client->on_back(client->ctx);
    client->away = false;
}

/* ---- tries ---- */

static void try_member(struct ddpi_etcd_call *call);

static void on_pause_closed(uv_handle_t *handle)
{
    ddpi_free(handle);
}

static void end_pause(struct ddpi_etcd_call *call)
{
    if (call->pause != NULL)
        uv_close((uv_handle_t *)call->pause, on_pause_closed);
    call->pause = NULL;
}

static void on_pause(uv_timer_t *timer)
{
    struct ddpi_etcd_call *call = timer->data;
    end_pause(call);
    try_member(call);
}

static bool pause_call(struct ddpi_etcd_call *call)
{
    uint8_t random;
    ddpi_token_random(&random, sizeof random);
    call->pause = ddpi_calloc(1, sizeof(*call->pause));
    if (call->pause == NULL)
        return false;
    uv_timer_init(call->client->loop, call->pause);
    call->pause->data = call;
    uint64_t extra_ms = (uint64_t)random * PAUSE_MS / UINT8_MAX;
    uv_timer_start(call->pause, on_pause, PAUSE_MS + extra_ms, 0);
    return true;
}

/* The member has failed: ask the next one. */
static void try_next(struct ddpi_etcd_call *call, const char *reason)
{
    unsigned count = call->client->address.count;
    bool late = ddpi_etcd_now_ms() >= call->until_ms;
    call->tries++;
    call->authenticated = false; /* if it starts again, it forgets the new token, too */
    if (late || call->tries % count == 0)
        tell_away(call, reason);
    if (late) {
        fail_call(call, DDP_E_TIMEOUT, reason);
        return;
    }
    if (call->client->member == call->member)
        call->client->member = (call->member + 1) % count;
    call->member = (call->member + 1) % count;
    if (call->tries % count != 0)
        try_member(call);
    else if (!pause_call(call))
        fail_call(call, DDP_E_NOMEM, "out of memory");
}

/* ---- users ---- */

static void on_logged_in(struct ddpi_etcd_call *login, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_client *client = login->ctx;
    const json_t *token =
        outcome->status == DDP_OK ? json_object_get(outcome->reply->root, "token") : NULL;
    bool good = json_is_string(token) && json_string_length(token) < sizeof client->token;
    const char *reason = outcome->status != DDP_OK ? outcome->err->msg : outcome->reply->message;
    ddp_status status = outcome->status != DDP_OK ? outcome->status : DDP_E_DENIED;
    if (good)
        snprintf(client->token, sizeof client->token, "%s", json_string_value(token));
    struct ddpi_list waiting;
    ddpi_list_init(&waiting);
    ddpi_list_for_each_safe (node, &client->calls) {
        struct ddpi_etcd_call *call = ddpi_container_of(node, struct ddpi_etcd_call, of_client);
        if (call == login || call->exchange.http != NULL || call->pause != NULL)
            continue;
        ddpi_list_remove(node);
        ddpi_list_append(&waiting, node);
    }
    while (!ddpi_list_empty(&waiting)) {
        struct ddpi_etcd_call *call =
            ddpi_container_of(waiting.next, struct ddpi_etcd_call, of_client);
        ddpi_list_remove(&call->of_client);
        ddpi_list_append(&client->calls, &call->of_client);
        if (good || (status == DDP_E_TIMEOUT && ddpi_etcd_now_ms() < call->until_ms))
            try_member(call); /* it begins another login if there is no token */
        else
            fail_call(call, status, *reason != '\0' ? reason : "it gave no token to the user");
    }
}

/* For a call that ends at @until_ms. */
static void log_in(struct ddpi_etcd_client *client, uint64_t until_ms)
{
    struct ddpi_etcd_call *login = &client->login;
    uint64_t now_ms = ddpi_etcd_now_ms();
    if (ddpi_etcd_call_is_busy(login)) {
        if (until_ms < login->until_ms)
            login->until_ms = until_ms;
        return;
    }
    json_t *body = json_pack("{s:s,s:s}", "name", client->user, "password", client->password);
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    login->path = "/v3/auth/authenticate";
    login->try_ms = 2 * DDPI_ETCD_TRY_MS; /* hashing the password takes etcd a while */
    login->total_ms = until_ms > now_ms ? (uint32_t)(until_ms - now_ms) : 0;
    login->done = on_logged_in;
    login->ctx = client;
    ddpi_buf_finish(&login->body);
    ddpi_buf_init(&login->body, DDPI_ETCD_BODY_MAX);
    if (text != NULL)
        (void)ddpi_etcd_put_text(&login->body, text);
    if (text != NULL)
        ddpi_wipe(text, strlen(text));
    free(text); /* jansson's */
    ddpi_etcd_call_begin(client, login);
}

/* Returns false if the call cannot go on with another token. */
static bool renew_token(struct ddpi_etcd_call *call)
{
    struct ddpi_etcd_client *client = call->client;
    if (client->user == NULL || call->authenticated || call == &client->login)
        return false;
    call->authenticated = true;
    client->token[0] = '\0';
    log_in(client, call->until_ms);
    return true;
}

/* ---- answers ---- */

/* Whether every member would give this answer. All else is of a member that stops, starts or has
 * lost the others, with codes that differ between versions: another one may answer better. */
static bool is_final(const struct ddpi_etcd_reply *reply, long http_status)
{
    switch (reply->code) {
    case DDPI_ETCD_OK:
        return http_status == 200;
    case DDPI_ETCD_INVALID:
    case DDPI_ETCD_NOT_FOUND:
    case DDPI_ETCD_DENIED:
    case DDPI_ETCD_EXISTS:
    case DDPI_ETCD_RANGE:
        return true;
    case DDPI_ETCD_EXHAUSTED: /* its space, or what an answer may have; requests pass */
        return strstr(reply->message, "too many requests") == NULL;
    default:
        return false;
    }
}

static void judge_answer(struct ddpi_etcd_call *call, const struct ddpi_etcd_reply *reply,
                         long http_status)
{
    char reason[sizeof reply->message + 32];
    snprintf(reason, sizeof reason, "%s (HTTP %ld)",
             reply->message[0] != '\0' ? reply->message : "an error without a message",
             http_status);
    bool needs_user = strstr(reply->message, "user name is empty") != NULL;
    bool token_gone = reply->code == DDPI_ETCD_TOKEN || http_status == 401 ||
                      strstr(reply->message, "auth token") != NULL ||
                      strstr(reply->message, "auth store is old") != NULL;
    if ((token_gone || needs_user) && renew_token(call))
        return;
    if (needs_user || token_gone) {
        fail_call(call, DDP_E_DENIED,
                  "it wants a user: give --state-user and --state-password-file");
    } else if (!is_final(reply, http_status)) {
        try_next(call, reason);
    } else {
        call->client->member = call->member;
        tell_back(call->client);
        end_call(call, &(struct ddpi_etcd_outcome){
                           .status = DDP_OK, .reply = reply, .begun_ms = call->begun_ms});
    }
}

static void on_exchanged(struct ddpi_etcd_exchange *exchange, long http_status, const char *failure)
{
    struct ddpi_etcd_call *call = exchange->ctx;
    struct ddpi_etcd_reply reply;
    struct ddp_error err;
    if (failure != NULL) {
        call->client->times.failures++;
        char reason[CURL_ERROR_SIZE + 8];
        snprintf(reason, sizeof reason, "%s", failure);
        try_next(call, reason);
        return;
    }
    ddpi_etcd_times_add(&call->client->times, (uv_hrtime() - call->tried_ns) / 1000);
    const struct ddpi_bytes text =
        ddpi_bytes_of(ddpi_buf_head(&exchange->answer), ddpi_buf_len(&exchange->answer));
    if (ddpi_etcd_reply_parse(text, &reply, &err) == DDP_OK)
        judge_answer(call, &reply, http_status);
    else
        try_next(call, err.msg);
    ddpi_etcd_reply_finish(&reply);
}

/* ---- requests ---- */

static void try_member(struct ddpi_etcd_call *call)
{
    struct ddpi_etcd_client *client = call->client;
    const struct ddpi_endpoint *at = &client->address.at[call->member];
    char url[DDPI_HOST_MAX + 128];
    struct ddp_error err;
    bool six = strchr(at->host, ':') != NULL;
    if (client->user != NULL && client->token[0] == '\0' && call != &client->login) {
        log_in(client, call->until_ms);
        return;
    }
    const char *socket = client->address.socket;
    if (socket[0] != '\0')
        snprintf(url, sizeof url, "http://etcd%s", call->path);
    else
        snprintf(url, sizeof url, "%s://%s%s%s:%u%s", client->address.tls ? "https" : "http",
                 six ? "[" : "", at->host, six ? "]" : "", at->port, call->path);
    size_t len = ddpi_buf_len(&call->body);
    const struct ddpi_etcd_request request = {
        .url = url,
        .socket = socket[0] != '\0' ? socket : NULL,
        .body = len > 0 ? (const char *)ddpi_buf_head(&call->body) : NULL,
        .body_len = len,
        .token = client->token[0] != '\0' ? client->token : NULL,
        .timeout_ms = call->try_ms, /* whole, else the last reason is always that time is short */
        .answer_max = ANSWER_MAX};
    call->begun_ms = ddpi_etcd_now_ms();
    call->tried_ns = uv_hrtime();
    call->exchange.done = on_exchanged;
    call->exchange.ctx = call;
    if (ddpi_etcd_exchange_begin(client->http, &call->exchange, &request, &err) != DDP_OK)
        fail_call(call, err.status, err.msg);
}

void ddpi_etcd_call_init(struct ddpi_etcd_call *call)
{
    *call = (struct ddpi_etcd_call){.try_ms = DDPI_ETCD_TRY_MS};
    ddpi_list_init(&call->of_client);
    ddpi_buf_init(&call->body, DDPI_ETCD_BODY_MAX);
    ddpi_etcd_exchange_init(&call->exchange);
}

void ddpi_etcd_call_begin(struct ddpi_etcd_client *client, struct ddpi_etcd_call *call)
{
    call->client = client;
    call->member = client->member;
    call->tries = 0;
    call->authenticated = false;
    call->until_ms = ddpi_etcd_now_ms() + call->total_ms;
    ddpi_list_append(&client->calls, &call->of_client);
    try_member(call);
}

void ddpi_etcd_call_finish(struct ddpi_etcd_client *client, struct ddpi_etcd_call *call)
{
    end_pause(call);
    ddpi_list_remove(&call->of_client);
    call->client = NULL;
    ddpi_etcd_exchange_drop(client->http, &call->exchange);
    ddpi_buf_finish(&call->body);
}

const struct ddpi_etcd_times *ddpi_etcd_client_times(const struct ddpi_etcd_client *client)
{
    return &client->times;
}

/* ---- life ---- */

ddp_status ddpi_etcd_client_create(uv_loop_t *loop, const struct ddpi_etcd_client_options *options,
                                   struct ddpi_etcd_client **ret, struct ddp_error *err)
{
    struct ddpi_etcd_client *client = ddpi_calloc(1, sizeof(*client));
    if (client == NULL)
        return ddpi_error_nomem(err, sizeof(*client));
    client->loop = loop;
    client->on_away = options->away;
    client->on_back = options->back;
    client->ctx = options->ctx;
    client->address = *options->address;
    ddpi_list_init(&client->calls);
    ddpi_etcd_call_init(&client->login);
    if (options->user != NULL) {
        client->user = ddpi_strdup(options->user);
        client->password = ddpi_strdup(options->password != NULL ? options->password : "");
    }
    ddp_status status = ddpi_etcd_http_create(loop, &options->files, &client->http, err);
    if (status != DDP_OK) {
        ddpi_free(client->user);
        ddpi_free(client->password);
        ddpi_free(client);
        return status;
    }
    *ret = client;
    return DDP_OK;
}

void ddpi_etcd_client_destroy(struct ddpi_etcd_client *client)
{
    if (client == NULL)
        return;
    while (!ddpi_list_empty(&client->calls))
        ddpi_etcd_call_finish(
            client, ddpi_container_of(client->calls.next, struct ddpi_etcd_call, of_client));
    ddpi_etcd_call_finish(client, &client->login);
    ddpi_etcd_http_destroy(client->http);
    if (client->password != NULL)
        ddpi_wipe(client->password, strlen(client->password));
    ddpi_free(client->password);
    ddpi_free(client->user);
    ddpi_free(client);
}
