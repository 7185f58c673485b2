/*
 * multi_node.c - joins a job of several nodes at its store, which this process may host
 * (store_host.h), and passes on what the store's server says. Owns the client.
 *
 * A thread of libuv looks the endpoint's address up, as a resolver may take long: meanwhile the
 * loop serves signals and the deadline.
 */
#include "multi_node.h"

#include "client_store.h"
#include "error.h"
#include "exit_codes.h"
#include "mem.h"
#include "replicate.h"
#include "round_names.h"
#include "store_trouble.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LEAVE_MS = 2000,     /* for the server to learn that this node leaves */
    LONG_WAIT_MS = 5000, /* until what may keep the nodes apart is said */
    LINGER_MS = 1000,    /* until it is said that other nodes stay; at the end of a job none does */
};

/* ---- what may keep the nodes apart ---- */

/* No seat yet in a generation of all nodes, and others can come from this machine only. */
static bool is_cut_off(const struct multi_node *node)
{
    const struct ddp_round_seat *seat = &node->membership->member.seat;
    bool is_loopback = node->config->is_loopback ||
                       (node->host.address.is_loopback && !node->host.address.is_own_name);
    return is_loopback && seat->nodes < node->membership->member.says.terms.max_nodes &&
           !seat->spare;
}

/* There has been no store, and this node does not have the address to host it. */
static bool has_no_host(const struct multi_node *node)
{
    return !node->reached && node->config->is_host < 0 && !node->host.address.ours &&
           node->host.address.host[0] != '\0';
}

/* ---- messages of the store ---- */

static void on_cluster(void *ctx, const struct ddp_round_seat *seat, const char *why)
{
    struct multi_node *node = ctx;
    if (why == NULL)
        membership_seat(node->membership, seat);
    else
        membership_leave(node->membership, EXIT_CONFIG, why);
}

static void stop_cluster(struct multi_node *node)
{
    if (node->cluster != NULL)
        tf_cluster_stop(node->cluster);
}

static void on_seat(void *ctx, const struct ddp_round_seat *seat)
{
    struct multi_node *node = ctx;
    bool known = node->cluster == NULL || seat->order != DDP_ROUND_RUN ||
                 seat->generation == node->membership->member.seat.generation;
    stop_cluster(node);
    if (known)
        membership_seat(node->membership, seat);
    else
        tf_cluster_read(node->cluster, seat);
}

static void on_contact(void *ctx, uint64_t sent_ms)
{
    struct multi_node *node = ctx;
    membership_contact(node->membership, sent_ms);
}

/* A store that refuses this node says so next, and this node leaves. */
static void on_lost(void *ctx, const char *why)
{
    struct multi_node *node = ctx;
    stop_cluster(node);
    if (ddpi_store_uv_refusal(ddpi_round_store(node->round)) == DDP_OK)
        membership_dropped(node->membership, why);
}

static void refuse(struct multi_node *node, const char *why)
{
    char text[STORE_TROUBLE_TEXT];
    store_trouble_refused(node->config, ddpi_store_uv_refusal(ddpi_round_store(node->round)), why,
                          text);
    membership_leave(node->membership, EXIT_REFUSED, text);
}

static void on_store_job(void *data, const struct ddp_store_result *result)
{
    struct multi_node *node = data;
    const struct multi_node_config *config = node->config;
    const char *job = result->status == DDP_OK ? result->value : "";
    bool other = strcmp(job, config->job) != 0 && ddpi_job_valid(job, strlen(job));
    bool known = strcmp(job, node->host_job) == 0;
    snprintf(node->host_job, sizeof node->host_job, "%s", other ? job : "");
    if (!other || known)
        return;
    membership_note(
        node->membership,
        "the store at %s is that of job '%s', and ends with it; a ddprund serves several jobs",
        config->store, node->host_job);
}

static void on_kept_changed(void *ctx, enum event event, const char *endpoint, const char *why)
{
    struct multi_node *node = ctx;
    membership_note(node->membership, "%s", why);
    events_store(&node->membership->events, event, endpoint, why);
}

static void on_other_event(void *ctx, const struct ddp_store_event *event)
{
    struct multi_node *node = ctx;
    store_kept_event(&node->kept, event);
}

/* A store with one endpoint has no keepers. */
static void follow_keepers(struct multi_node *node)
{
    if (strchr(node->config->store, ',') == NULL)
        return;
    node->kept.changed = on_kept_changed;
    node->kept.ctx = node;
    ddpi_round_pass_events(node->round, on_other_event, node);
    store_kept_connected(&node->kept, ddpi_round_store(node->round));
}

