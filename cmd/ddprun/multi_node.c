/*
 * multi_node.c - hosts the store or not, joins the job there, and passes on what its server says.
 * Owns the server and the client.
 *
 * Who has the store is not guessed from names: whoever has the endpoint's address tries to bind it,
 * and becomes a client like all others when somebody else has, or when a ddprund that is down for
 * the moment has left a mark there (endpoint_mark.h). The address is looked up by a thread
 * of libuv's, as a resolver may take long: meanwhile the loop serves signals and the deadline.
 */
#include "multi_node.h"

#include "client_store.h"
#include "error.h"
#include "mem.h"
#include "outcome.h"
#include "token_file.h"

#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum {
    LEAVE_MS = 2000, /* for the server to hear that we leave */
    EXIT_REFUSED = 77,
};

/* ---- who has the store --------------------------------------------------------------------- */

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (b == NULL || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                              &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr);
}

static bool is_loopback(const struct sockaddr *address)
{
    return address->sa_family == AF_INET &&
           ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               IN_LOOPBACKNET;
}

static bool is_ours(const struct sockaddr *address)
{
    struct ifaddrs *interfaces;
    bool found = is_loopback(address); /* all of 127.0.0.0/8, which no interface lists */
    if (getifaddrs(&interfaces) != 0)
        return false;
    for (const struct ifaddrs *at = interfaces; at != NULL && !found; at = at->ifa_next)
        found = same_address(address, at->ifa_addr);
    freeifaddrs(interfaces);
    return found;
}

/* Of the endpoint's addresses the first of this machine, else the first, as text in @host; "": it
 * has none. True: of this machine. */
static bool choose_address(const struct addrinfo *infos, char host[DDPI_HOST_MAX])
{
    const struct addrinfo *chosen = infos;
    bool ours = false;
    for (const struct addrinfo *at = infos; at != NULL && !ours; at = at->ai_next) {
        ours = is_ours(at->ai_addr);
        chosen = ours ? at : chosen;
    }
    host[0] = '\0';
    return chosen != NULL &&
           getnameinfo(chosen->ai_addr, chosen->ai_addrlen, host, DDPI_HOST_MAX, NULL, 0,
                       NI_NUMERICHOST) == 0 &&
           ours;
}

/* The user's own token is made where there is none; one that was named has to be there. */
static ddp_status give_token(struct remote_job *job, struct ddp_error *err)
{
    const struct remote_job_config *config = job->config;
    struct ddpi_credential token = {0};
    if (config->token_file == NULL)
        return ddpi_error_set(
            err, DDP_E_DENIED,
            "nodes have to prove a token to the store at %s, and there is no HOME "
            "for one; name it by --token-file, or give --no-auth",
            config->store);
    ddp_status status = config->token_named ? ddpi_token_read(config->token_file, &token, err)
                                            : ddpi_token_obtain(config->token_file, &token, err);
    if (status == DDP_OK)
        status = ddpi_server_set_token(job->server, &token, err);
    ddpi_wipe(&token, sizeof token);
    return status;
}

/* Clients of this user have his token as well, and want a proof. But for one that is named, and one
 * that may not be trusted, nothing needs it yet. */
static ddp_status give_token_if_any(struct remote_job *job, struct ddp_error *err)
{
    const struct remote_job_config *config = job->config;
    if (config->token_file == NULL)
        return DDP_OK;
    ddp_status status = give_token(job, err);
    bool needed = config->token_named || status == DDP_E_DENIED || status == DDP_E_INVALID;
    return needed ? status : DDP_OK;
}

/* The user's own token is made where there must be one. */
static ddp_status listen_at(struct remote_job *job, const char *host, struct ddp_error *err)
{
    const struct remote_job_config *config = job->config;
    uint16_t port = config->endpoint.port;
    ddp_status status = give_token_if_any(job, err);
    if (status == DDP_OK)
        status = ddpi_server_listen(job->server, host, port, NULL, err);
    if (status == DDP_E_DENIED && !config->token_named) {
        status = give_token(job, err);
        if (status == DDP_OK)
            status = ddpi_server_listen(job->server, host, port, NULL, err);
    }
    return status;
}

static void drop_server(struct remote_job *job)
{
    ddpi_server_close(job->server, NULL, NULL);
    job->server = NULL;
}

void remote_job_on_log(void *ctx, enum ddpi_log_level level, const char *line)
{
    (void)level;
    membership_say(ctx, "the store: %s", line);
}

