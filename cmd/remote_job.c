/*
 * remote_job.c - hosts the store or not, joins the job there, and passes on what its server says.
 * Owns the server and the client.
 *
 * Who has the store is not guessed from names: whoever has the endpoint's address tries to bind it,
 * and becomes a client like all others when somebody else has.
 */
#include "remote_job.h"

#include "error.h"
#include "token.h"

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

/* The endpoint's first address of this machine, as text. A name that is not known yet is not ours:
 * the client asks again. */
static bool own_address(const char *host, char *text, size_t size)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *infos;
    bool found = false;
    if (getaddrinfo(host, NULL, &hints, &infos) != 0)
        return false;
    for (const struct addrinfo *at = infos; at != NULL && !found; at = at->ai_next)
        found = is_ours(at->ai_addr) && getnameinfo(at->ai_addr, at->ai_addrlen, text,
                                                    (socklen_t)size, NULL, 0, NI_NUMERICHOST) == 0;
    freeaddrinfo(infos);
    return found;
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

/* A token that was named is asked for on any address, another where there must be one. */
static ddp_status listen_at(struct remote_job *job, const char *host, struct ddp_error *err)
{
    const struct remote_job_config *config = job->config;
    uint16_t port = config->endpoint.port;
    ddp_status status = config->token_named ? give_token(job, err) : DDP_OK;
    if (status == DDP_OK)
        status = ddpi_server_listen(job->server, host, port, NULL, err);
    if (status == DDP_E_DENIED && !config->no_auth && !config->token_named) {
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

static ddp_status host_store(struct remote_job *job, uv_loop_t *loop, struct ddp_error *err)
{
    const struct remote_job_config *config = job->config;
    char host[DDPI_HOST_MAX];
    bool ours = own_address(config->endpoint.host, host, sizeof host);
    if (config->is_host == 0 || (config->is_host < 0 && !ours))
        return DDP_OK;
    const struct ddpi_server_options options = {.auth = config->no_auth ? DDPI_SERVER_AUTH_NEVER
                                                                        : DDPI_SERVER_AUTH_DEFAULT};
    ddp_status status = ddpi_server_create_deaf(loop, &options, &job->server, err);
    if (status == DDP_OK)
        status = listen_at(job, ours ? host : config->endpoint.host, err);
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

static void refuse(struct remote_job *job, const char *why)
{
    char text[1024]; /* longer than a reason can be: it is cut */
    const char *file = job->config->token_file;
    snprintf(text, sizeof text,
             "the store at %s does not let this node in (%.110s); its token is %s",
             job->config->store, why, file != NULL ? file : "none (--no-auth)");
    membership_leave(job->membership, EXIT_REFUSED, text);
}

static void on_state(void *ctx, enum ddp_store_uv_state state, const char *why)
{
    struct remote_job *job = ctx;
    bool connected = state == DDP_STORE_UV_CONNECTED;
    if (connected && job->guard != NULL)
        guard_hold_socket(job->guard, ddp_round_socket(job->round));
    if (state == DDP_STORE_UV_REFUSED) {
        refuse(job, why);
        return;
    }
    if (connected && job->told)
        membership_say(job->membership, "connected to the store at %s again", job->config->store);
    else if (!connected && !job->told)
        membership_say(job->membership, "the store at %s: %s; trying again", job->config->store,
                       why);
    job->told = !connected;
    job->connected = connected;
}

/* ---- life ---------------------------------------------------------------------------------- */

static ddp_status join(struct remote_job *job, uv_loop_t *loop, struct ddp_error *err)
{
    const struct remote_job_config *config = job->config;
    const struct ddp_store_options options = {
        .size = sizeof options,
        .endpoint = config->store,
        .auth = config->token_file == NULL ? DDP_STORE_AUTH_NONE
                : config->token_named      ? DDP_STORE_AUTH_TOKEN
                                           : DDP_STORE_AUTH_BEYOND_LOOPBACK,
        .token_file = config->token_file,
    };
    const struct ddp_round_hooks hooks = {.size = sizeof hooks,
                                          .data = job,
                                          .seat = on_seat,
                                          .contact = on_contact,
                                          .lost = on_lost,
                                          .state = on_state};
    return ddp_round_join(loop, &options, config->job, config->lease_ms, &hooks, &job->round, err);
}

ddp_status remote_job_open(struct remote_job *job, uv_loop_t *loop,
                           const struct remote_job_config *config, struct membership *membership,
                           const struct guard_agent *guard, struct ddp_error *err)
{
    job->config = config;
    job->membership = membership;
    job->guard = guard;
    ddp_status status = host_store(job, loop, err);
    return status == DDP_OK ? join(job, loop, err) : status;
}

void remote_job_publish(struct remote_job *job, const struct ddp_round_member *says)
{
    struct ddp_error err;
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
    ddp_round_leave(job->round, job->connected ? LEAVE_MS : 0, on_left, job);
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
    ddpi_server_when_deserted(job->server, on_deserted, job);
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
