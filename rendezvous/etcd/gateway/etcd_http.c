/*
 * etcd_http.c - see etcd_http.h. Owns a multi handle of libcurl, a poll handle for each socket of
 * it, and a timer.
 *
 * The happy path: libcurl names sockets and a time; libuv waits for them; what is ready is given to
 * libcurl; exchanges that have ended are taken out afterwards, never inside a callback of libcurl,
 * which does not allow that.
 */
#include "etcd_http.h"

#include "error.h"
#include "mem.h"

#include <stdio.h>
#include <string.h>

enum { CONNECT_MS = 200, CONNECT_TLS_MS = 1000 };

struct ddpi_etcd_http {
    struct ddpi_etcd_library curl;
    struct ddpi_etcd_files files;
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    unsigned handles; /* not closed yet */
    bool closing;
};

struct etcd_socket {
    struct ddpi_etcd_http *http;
    uv_poll_t poll;
    curl_socket_t fd;
};

/* ---- the end ---- */

static void http_maybe_closed(struct ddpi_etcd_http *http)
{
    if (--http->handles == 0)
        ddpi_free(http);
}

static void on_timer_closed(uv_handle_t *handle)
{
    http_maybe_closed(handle->data);
}

static void on_socket_closed(uv_handle_t *handle)
{
    struct etcd_socket *socket = handle->data;
    struct ddpi_etcd_http *http = socket->http;
    ddpi_free(socket);
    http_maybe_closed(http);
}

/* ---- exchanges that have ended ---- */

static const char *explain_failure(const struct ddpi_etcd_http *http,
                                   const struct ddpi_etcd_exchange *exchange, CURLcode code)
{
    if (code == CURLE_OK)
        return NULL;
    if (exchange->too_long)
        return "its answer is longer than any that is expected";
    return exchange->reason[0] != '\0' ? exchange->reason : http->curl.curl_easy_strerror(code);
}

/* The owner has said what counts as the answer if the real one is too long. */
static bool answer_instead(struct ddpi_etcd_exchange *exchange)
{
    if (!exchange->too_long || exchange->instead == NULL)
        return false;
    size_t limit = exchange->answer.limit;
    ddpi_buf_finish(&exchange->answer);
    ddpi_buf_init(&exchange->answer, limit);
    return ddpi_buf_append(&exchange->answer, exchange->instead, strlen(exchange->instead));
}

static void take_ended(struct ddpi_etcd_http *http, CURL *easy, CURLcode code)
{
    char *about = NULL;
    long http_status = 0;
    (http->curl.curl_easy_getinfo)(easy, CURLINFO_PRIVATE, &about);
    (http->curl.curl_easy_getinfo)(easy, CURLINFO_RESPONSE_CODE, &http_status);
    struct ddpi_etcd_exchange *exchange = (void *)about;
    http->curl.curl_multi_remove_handle(http->multi, easy);
    exchange->http = NULL;
    if (answer_instead(exchange))
        exchange->done(exchange, DDPI_ETCD_HTTP_TOO_LONG, NULL);
    else
        exchange->done(exchange, http_status, explain_failure(http, exchange, code));
}

static void take_all_ended(struct ddpi_etcd_http *http)
{
    int left;
    CURLMsg *message;
    while (!http->closing &&
           (message = http->curl.curl_multi_info_read(http->multi, &left)) != NULL)
        if (message->msg == CURLMSG_DONE)
            take_ended(http, message->easy_handle, message->data.result);
}

/* ---- the loop ---- */

/* libuv does not say which error a socket has; libcurl does, once it has tried to use it. */
static void on_ready(uv_poll_t *poll, int status, int events)
{
    const struct etcd_socket *socket = poll->data;
    struct ddpi_etcd_http *http = socket->http;
    int running, flags = 0;
    flags |= status < 0 || (events & UV_READABLE) != 0 ? CURL_CSELECT_IN : 0;
    flags |= status < 0 || (events & UV_WRITABLE) != 0 ? CURL_CSELECT_OUT : 0;
    http->curl.curl_multi_socket_action(http->multi, socket->fd, flags, &running);
    take_all_ended(http);
}

