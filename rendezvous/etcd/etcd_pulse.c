/*
 * etcd_pulse.c - see etcd_pulse.h. Owns its connections, a timer and the request to the resolver.
 */
#include "etcd_pulse.h"

#include "error.h"
#include "mem.h"
#include "parse.h"

#include <stdio.h>

/* A store ends a connection without a greeting after 5 s; it counts it as a failed one, too, but
 * allows 20 of them a second. A full or throttled one accepts and closes at once: after a
 * connection as brief as that there is a pause, which doubles until one lasts. */
enum { RENEWAL_MS = 2000, RETRY_MS = 20, BRIEF_MS = 100 };

struct etcd_beat {
    struct ddpi_etcd_pulse *pulse; /* NULL: nobody waits for it */
    uv_tcp_t tcp;
    uv_connect_t connect;
    uint64_t since_ms; /* by the loop's clock; connected */
    char dropped[64];  /* what the store says is not read */
};

struct etcd_lookup {
    struct ddpi_etcd_pulse *pulse; /* NULL: nobody waits for it */
    uv_getaddrinfo_t request;
};

struct ddpi_etcd_pulse {
    uv_loop_t *loop;
    struct ddpi_etcd_pulse_hooks hooks;
    struct ddpi_endpoint process; /* that is followed */
    uv_timer_t timer;
    uint64_t pause_ms;      /* before the next try, after one that failed */
    struct etcd_beat *now;  /* connected */
    struct etcd_beat *next; /* being connected */
    struct etcd_lookup *lookup;
    struct addrinfo *infos; /* NULL: not known */
    struct addrinfo *at;    /* the one that is tried; that of a connection if `met` */
    bool met;               /* a connection to it has existed */
};

/* ---- connections ---- */

static void on_beat_closed(uv_handle_t *handle)
{
    ddpi_free(handle->data);
}

static void drop_beat(struct etcd_beat **beat)
{
    if (*beat == NULL)
        return;
    (*beat)->pulse = NULL;
    uv_close((uv_handle_t *)&(*beat)->tcp, on_beat_closed);
    *beat = NULL;
}

static void connect_next(struct ddpi_etcd_pulse *pulse);
static void on_renewal(uv_timer_t *timer);

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct etcd_beat *beat = handle->data;
    (void)suggested;
    *ret = uv_buf_init(beat->dropped, sizeof beat->dropped);
}

static void retry_later(struct ddpi_etcd_pulse *pulse)
{
    uv_timer_start(&pulse->timer, on_renewal, pulse->pause_ms, RENEWAL_MS);
    pulse->pause_ms = 2 * pulse->pause_ms < RENEWAL_MS ? 2 * pulse->pause_ms : RENEWAL_MS;
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    (void)buf;
    const struct etcd_beat *beat = stream->data;
    struct ddpi_etcd_pulse *pulse = beat->pulse;
    if (nread >= 0 || pulse == NULL)
        return;
    bool brief = uv_now(pulse->loop) - beat->since_ms < BRIEF_MS;
    drop_beat(&pulse->now);
    if (brief) {
        retry_later(pulse);
    } else {
        pulse->pause_ms = RETRY_MS;
        connect_next(pulse);
    }
}

/* Of a host with several addresses, the one at which the process listens. The last one is followed
 * by the first again at the next renewal. */
static void try_another(struct ddpi_etcd_pulse *pulse)
{
    struct addrinfo *next = pulse->at != NULL ? pulse->at->ai_next : NULL;
    pulse->at = next != NULL ? next : pulse->infos;
    if (next != NULL)
        connect_next(pulse);
}

static void forget_addresses(struct ddpi_etcd_pulse *pulse)
{
    uv_freeaddrinfo(pulse->infos);
    pulse->infos = pulse->at = NULL;
}

static void on_connected(uv_connect_t *connect, int uv_err)
{
    struct etcd_beat *beat = connect->data;
    struct ddpi_etcd_pulse *pulse = beat->pulse;
    if (pulse == NULL)
        return;
    if (uv_err == 0 && uv_read_start((uv_stream_t *)&beat->tcp, on_alloc, on_read) == 0) {
        bool first = !pulse->met;
        pulse->met = true;
        drop_beat(&pulse->now);
        beat->since_ms = uv_now(pulse->loop);
        pulse->now = beat;
        pulse->next = NULL;
        if (first)
            pulse->hooks.alive(pulse->hooks.ctx);
        return;
    }
    drop_beat(&pulse->next);
    if (!pulse->met) {
        try_another(pulse);
    } else if (uv_err == UV_ECONNREFUSED) {
        pulse->met = false;
        forget_addresses(pulse);
        uv_timer_stop(&pulse->timer);
        pulse->hooks.dead(pulse->hooks.ctx);
    } else if (pulse->now == NULL) { /* its listener was just being closed, say */
        retry_later(pulse);
    }
}