/* A name that is not known yet is not ours: the client asks again. */
static ddp_status host_store(struct remote_job *job, const struct addrinfo *infos,
                             struct ddp_error *err)
{
    const struct remote_job_config *config = job->config;
    char host[DDPI_HOST_MAX];
    bool ours = choose_address(infos, host);
    if (config->is_host < 0 && !ours)
        return DDP_OK;
    if (host[0] == '\0')
        return ddpi_error_set(err, DDP_E_UNREACHABLE,
                              "this node is to have the store (is_host), and the name '%s' has no "
                              "address; give one of this machine's",
                              config->endpoint.host);
    if (config->is_host < 0 && endpoint_mark_find(host, config->endpoint.port, job->mark))
        return DDP_OK;
    job->mark[0] = '\0';
    job->log = (struct ddpi_log){remote_job_on_log, job->membership, DDPI_LOG_WARN};
    const struct ddpi_server_options options = {.auth = config->auth,
                                                .trust_local_users = config->trust_local_users,
                                                .tls = config->tls,
                                                .log = &job->log};
    ddp_status status = ddpi_server_create_unbound(job->loop, &options, &job->server, err);
    if (status == DDP_OK && config->is_master)
        ddpi_server_set_tcpstore_job(job->server, config->job);
    if (status == DDP_OK)
        status = listen_at(job, host, err);
    if (status == DDP_OK)
        return DDP_OK;
    bool taken = err->sys_errno == EADDRINUSE;
    if (job->server != NULL)
        drop_server(job);
    return taken && config->is_host < 0 ? DDP_OK : status;
}

/* ---- what the store says ------------------------------------------------------------------- */

static void on_seat(void *ctx, const struct ddp_round_seat *seat)
{
    struct remote_job *job = ctx;
    membership_seat(job->membership, seat);
}

static void on_contact(void *ctx, uint64_t sent_ms)
{
    struct remote_job *job = ctx;
    membership_contact(job->membership, sent_ms);
}

static void on_lost(void *ctx, const char *why)
{
    struct remote_job *job = ctx;
    membership_lost(job->membership, why);
}

/* Whoever cannot prove that he has the token hears no more than this word (SECURITY.md); to a node
 * that has a token it means one thing before all others. */
static bool is_another_token(const struct remote_job_config *config, const char *why)
{
    return config->token_file != NULL && strcmp(why, "denied") == 0;
}

static void refuse(struct remote_job *job, const char *why)
{
    char text[1024]; /* longer than a reason can be: it is cut */
    const struct remote_job_config *config = job->config;
    const char *file = config->token_file;
    if (is_another_token(config, why))
        snprintf(text, sizeof text,
                 "the store at %s does not let this node in: most likely it has another token than "
                 "%s; copy the file that 'ddpctl token show-path' names on the store's node over "
                 "this one",
                 config->store, file);
    else
        snprintf(text, sizeof text,
                 "the store at %s does not let this node in (%.110s); its token is %s",
                 config->store, why, file != NULL ? file : "none (--no-auth)");
    membership_leave(job->membership, EXIT_REFUSED, text);
}

/* To that store workers prove themselves with keys that are made for it. */
static void note_store(struct remote_job *job)
{
    struct worker_keys *keys = job->config->worker_keys;
    if (keys != NULL)
        keys->wanted = ddpi_round_met(job->round, &keys->store);
}

static void tell_lost(struct remote_job *job, const char *why)
{
    membership_say(job->membership, "the store at %s: %s; trying again", job->config->store, why);
    if (job->mark[0] != '\0')
        membership_say(job->membership,
                       "that endpoint is a ddprund's, by its mark %s: start it again, or let this "
                       "node take its place: --rdzv-conf=is_host=true",
                       job->mark);
}

static void on_state(void *ctx, enum ddp_store_uv_state state, const char *why)
{
    struct remote_job *job = ctx;
    bool connected = state == DDP_STORE_UV_CONNECTED;
    if (connected)
        note_store(job);
    if (connected && job->guard != NULL)
        guard_hold_socket(job->guard, ddp_round_socket(job->round));
    if (state == DDP_STORE_UV_REFUSED) {
        refuse(job, why);
        return;
    }
    if (connected && job->told)
        membership_say(job->membership, "connected to the store at %s again", job->config->store);
    else if (!connected && !job->told)
        tell_lost(job, why);
    if (!connected)
        membership_cut(job->membership);
    job->told = !connected;
    job->connected = connected;
}

/* ---- life ---------------------------------------------------------------------------------- */

struct ddp_store_options remote_job_store_options(const struct remote_job_config *config)
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

static ddp_status join(struct remote_job *job, struct ddp_error *err)
{
    const struct remote_job_config *config = job->config;
    const struct ddp_store_options options = remote_job_store_options(config);
    const struct ddp_round_hooks hooks = {.size = sizeof hooks,
                                          .data = job,
                                          .seat = on_seat,
                                          .contact = on_contact,
                                          .lost = on_lost,
                                          .state = on_state};
    return ddp_round_join(job->loop, &options, config->job, config->lease_ms, &hooks, &job->round,
                          err);
}