static void on_time(uv_timer_t *timer)
{
    struct ddpi_etcd_http *http = timer->data;
    int running;
    http->curl.curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    take_all_ended(http);
}

static struct etcd_socket *watch_socket(struct ddpi_etcd_http *http, curl_socket_t fd)
{
    struct etcd_socket *socket = ddpi_calloc(1, sizeof(*socket));
    if (socket == NULL)
        return NULL;
    if (uv_poll_init_socket(http->loop, &socket->poll, fd) != 0) {
        ddpi_free(socket);
        return NULL;
    }
    socket->http = http;
    socket->fd = fd;
    socket->poll.data = socket;
    http->handles++;
    http->curl.curl_multi_assign(http->multi, fd, socket);
    return socket;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *about)
{
    (void)easy;
    struct ddpi_etcd_http *http = ctx;
    struct etcd_socket *socket = about;
    if (what == CURL_POLL_REMOVE) {
        if (socket != NULL) {
            http->curl.curl_multi_assign(http->multi, fd, NULL);
            uv_close((uv_handle_t *)&socket->poll, on_socket_closed);
        }
        return 0;
    }
    if (socket == NULL && (socket = watch_socket(http, fd)) == NULL)
        return -1;
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    return uv_poll_start(&socket->poll, events, on_ready) == 0 ? 0 : -1;
}

/* 0 ms is the next turn of the loop, as libcurl cannot be called from here. */
static int on_timeout(CURLM *multi, long timeout_ms, void *ctx)
{
    (void)multi;
    struct ddpi_etcd_http *http = ctx;
    if (http->closing)
        return 0;
    if (timeout_ms < 0)
        uv_timer_stop(&http->timer);
    else
        uv_timer_start(&http->timer, on_time, (uint64_t)timeout_ms, 0);
    return 0;
}

/* ---- exchanges ---- */

static size_t on_answer(char *bytes, size_t size, size_t count, void *ctx)
{
    struct ddpi_etcd_exchange *exchange = ctx;
    size_t len = size * count;
    if (ddpi_buf_append(&exchange->answer, bytes, len))
        return len;
    exchange->too_long = true;
    return 0;
}

void ddpi_etcd_exchange_init(struct ddpi_etcd_exchange *exchange)
{
    exchange->http = NULL;
    exchange->easy = NULL;
    exchange->headers = NULL;
    exchange->instead = NULL;
    exchange->most = 0;
    ddpi_buf_init(&exchange->answer, 0);
}

static bool add_header(struct ddpi_etcd_http *http, struct ddpi_etcd_exchange *exchange,
                       const char *line)
{
    struct curl_slist *longer = http->curl.curl_slist_append(exchange->headers, line);
    if (longer != NULL)
        exchange->headers = longer;
    return longer != NULL;
}

static bool set_headers(struct ddpi_etcd_http *http, struct ddpi_etcd_exchange *exchange,
                        const char *token)
{
    char line[1024];
    http->curl.curl_slist_free_all(exchange->headers);
    exchange->headers = NULL;
    snprintf(line, sizeof line, "Authorization: %s", token != NULL ? token : "");
    /* A member without quorum fails at once then, and does not wait. */
    return add_header(http, exchange, "Grpc-Metadata-hasleader: true") &&
           add_header(http, exchange, "Content-Type: application/json") &&
           add_header(http, exchange, "Expect:") &&
           (token == NULL || add_header(http, exchange, line));
}

#define SET(option, value) (void)(http->curl.curl_easy_setopt)(easy, option, value)

static void set_tls(struct ddpi_etcd_http *http, CURL *easy)
{
    if (http->files.ca != NULL)
        SET(CURLOPT_CAINFO, http->files.ca);
    if (http->files.cert != NULL)
        SET(CURLOPT_SSLCERT, http->files.cert);
    if (http->files.key != NULL)
        SET(CURLOPT_SSLKEY, http->files.key);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
}