static void connect_next(struct ddpi_etcd_pulse *pulse)
{
    if (pulse->next != NULL || pulse->at == NULL)
        return;
    struct etcd_beat *beat = ddpi_calloc(1, sizeof(*beat));
    if (beat == NULL)
        return;
    uv_tcp_init(pulse->loop, &beat->tcp);
    beat->pulse = pulse;
    beat->tcp.data = beat->connect.data = beat;
    pulse->next = beat;
    if (uv_tcp_connect(&beat->connect, &beat->tcp, pulse->at->ai_addr, on_connected) != 0)
        drop_beat(&pulse->next);
}

/* ---- addresses ---- */

static void on_resolved(uv_getaddrinfo_t *request, int uv_err, struct addrinfo *infos)
{
    struct etcd_lookup *lookup = request->data;
    struct ddpi_etcd_pulse *pulse = lookup->pulse;
    if (pulse != NULL)
        pulse->lookup = NULL;
    if (pulse != NULL && uv_err == 0) {
        pulse->infos = pulse->at = infos;
        connect_next(pulse);
    } else {
        uv_freeaddrinfo(infos);
    }
    ddpi_free(lookup);
}

static void drop_lookup(struct ddpi_etcd_pulse *pulse)
{
    if (pulse->lookup != NULL) {
        pulse->lookup->pulse = NULL;
        uv_cancel((uv_req_t *)&pulse->lookup->request);
    }
    pulse->lookup = NULL;
}

static void look_up(struct ddpi_etcd_pulse *pulse)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[8];
    struct etcd_lookup *lookup = ddpi_calloc(1, sizeof(*lookup));
    if (lookup == NULL)
        return;
    lookup->pulse = pulse;
    lookup->request.data = lookup;
    snprintf(port, sizeof port, "%u", pulse->process.port);
    if (uv_getaddrinfo(pulse->loop, &lookup->request, on_resolved, pulse->process.host, port,
                       &hints) == 0)
        pulse->lookup = lookup;
    else
        ddpi_free(lookup);
}

/* A connection that is still being made after so long is to a silent machine: try anew. A name that
 * could not be resolved may be known by now. */
static void on_renewal(uv_timer_t *timer)
{
    struct ddpi_etcd_pulse *pulse = timer->data;
    drop_beat(&pulse->next);
    if (pulse->now != NULL) /* it has lasted */
        pulse->pause_ms = RETRY_MS;
    if (pulse->infos == NULL && pulse->lookup == NULL)
        look_up(pulse);
    connect_next(pulse);
}

void ddpi_etcd_pulse_follow(struct ddpi_etcd_pulse *pulse, const char *endpoint)
{
    drop_beat(&pulse->now);
    drop_beat(&pulse->next);
    drop_lookup(pulse);
    pulse->met = false;
    forget_addresses(pulse);
    uv_timer_stop(&pulse->timer);
    if (endpoint[0] == '\0' || ddpi_parse_endpoint(endpoint, &pulse->process, NULL) != DDP_OK)
        return;
    pulse->pause_ms = RETRY_MS;
    look_up(pulse);
    uv_timer_start(&pulse->timer, on_renewal, RENEWAL_MS, RENEWAL_MS);
}

/* ---- life ---- */

ddp_status ddpi_etcd_pulse_create(uv_loop_t *loop, const struct ddpi_etcd_pulse_hooks *hooks,
                                  struct ddpi_etcd_pulse **ret, struct ddp_error *err)
{
    struct ddpi_etcd_pulse *pulse = ddpi_calloc(1, sizeof(*pulse));
    if (pulse == NULL)
        return ddpi_error_nomem(err, sizeof(*pulse));
    pulse->loop = loop;
    pulse->hooks = *hooks;
    uv_timer_init(loop, &pulse->timer);
    pulse->timer.data = pulse;
    *ret = pulse;
    return DDP_OK;
}

static void on_timer_closed(uv_handle_t *handle)
{
    ddpi_free(handle->data);
}

void ddpi_etcd_pulse_destroy(struct ddpi_etcd_pulse *pulse)
{
    ddpi_etcd_pulse_follow(pulse, "");
    uv_close((uv_handle_t *)&pulse->timer, on_timer_closed);
}
