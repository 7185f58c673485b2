/*
 * store_port.c - "ddpctl store port": keeps a job's data port open while this program runs. The
 * port ends with its session or with the server. A lost connection ends the program, as it cannot
 * know then whether the port still exists. Owns the session.
 */
#include "job_json.h"
#include "store_loop.h"

#include <string.h>

enum { LEASE_MS = 10000 };

struct port {
    struct ddpctl_loop loop;
    struct ddp_store_session session;
    bool has_session;
};

static void on_port_session_closed(void *data, const struct ddp_store_result *result)
{
    (void)result; /* if this failed, the lease ends the session */
    ddpctl_loop_end(data, DDP_OK, NULL);
}

static void stop_port(struct ddpctl_loop *loop)
{
    struct port *port = (struct port *)loop; /* its first member */
    if (!port->has_session) {
        ddpctl_loop_end(loop, DDP_OK, NULL);
        return;
    }
    port->has_session = false;
    ddpctl_loop_ask(
        loop,
        (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_CLOSE, .session = &port->session},
        on_port_session_closed, loop);
}

static void print_port(struct ddpctl_loop *loop, int64_t number)
{
    struct ddp_error err;
    const char *job = loop->call->words[0];
    ddp_status status = DDP_OK;
    if (loop->call->options->json)
        status = ddpctl_print_json(
            json_pack("{s:o,s:I}", "job", json_bytes(job, strlen(job)), "port", (json_int_t)number),
            &err);
    else
        printf("%lld\n", (long long)number);
    if (status != DDP_OK)
        ddpctl_loop_end(loop, status, err.msg);
    else
        (void)ddpctl_loop_flush(loop);
}

static void on_port(void *data, const struct ddp_store_result *result)
{
    struct ddpctl_loop *loop = data;
    if (result->status == DDP_OK)
        print_port(loop, result->number);
    else
        ddpctl_loop_end(loop, result->status, result->message);
}

static void on_session(void *data, const struct ddp_store_result *result)
{
    struct port *port = data;
    if (result->status != DDP_OK) {
        ddpctl_loop_end(&port->loop, result->status, result->message);
        return;
    }
    port->session = *result->session;
    port->has_session = true;
    ddpctl_loop_ask(&port->loop,
                    (struct ddp_store_request){.op = DDP_STORE_OP_OPEN_PORT,
                                               .key = port->loop.call->words[0],
                                               .session = &port->session},
                    on_port, &port->loop);
}

static void begin_port(struct ddpctl_loop *loop)
{
    ddpctl_loop_ask(loop,
                    (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_OPEN,
                                               .lease_ms = LEASE_MS,
                                               .flags = DDP_STORE_KEEP},
                    on_session, loop);
}

static void on_port_state(void *data, ddp_store_uv *store, enum ddp_store_uv_state state,
                          const char *why)
{
    (void)store;
    if (state == DDP_STORE_UV_ENDED)
        ddpctl_loop_end(data, DDP_E_CLOSED, why);
}

static void on_port_lost(void *data, ddp_store_uv *store, const struct ddp_store_session *session)
{
    (void)store;
    (void)session;
    ddpctl_loop_end(data, DDP_E_CLOSED, "the session has ended, and the port with it");
}

ddp_status ddpctl_run_port(struct ddpctl_call *call, struct ddp_error *err)
{
    struct port port = {.loop = {.call = call, .stop = stop_port}};
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .data = &port, .state = on_port_state, .session_ended = on_port_lost};
    return ddpctl_loop_run(&port.loop, call->connect, &hooks, begin_port, err);
}
