/*
 * conn_open.c - creates and closes connections. A connection owns its socket, timer and buffers.
 *
 * The happy path: the first byte selects the dialect, whose handshake opens the connection; then
 * each complete frame becomes a request to the owner, and replies are collected in `out` until the
 * owner says that they may leave, and flushes. They are not sent earlier, since the changes that
 * they acknowledge may have to be made durable first.
 *
 * Possible failure modes are:
 *   - no dialect has the first byte, or the dialect refuses: the peer is told so if possible, and
 *     the connection lingers, then closes;
 *   - the peer fails to authenticate, or a frame fails its integrity check: the same, after a
 *     random delay;
 *   - a handshake or a frame stays incomplete, or output is not read: a deadline ends the
 *     connection;
 *   - the output limit is reached, or memory is short: it ends at once;
 *   - the peer closes or resets: it ends at once, with all its waiting requests.
 *
 * None of them touches another connection, and a length that a peer announces is not allocated
 * before that many bytes have arrived.
 */
#include "conn_impl.h"
#include "error.h"
#include "mem.h"
#include "uv_error.h"

#include <unistd.h>

DDPI_SM_DEFINE(ddpi_conn, CONN_STATES);

const struct ddpi_conn_limits ddpi_conn_limits_default = {
    .handshake_ms = 5000,
    .frame_ms = 60000,
    .output_ms = 60000,
    .linger_ms = 1000,
    .output_soft = 8 * 1024 * 1024,
    .output_hard = 32 * 1024 * 1024,
};

enum {
    INPUT_MAX = 64 * 1024 * 1024, /* a last bound; the dialects allow only shorter frames */
    KEEPALIVE_S = 60,
};

static ddp_status admit(struct ddpi_session *session, struct ddp_error *err)
{
    struct ddpi_conn *conn = ddpi_container_of(session, struct ddpi_conn, session);
    return conn->env->admit(conn->env->owner, conn, err);
}

static void init_buffers(struct ddpi_conn *conn)
{
    ddpi_buf_init(&conn->in, INPUT_MAX);
    ddpi_buf_init(&conn->out, conn->env->limits.output_hard);
    ddpi_buf_init(&conn->sealed, 2 * DDPI_CONN_SEAL_MAX);
    ddpi_buf_init(&conn->flight, conn->env->limits.output_hard);
}

static int start_connection(struct ddpi_conn *conn, int fd)
{
    int uv_err = uv_tcp_open(&conn->tcp, fd);
    if (uv_err != 0) {
        close(fd);
        return uv_err;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    uv_tcp_keepalive(&conn->tcp, 1, KEEPALIVE_S);
    ddpi_conn_update_deadline(conn, false);
    return ddpi_conn_start_reading(conn);
}

ddp_status ddpi_conn_create(const struct ddpi_conn_env *env, int fd,
                            const struct ddpi_conn_peer *peer, struct ddpi_conn **ret,
                            struct ddp_error *err)
{
    struct ddpi_conn *conn = ddpi_calloc(1, sizeof(*conn));
    if (conn == NULL) {
        close(fd);
        return ddpi_error_nomem(err, sizeof(*conn));
    }
    conn->env = env;
    conn->session.limits = &env->kv_limits;
    conn->session.admit = admit;
    conn->session.gate = &env->gate;
    conn->session.incarnation = env->incarnation;
    ddpi_sm_init(&conn->sm, &ddpi_conn_sm);
    ddpi_kv_client_init(&conn->client);
    ddpi_list_init(&conn->of_server);
    ddpi_list_init(&conn->of_half_open);
    ddpi_list_init(&conn->of_dirty);
    ddpi_list_init(&conn->of_held);
    init_buffers(conn);
    conn->peer = *peer;
    conn->session.must_authenticate = peer->must_authenticate;
    conn->session.other_user = peer->other_user;
    conn->session.needs_tls = conn->env->tls != NULL && peer->elsewhere;
    uv_tcp_init(env->loop, &conn->tcp); /* these two cannot fail */
    uv_timer_init(env->loop, &conn->timer);
    conn->tcp.data = conn->timer.data = conn;
    conn->handles = 2;
    *ret = conn;
    int uv_err = start_connection(conn, fd);
    return uv_err == 0 ? DDP_OK : ddpi_uv_error(err, uv_err, "cannot serve a new connection");
}

void ddpi_conn_close(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (ddpi_conn_serving(conn)) {
        ddpi_conn_farewell(conn, status, text);
        ddpi_conn_flush(conn);
    }
    ddpi_conn_close_handles(conn);
}

void ddpi_conn_drop(struct ddpi_conn *conn, const char *why)
{
    ddpi_conn_drop_output(conn);
    ddpi_conn_end(conn, why);
}

void ddpi_conn_local_host(const struct ddpi_conn *conn, char *text, size_t size)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};
    int len = sizeof address;
    *text = '\0';
    if (uv_tcp_getsockname(&conn->tcp, (struct sockaddr *)&address, &len) == 0)
        (void)getnameinfo((struct sockaddr *)&address, (socklen_t)len, text, (socklen_t)size, NULL,
                          0, NI_NUMERICHOST);
}