static void on_connected(struct multi_node *node)
{
    struct worker_keys *keys = node->config->worker_keys;
    const struct ddp_store_request get_job = {.size = sizeof get_job,
                                              .op = DDP_STORE_OP_TRY_GET,
                                              .timeout_ms = DDP_STORE_FOREVER,
                                              .key = DDPI_STORE_JOB_KEY};
    if (keys != NULL) /* workers authenticate to that store with keys made for it */
        keys->wanted = ddpi_store_uv_met(ddpi_round_store(node->round), &keys->store);
    if (node->host.server == NULL) /* it may be the one of another job */
        (void)!ddp_store_uv_submit(ddpi_round_store(node->round), &get_job, on_store_job, node,
                                   NULL, NULL);
    follow_keepers(node);
    if (node->guard != NULL)
        guard_hold_socket(node->guard, ddp_round_socket(node->round));
    if (node->met != NULL)
        node->met(node->ctx, ddp_round_socket(node->round));
    if (node->told)
        membership_note(node->membership, "connected to the store at %s again",
                        node->config->store);
    store_host_stop_trying(&node->host);
    node->reached = node->connected = true;
    node->told = false;
}

static void tell_lost(struct multi_node *node, const char *why)
{
    char text[STORE_TROUBLE_TEXT];
    uint64_t patience_ms = node->reached ? 0 : node->membership->member.join_timeout_ms;
    store_trouble_lost(node->config, patience_ms, why, text);
    membership_say(node->membership, "%s", text);
    if (node->host_job[0] != '\0')
        membership_say(node->membership,
                       "that store was the one of job '%s', which may be over; start a ddprund for "
                       "jobs that share a store",
                       node->host_job);
    if (node->host.mark[0] != '\0')
        membership_say(node->membership,
                       "the mark %s says that this endpoint is a ddprund's: start it again, choose "
                       "another port, or host the store on this node with --rdzv-conf=is_host=true",
                       node->host.mark);
    if (node->host.busy_host[0] != '\0')
        membership_say(node->membership,
                       "this node would host the store, but another program has port %u of %s; it "
                       "takes the port when it is free",
                       node->config->endpoint.port, node->host.busy_host);
}

static void on_long_wait(uv_timer_t *timer)
{
    struct multi_node *node = timer->data;
    const struct multi_node_config *config = node->config;
    const char *name = config->endpoint.host, *host = node->host.address.host;
    bool is_name = host[0] != '\0' && strcmp(name, host) != 0;
    if (config->is_replicated && !node->connected && !node->told) {
        tell_lost(node, node->early_why);
        node->told = true;
    } else if (is_cut_off(node))
        membership_say(node->membership,
                       "no other machine can reach %s%s%s%s: if nodes are to come from other "
                       "machines, give all nodes the same --rdzv-endpoint=HOST:%u, a name or an "
                       "address at which they reach one of them",
                       config->store, is_name ? " (" : "", is_name ? host : "",
                       is_name ? " here)" : "", config->endpoint.port);
    else if (has_no_host(node))
        membership_say(
            node->membership,
            "no store answers at %s, and this node cannot host it, as it does not have the address "
            "%s: start ddprun on the node that has it, or a ddprund; if no node has it (that of a "
            "service, or NAT), start one node with --rdzv-endpoint=0.0.0.0:%u "
            "--rdzv-conf=is_host=true --local-addr=HOST, at which the others reach it",
            config->store, host, config->endpoint.port);
}

/* The keepers of the store, which start with this agent, need a moment. */
static bool is_early(const struct multi_node *node)
{
    return node->config->is_replicated && !node->reached &&
           uv_is_active((const uv_handle_t *)&node->long_wait);
}

static void on_state(void *ctx, enum ddp_store_uv_state state, const char *why)
{
    struct multi_node *node = ctx;
    if (state == DDP_STORE_UV_REFUSED) {
        refuse(node, why);
        return;
    }
    if (state == DDP_STORE_UV_CONNECTED) {
        on_connected(node);
        return;
    }
    if (is_early(node))
        snprintf(node->early_why, sizeof node->early_why, "%s", why);
    else if (!node->told)
        tell_lost(node, why);
    membership_disconnected(node->membership, why);
    store_host_keep_trying(&node->host);
    node->told = !is_early(node);
    node->connected = false;
}

/* ---- life ---- */