/* Nobody can interrupt the resolver: a look-up that is not wanted any more goes on by itself. */
struct remote_job_lookup {
    uv_getaddrinfo_t request;
    struct remote_job *job; /* NULL: it is not wanted */
};

static void on_looked_up(uv_getaddrinfo_t *request, int uv_status, struct addrinfo *infos)
{
    struct remote_job_lookup *lookup = request->data;
    struct remote_job *job = lookup->job;
    struct ddp_error err;
    (void)uv_status; /* no addresses, then */
    ddpi_free(lookup);
    if (job != NULL) {
        job->lookup = NULL;
        ddp_status status = host_store(job, infos, &err);
        if (status == DDP_OK)
            status = join(job, &err);
        if (status == DDP_OK)
            remote_job_publish(job, &job->membership->member.says);
        else
            membership_leave(job->membership, EXIT_CONFIG, err.msg);
    }
    uv_freeaddrinfo(infos);
}

static ddp_status look_up(struct remote_job *job, struct ddp_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct remote_job_lookup *lookup = ddpi_calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return ddpi_error_nomem(err, sizeof *lookup);
    lookup->job = job;
    lookup->request.data = lookup;
    int uv_status = uv_getaddrinfo(job->loop, &lookup->request, on_looked_up,
                                   job->config->endpoint.host, NULL, &hints);
    if (uv_status != 0) {
        ddpi_free(lookup);
        return ddpi_error_sys(err, -uv_status, "cannot look up the store's address");
    }
    job->lookup = lookup;
    return DDP_OK;
}

static void give_up_lookup(struct remote_job *job)
{
    if (job->lookup == NULL)
        return;
    membership_say(job->membership,
                   "the address of the store, '%s', is still being looked up: does the resolver "
                   "(/etc/resolv.conf) answer?",
                   job->config->endpoint.host);
    job->lookup->job = NULL;
    (void)uv_cancel((uv_req_t *)&job->lookup->request);
    job->lookup = NULL;
}

ddp_status remote_job_open(struct remote_job *job, uv_loop_t *loop,
                           const struct remote_job_config *config, struct membership *membership,
                           const struct guard_agent *guard, struct ddp_error *err)
{
    job->config = config;
    job->membership = membership;
    job->guard = guard;
    job->loop = loop;
    return config->is_host == 0 ? join(job, err) : look_up(job, err);
}

void remote_job_publish(struct remote_job *job, const struct ddp_round_member *says)
{
    struct ddp_error err;
    if (job->round == NULL)
        return;
    if (ddp_round_publish(job->round, says, &err) != DDP_OK)
        membership_say(job->membership, "%s", err.msg);
}

void remote_job_describe(struct remote_job *job, const char *text)
{
    if (job->round != NULL)
        (void)!ddp_round_describe(job->round, text, NULL); /* a member that has left has none */
}

static void advance(struct remote_job *job);

static void on_left(void *ctx)
{
    struct remote_job *job = ctx;
    job->left = true;
    advance(job);
}

void remote_job_leave(struct remote_job *job)
{
    give_up_lookup(job);
    if (job->round != NULL)
        ddp_round_leave(job->round, job->connected ? LEAVE_MS : 0, on_left, job);
    else
        on_left(job);
}

static void on_closed(void *ctx)
{
    struct remote_job *job = ctx;
    job->closed(job->ctx);
}

static void close_server(struct remote_job *job)
{
    struct ddpi_server *server = job->server;
    job->server = NULL;
    if (server != NULL)
        ddpi_server_close(server, on_closed, job);
}

static void on_deserted(void *ctx)
{
    close_server(ctx);
}

/* Those who are there end with the job, or are lost at the latest when their leases are over. */
static void on_round_closed(void *ctx)
{
    struct remote_job *job = ctx;
    if (job->server == NULL) {
        on_closed(job);
        return;
    }
    uint64_t others = ddpi_server_stats(job->server).members;
    if (others > 0)
        membership_say(job->membership,
                       "this node has the store, and stays until the other nodes (%" PRIu64
                       ") have left the job; one more signal ends it, and the job",
                       others);
    job->lingering = true;
    ddpi_server_when_idle(job->server, on_deserted, job);
}

void remote_job_hurry(struct remote_job *job)
{
    if (job->lingering)
        close_server(job);
}

/* Once we have left and are to close. */
static void advance(struct remote_job *job)
{
    if (!job->left || job->closed == NULL || job->round == NULL)
        return;
    ddp_round *round = job->round;
    job->round = NULL;
    ddp_round_close(round, on_round_closed, job);
}

void remote_job_close(struct remote_job *job, void (*closed)(void *ctx), void *ctx)
{
    job->closed = closed;
    job->ctx = ctx;
    if (job->round == NULL)
        on_round_closed(job);
    else
        advance(job);
}
