/*
 * admission.c - which connections are accepted, and which clients are admitted. Owns the list of
 * half-open connections, those whose clients have not been admitted yet.
 *
 * When the half-open limit is reached, the oldest half-open connection is evicted. Honest clients
 * send their greeting at once, so peers that only hold connections open evict each other. An
 * address that fails too often is refused for some time (failure_rate.h).
 */
#include "error.h"
#include "proto.h"
#include "server_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool ddpi_server_on_fault(void *owner, const struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    static const enum ddpi_refusal kinds[] = {[DDPI_FAULT_RULE] = REFUSAL_dismissed,
                                              [DDPI_FAULT_DENIED] = REFUSAL_denied,
                                              [DDPI_FAULT_OVERLOAD] = REFUSAL_overloaded};
    return ddpi_refusals_count(&server->refusals, kinds[conn->fault]);
}

void ddpi_server_on_shed(void *owner)
{
    struct ddpi_server *server = owner;
    if (ddpi_refusals_count(&server->refusals, REFUSAL_refused))
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "refused a connection: no file descriptor is left; raise ulimit -n");
}

/* ---- half-open connections ---- */

/* This user's own processes on loopback are exempt, unless they must authenticate. */
static bool is_throttled(const struct ddpi_server *server, const struct ddpi_conn_peer *peer)
{
    return !(server->env.gate.open_to_loopback && peer->loopback && !peer->other_user);
}

/* The address that failures are charged to. Another user of this machine shares its addresses, and
 * can use a different one of 127.0.0.0/8 for each connection, so the user id takes its place. */
static struct ddpi_address charged_address(const struct ddpi_conn_peer *peer)
{
    struct ddpi_address of_user = {.scope = peer->known ? peer->owner : UINT32_MAX};
    return peer->other_user ? of_user : peer->address;
}

void ddpi_server_not_half_open(struct ddpi_server *server, struct ddpi_conn *conn)
{
    if (ddpi_list_empty(&conn->of_half_open))
        return;
    ddpi_list_remove(&conn->of_half_open);
    server->admission.half_open_count--;
}

/* @full: there are as many connections as there may be, whether half-open or not. */
static void evict_oldest(struct ddpi_server *server, bool full)
{
    struct ddpi_conn *conn =
        ddpi_container_of(server->admission.half_open.next, struct ddpi_conn, of_half_open);
    if (ddpi_refusals_count(&server->refusals, REFUSAL_displaced)) {
        char host[DDPI_ADDRESS_CHARS];
        ddpi_address_format(&conn->peer.address, host);
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "connection from %s port %u closed to make room for a newer one: it is not "
                 "authenticated yet",
                 host, conn->peer.port);
    }
    ddpi_conn_close(conn, DDP_E_LIMIT,
                    full ? "the server has as many connections as it may have, and this one was "
                           "not authenticated yet"
                         : "too many connections are not authenticated yet");
    ddpi_server_not_half_open(server, conn);
}

/* ---- new connections ---- */

/* The few bytes fit into the empty socket buffer; if they do not, the peer does not get them. */
static void send_refusal(int fd, ddp_status status, const char *text)
{
    static const struct ddpi_preamble ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_buf out;
    ddpi_buf_init(&out, 1024);
    if (ddpi_preamble_put(&out, &ours) &&
        ddpi_refusal_put(&out, DDPI_FRAME_BYE, 0, status, 0, ddpi_bytes_of(text, strlen(text))))
        (void)!send(fd, ddpi_buf_head(&out), ddpi_buf_len(&out), MSG_NOSIGNAL | MSG_DONTWAIT);
    ddpi_buf_finish(&out);
    close(fd);
}

static void refuse_full(struct ddpi_server *server, int fd)
{
    send_refusal(fd, DDP_E_LIMIT, "the server has as many connections as it may have");
    if (ddpi_refusals_count(&server->refusals, REFUSAL_refused))
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "refused a connection: there are %" PRIu64 ", which is the limit",
                 server->admission.connections);
}