struct ddp_store_options multi_node_store_options(const struct multi_node_config *config)
{
    bool always = config->token_named || config->auth == DDPI_SERVER_AUTH_ALWAYS;
    return (struct ddp_store_options){
        .size = sizeof(struct ddp_store_options),
        .endpoint = config->store,
        .auth = config->token_file == NULL ? DDP_STORE_AUTH_NONE
                : always                   ? DDP_STORE_AUTH_TOKEN
                                           : DDP_STORE_AUTH_BEYOND_LOOPBACK,
        .token_file = config->token_file,
        .flags = config->tls ? DDP_STORE_TLS : 0,
    };
}

static ddp_status join(struct multi_node *node, struct ddp_error *err)
{
    const struct multi_node_config *config = node->config;
    const struct ddp_store_options options = multi_node_store_options(config);
    const struct ddp_round_hooks hooks = {.size = sizeof hooks,
                                          .data = node,
                                          .seat = on_seat,
                                          .contact = on_contact,
                                          .lost = on_lost,
                                          .state = on_state};
    if (!config->is_launched)
        uv_timer_start(&node->long_wait, on_long_wait, LONG_WAIT_MS, 0);
    ddp_status status = ddp_round_join(node->loop, &options, config->job, config->lease_ms, &hooks,
                                       &node->round, err);
    if (status == DDP_OK && node->cluster != NULL)
        tf_cluster_open(node->cluster, ddpi_round_store(node->round), config->job, on_cluster,
                        node);
    return status;
}

/* A look-up cannot be interrupted: one that is no longer wanted goes on by itself. */
struct multi_node_lookup {
    uv_getaddrinfo_t request;
    struct multi_node *node; /* NULL: no longer wanted */
};

static void on_looked_up(uv_getaddrinfo_t *request, int uv_status, struct addrinfo *infos)
{
    struct multi_node_lookup *lookup = request->data;
    struct multi_node *node = lookup->node;
    struct ddp_error err;
    (void)uv_status; /* no addresses, then */
    ddpi_free(lookup);
    if (node == NULL) {
        uv_freeaddrinfo(infos);
        return;
    }
    node->lookup = NULL;
    ddp_status status = store_host_open(&node->host, infos, &err);
    uv_freeaddrinfo(infos);
    if (status == DDP_OK)
        status = join(node, &err);
    if (status != DDP_OK)
        membership_leave(node->membership, EXIT_CONFIG, err.msg);
    else if (node->membership->member.joined)
        multi_node_publish(node, &node->membership->member.says);
}

static ddp_status look_up(struct multi_node *node, struct ddp_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct multi_node_lookup *lookup = ddpi_calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return ddpi_error_nomem(err, sizeof *lookup);
    lookup->node = node;
    lookup->request.data = lookup;
    int uv_status = uv_getaddrinfo(node->loop, &lookup->request, on_looked_up,
                                   node->config->endpoint.host, NULL, &hints);
    if (uv_status != 0) {
        ddpi_free(lookup);
        return ddpi_error_sys(err, -uv_status, "cannot look up the store's address");
    }
    node->lookup = lookup;
    return DDP_OK;
}

static void give_up_lookup(struct multi_node *node)
{
    if (node->lookup == NULL)
        return;
    membership_say(node->membership,
                   "the look-up of the store's address, '%s', has not finished; check that the "
                   "resolver in /etc/resolv.conf answers",
                   node->config->endpoint.host);
    node->lookup->node = NULL;
    (void)uv_cancel((uv_req_t *)&node->lookup->request);
    node->lookup = NULL;
}

static ddp_status begin(struct multi_node *node, struct ddp_error *err)
{
    node->begun = true;
    return node->config->is_host == 0 ? join(node, err) : look_up(node, err);
}

/* The keeper is ready. One that is started again later says so, too. */
static void on_keeper(uv_poll_t *poll, int uv_status, int events)
{
    struct multi_node *node = poll->data;
    struct ddp_error err;
    uv_os_fd_t socket;
    (void)uv_status;
    (void)events;
    (void)uv_fileno((uv_handle_t *)poll, &socket);
    if (!replicate_hears_ready(socket) || node->begun || node->left)
        return;
    ddp_status status = begin(node, &err);
    if (status != DDP_OK)
        membership_leave(node->membership, EXIT_CONFIG, err.msg);
    else if (node->membership->member.joined) /* else it is checked, and publishes later */
        multi_node_publish(node, &node->membership->member.says);
}