static void set_options(struct ddpi_etcd_http *http, struct ddpi_etcd_exchange *exchange,
                        const struct ddpi_etcd_request *request)
{
    CURL *easy = exchange->easy;
    bool tls = strncmp(request->url, "https", 5) == 0;
    SET(CURLOPT_URL, request->url);
    if (request->socket != NULL)
        SET(CURLOPT_UNIX_SOCKET_PATH, request->socket);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_TCP_NODELAY, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
    SET(CURLOPT_QUICK_EXIT, 1L); /* a resolver that hangs does not hold up the end */
#endif
    SET(CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(tls ? CONNECT_TLS_MS : CONNECT_MS));
    SET(CURLOPT_HTTPHEADER, exchange->headers);
    SET(CURLOPT_ERRORBUFFER, exchange->reason);
    SET(CURLOPT_WRITEFUNCTION, on_answer);
    SET(CURLOPT_WRITEDATA, exchange);
    SET(CURLOPT_PRIVATE, exchange);
    set_tls(http, easy);
    if (request->body == NULL)
        return;
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDS, request->body);
    SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
}

ddp_status ddpi_etcd_exchange_begin(struct ddpi_etcd_http *http,
                                    struct ddpi_etcd_exchange *exchange,
                                    const struct ddpi_etcd_request *request, struct ddp_error *err)
{
    if (exchange->easy == NULL)
        exchange->easy = http->curl.curl_easy_init();
    else
        http->curl.curl_easy_reset(exchange->easy);
    if (exchange->easy == NULL || !set_headers(http, exchange, request->token))
        return ddpi_error_nomem(err, sizeof(*exchange));
    ddpi_buf_finish(&exchange->answer);
    ddpi_buf_init(&exchange->answer, exchange->most > 0 ? exchange->most : request->answer_max);
    exchange->too_long = false;
    exchange->reason[0] = '\0';
    set_options(http, exchange, request);
    if (http->curl.curl_multi_add_handle(http->multi, exchange->easy) != CURLM_OK)
        return ddpi_error_nomem(err, sizeof(*exchange));
    exchange->http = http;
    return DDP_OK;
}

void ddpi_etcd_exchange_drop(struct ddpi_etcd_http *http, struct ddpi_etcd_exchange *exchange)
{
    if (exchange->easy != NULL) {
        if (exchange->http != NULL)
            http->curl.curl_multi_remove_handle(http->multi, exchange->easy);
        http->curl.curl_easy_cleanup(exchange->easy);
        http->curl.curl_slist_free_all(exchange->headers);
    }
    ddpi_buf_finish(&exchange->answer);
    ddpi_etcd_exchange_init(exchange);
}

/* ---- life ---- */

ddp_status ddpi_etcd_http_create(uv_loop_t *loop, const struct ddpi_etcd_files *files,
                                 struct ddpi_etcd_http **ret, struct ddp_error *err)
{
    struct ddpi_etcd_http *http = ddpi_calloc(1, sizeof(*http));
    if (http == NULL)
        return ddpi_error_nomem(err, sizeof(*http));
    ddp_status status = ddpi_etcd_library_load(&http->curl, err);
    if (status == DDP_OK && (http->multi = http->curl.curl_multi_init()) == NULL)
        status = ddpi_error_nomem(err, sizeof(*http));
    if (status != DDP_OK) {
        ddpi_free(http);
        return status;
    }
    http->files = *files;
    http->loop = loop;
    uv_timer_init(loop, &http->timer);
    http->timer.data = http;
    http->handles = 1;
    (http->curl.curl_multi_setopt)(http->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (http->curl.curl_multi_setopt)(http->multi, CURLMOPT_SOCKETDATA, http);
    (http->curl.curl_multi_setopt)(http->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    (http->curl.curl_multi_setopt)(http->multi, CURLMOPT_TIMERDATA, http);
    *ret = http;
    return DDP_OK;
}

void ddpi_etcd_http_destroy(struct ddpi_etcd_http *http)
{
    http->closing = true;
    http->curl.curl_multi_cleanup(http->multi);
    uv_close((uv_handle_t *)&http->timer, on_timer_closed);
}