static void refuse_throttled(struct ddpi_server *server, int fd, const struct ddpi_conn_peer *peer)
{
    close(fd);
    if (ddpi_refusals_count(&server->refusals, REFUSAL_throttled)) {
        char host[DDPI_ADDRESS_CHARS];
        ddpi_address_format(&peer->address, host);
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "refused a connection from %s: too many connections from there have failed", host);
    }
}

/* A client that cannot be admitted does not evict another one. */
static void deny_other_user(struct ddpi_server *server, int fd, const struct ddpi_conn_peer *peer)
{
    send_refusal(fd, DDP_E_DENIED,
                 "this server admits only processes of its own user and of root, and this "
                 "connection is of another user, or of a process that has ended; start the server "
                 "with --trust-local-users, or with a token that both users have");
    if (!ddpi_refusals_count(&server->refusals, REFUSAL_denied))
        return;
    char host[DDPI_ADDRESS_CHARS], user[32] = "an unknown user";
    ddpi_address_format(&peer->address, host);
    if (peer->known)
        snprintf(user, sizeof user, "user %" PRIu32, peer->owner);
    ddpi_log(&server->log, DDPI_LOG_WARN,
             "connection from %s port %u denied: it belongs to %s, and the server admits only user "
             "%u and root; --trust-local-users admits all users of this machine",
             host, peer->port, user, geteuid());
}

/* The kernel knows the owner of a connection within this machine. A peer with our own address is on
 * this machine, since packets with that source are not accepted from the network. */
static struct ddpi_conn_peer identify_peer(struct ddpi_server *server, int fd,
                                           const struct sockaddr *name)
{
    const struct ddpi_gate *gate = &server->env.gate;
    struct sockaddr_storage own = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof own;
    (void)getsockname(fd, (struct sockaddr *)&own, &len);
    const struct ddpi_end there = ddpi_end_of(name);
    const struct ddpi_end here = ddpi_end_of((const struct sockaddr *)&own);
    struct ddpi_conn_peer peer = {.address = there.address, .port = there.port};
    bool from_loopback = ddpi_address_is_loopback(&there.address);
    bool inside = from_loopback || ddpi_address_equal(&there.address, &here.address);
    peer.elsewhere = !inside;
    peer.loopback = from_loopback && ddpi_address_is_loopback(&here.address);
    if (inside && !gate->open_to_all && !gate->open_to_users)
        peer.other_user =
            !ddpi_owners_ours(&server->admission.owners, &there, &here, &peer.owner, &peer.known);
    bool open = gate->open_to_loopback && peer.loopback && !peer.other_user;
    peer.must_authenticate = !gate->open_to_all && !open;
    return peer;
}

static void admit_connection(struct ddpi_server *server, const struct ddpi_listener *listener,
                             int fd, const struct ddpi_conn_peer *peer)
{
    struct ddp_error err;
    struct ddpi_conn *conn = NULL;
    ddp_status status = ddpi_conn_create(&server->env, fd, peer, &conn, &err);
    if (conn != NULL) {
        memcpy(conn->job, listener->job, sizeof conn->job);
        ddpi_list_append(&server->conns, &conn->of_server);
        ddpi_list_append(&server->admission.half_open, &conn->of_half_open);
        server->admission.connections++;
        server->admission.half_open_count++;
    }
    if (status == DDP_OK) {
        server->admission.accepted++;
        return;
    }
    if (ddpi_refusals_count(&server->refusals, REFUSAL_refused))
        ddpi_log(&server->log, DDPI_LOG_WARN, "lost a connection: %s", err.msg);
    if (conn != NULL)
        ddpi_conn_close(conn, status, err.msg);
}

void ddpi_server_on_connected(void *owner, const struct ddpi_listener *listener, int fd,
                              const struct sockaddr *name)
{
    struct ddpi_server *server = owner;
    const struct ddpi_conn_peer peer = identify_peer(server, fd, name);
    const struct ddpi_address address = charged_address(&peer);
    bool full = server->admission.connections >= server->admission.max_connections;
    if (peer.other_user && server->env.gate.token == NULL) {
        deny_other_user(server, fd, &peer);
    } else if (is_throttled(server, &peer) &&
               !ddpi_failure_rate_permits(&server->admission.failures, &address,
                                          uv_now(server->shared.loop))) {
        refuse_throttled(server, fd, &peer);
    } else if (full && server->admission.half_open_count == 0) {
        refuse_full(server, fd);
    } else {
        if (full || server->admission.half_open_count >= server->admission.max_half_open)
            evict_oldest(server, full);
        admit_connection(server, listener, fd, &peer);
    }
}