static ddp_status await_keeper(struct multi_node *node, int keeper, struct ddp_error *err)
{
    int uv_status = uv_poll_init(node->loop, &node->keeper, keeper);
    if (uv_status == 0)
        uv_status = uv_poll_start(&node->keeper, UV_READABLE, on_keeper);
    snprintf(node->early_why, sizeof node->early_why,
             "the keeper beside this agent is not ready yet");
    membership_disconnected(node->membership, node->early_why);
    uv_timer_start(&node->long_wait, on_long_wait, LONG_WAIT_MS, 0);
    return uv_status == 0 ? DDP_OK : ddpi_error_sys(err, -uv_status, "cannot wait for the keeper");
}

ddp_status multi_node_open(struct multi_node *node, uv_loop_t *loop,
                           const struct multi_node_config *config, struct membership *membership,
                           const struct guard_agent *guard, int keeper, struct ddp_error *err)
{
    node->config = config;
    node->membership = membership;
    node->guard = guard;
    node->loop = loop;
    store_host_init(&node->host, loop, config, membership);
    uv_timer_init(loop, &node->long_wait);
    node->long_wait.data = node->keeper.data = node;
    return keeper == 0 ? begin(node, err) : await_keeper(node, keeper, err);
}

void multi_node_publish(struct multi_node *node, const struct ddp_round_member *says)
{
    struct ddp_error err;
    if (node->round == NULL)
        return;
    if (ddp_round_publish(node->round, says, &err) != DDP_OK)
        membership_say(node->membership, "%s", err.msg);
}

void multi_node_describe(struct multi_node *node, const char *text)
{
    if (node->round != NULL)
        (void)!ddp_round_describe(node->round, text, NULL); /* fails after the member has left */
}

static void advance(struct multi_node *node);

static void on_left(void *ctx)
{
    struct multi_node *node = ctx;
    node->left = true;
    advance(node);
}

void multi_node_leave(struct multi_node *node)
{
    give_up_lookup(node);
    store_host_stop_trying(&node->host);
    uv_timer_stop(&node->long_wait);
    stop_cluster(node);
    if (node->round != NULL)
        ddp_round_leave(node->round, node->connected ? LEAVE_MS : 0, on_left, node);
    else
        on_left(node);
}

static void on_closed(void *ctx)
{
    struct multi_node *node = ctx;
    if (node->loop != NULL && !uv_is_closing((uv_handle_t *)&node->long_wait))
        uv_close((uv_handle_t *)&node->long_wait, NULL);
    node->closed(node->ctx);
}

static void close_server(struct multi_node *node)
{
    uv_timer_stop(&node->long_wait);
    store_host_close(&node->host, on_closed, node);
}

static void on_idle(void *ctx)
{
    close_server(ctx);
}

static void on_lingering(uv_timer_t *timer)
{
    const struct multi_node *node = timer->data;
    uint64_t others = ddpi_server_stats(node->host.server).members;
    const char *job = ddpi_server_other_job(node->host.server, node->config->job);
    if (others > 0 && job != NULL)
        membership_note(node->membership,
                        "this node hosts the store and waits for the other nodes (%" PRIu64
                        "), also those of job '%s'; one more signal ends the store, and that job; "
                        "a ddprund serves several jobs",
                        others, job);
    else if (others > 0)
        membership_note(node->membership,
                        "this node hosts the store and waits for the other nodes (%" PRIu64
                        ") to leave the job; one more signal ends it, and the job",
                        others);
}

/* Other members leave with the job, or are lost when their leases expire. */
static void on_round_closed(void *ctx)
{
    struct multi_node *node = ctx;
    if (node->host.server == NULL) {
        on_closed(node);
        return;
    }
    node->lingering = true;
    uv_timer_start(&node->long_wait, on_lingering, LINGER_MS, 0);
    ddpi_server_when_idle(node->host.server, on_idle, node);
}

void multi_node_hurry(struct multi_node *node)
{
    if (node->lingering)
        close_server(node);
}

/* Close the round once the node has left and multi_node_close() was called. */
static void advance(struct multi_node *node)
{
    if (!node->left || node->closed == NULL || node->round == NULL)
        return;
    ddp_round *round = node->round;
    node->round = NULL;
    ddp_round_close(round, on_round_closed, node);
}

void multi_node_close(struct multi_node *node, void (*closed)(void *ctx), void *ctx)
{
    node->closed = closed;
    node->ctx = ctx;
    if (node->loop != NULL && !uv_is_closing((uv_handle_t *)&node->host.try_again)) {
        uv_close((uv_handle_t *)&node->host.try_again, NULL);
        if (node->keeper.type == UV_POLL) /* it was made */
            uv_close((uv_handle_t *)&node->keeper, NULL);
    }
    if (node->round == NULL)
        on_round_closed(node);
    else
        advance(node);
}