/* ---- clients ---- */

/* A TCPStore client cannot authenticate. */
static ddp_status check_vouched(const struct ddpi_server *server, const struct ddpi_conn *conn,
                                struct ddp_error *err)
{
    const struct ddpi_conn_peer *peer = &conn->peer;
    if (conn->dialect_state.needs_tls && !server->env.gate.tcpstore_in_clear)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "a TCPStore client cannot speak TLS, which this server requires "
                              "(--tls); --tcpstore-in-clear admits it without");
    char user[32] = "an unknown user";
    if (peer->known)
        snprintf(user, sizeof user, "user %" PRIu32, peer->owner);
    if (peer->other_user)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "a TCPStore client of %s; only those of the server's own user are "
                              "admitted without authentication (see --trust-local-users)",
                              user);
    if (!peer->must_authenticate || (server->admission.vouches && peer->loopback) ||
        ddpi_vouch_covers(&server->admission.vouching, &peer->address, conn->job))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_DENIED,
                          "a TCPStore client cannot authenticate, and no authenticated agent that "
                          "vouches for its job is connected from its host");
}

/* An agent with the key of one job vouches for that job only. */
static ddp_status let_vouch(struct ddpi_server *server, struct ddpi_conn *conn,
                            struct ddp_error *err)
{
    const struct ddpi_identity *identity = &conn->dialect_state.identity;
    char *job = conn->dialect_state.vouches_for;
    if (!identity->proven || identity->role != DDPI_ROLE_AGENT)
        return DDP_OK;
    if (identity->job[0] != '\0')
        memcpy(job, identity->job, sizeof identity->job);
    if (!ddpi_vouch_add(&server->admission.vouching, &conn->peer.address, job))
        return ddpi_error_nomem(err, sizeof conn->peer);
    conn->vouches = true;
    return DDP_OK;
}

/* The client has done nothing wrong, so its address is not charged with a failure. */
static ddp_status refuse_as_standby(struct ddpi_server *server, struct ddpi_conn *conn,
                                    struct ddp_error *err)
{
    const char *leader = server->standby.leader;
    ddpi_server_not_half_open(server, conn);
    if (leader[0] == '\0')
        return ddpi_error_set(err, DDP_E_CLOSED,
                              "this store is a standby, and no store leads at the moment");
    return ddpi_error_set(err, DDP_E_CLOSED, "this store is a standby; the leader is %s", leader);
}

ddp_status ddpi_server_on_admit(void *owner, struct ddpi_conn *conn, struct ddp_error *err)
{
    struct ddpi_server *server = owner;
    const struct ddpi_identity *identity = &conn->dialect_state.identity;
    bool keeper = identity->role == DDPI_ROLE_KEEPER && identity->proven;
    if (server->standby.on && !keeper)
        return refuse_as_standby(server, conn, err);
    if (conn->client.tcpstore && conn->job[0] == '\0')
        memcpy(conn->job, server->jobs.tcpstore_job, sizeof conn->job);
    ddp_status status = conn->client.tcpstore ? check_vouched(server, conn, err) : DDP_OK;
    if (status == DDP_OK)
        status = ddpi_server_enter_job(server, conn, err);
    if (status == DDP_OK)
        status = let_vouch(server, conn, err);
    if (status != DDP_OK)
        return status;
    ddpi_server_not_half_open(server, conn);
    return DDP_OK;
}

void ddpi_server_left(struct ddpi_server *server, struct ddpi_conn *conn)
{
    const struct ddpi_address address = charged_address(&conn->peer);
    if (!ddpi_list_empty(&conn->of_half_open) && is_throttled(server, &conn->peer))
        ddpi_failure_rate_charge(&server->admission.failures, &address,
                                 uv_now(server->shared.loop));
    if (conn->vouches)
        ddpi_vouch_remove(&server->admission.vouching, &conn->peer.address,
                          conn->dialect_state.vouches_for);
}
