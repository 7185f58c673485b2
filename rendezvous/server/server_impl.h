/*
 * server_impl.h - what the files of the server offer each other, for this folder alone.
 */
#ifndef DDPI_SERVER_IMPL_H
#define DDPI_SERVER_IMPL_H

#include "server_state.h"

/* ---- which connections a server accepts, and which clients it serves (admission.c) ---- */

/* Hooks of listeners and connections. */
void ddpi_server_on_connected(void *owner, const struct ddpi_listener *listener, int fd,
                              const struct sockaddr *peer);
void ddpi_server_on_shed(void *owner);
bool ddpi_server_on_fault(void *owner, const struct ddpi_conn *conn);
ddp_status ddpi_server_on_admit(void *owner, struct ddpi_conn *conn, struct ddp_error *err);

/* A connection has ended: if it was half-open, its peer's address has failed once more. */
void ddpi_server_left(struct ddpi_server *server, struct ddpi_conn *conn);
/* Its peer has been admitted, or it is closed. */
void ddpi_server_not_half_open(struct ddpi_server *server, struct ddpi_conn *conn);

/* ---- the requests of admitted clients, and their replies (requests.c) ---- */

/* Hooks of connections. */
bool ddpi_server_on_request(void *owner, struct ddpi_conn *conn,
                            const struct ddpi_message *request);
void ddpi_server_on_ahead(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys,
                          size_t count);
void ddpi_server_on_dirty(void *owner, struct ddpi_conn *conn);

/* The reply hook of the core. */
void ddpi_server_on_reply(void *ctx, struct ddpi_kv_client *client,
                          const struct ddpi_message *reply);

/* ---- jobs: which keys their clients see, their epochs, and their data ports (jobs.c) ---- */

/* Assign a client to the job of its port, or to the one that it names, or to none. */
ddp_status ddpi_server_enter_job(struct ddpi_server *server, struct ddpi_conn *conn,
                                 struct ddp_error *err);

/* The requests FENCE and OPEN_PORT. */
ddp_status ddpi_server_fence(struct ddpi_server *server, struct ddpi_conn *conn,
                             const struct ddpi_message *request, struct ddpi_message *reply,
                             struct ddp_error *err);
ddp_status ddpi_server_open_port(struct ddpi_server *server, struct ddpi_conn *conn,
                                 const struct ddpi_message *request, struct ddpi_message *reply,
                                 struct ddp_error *err);

/* 0 until the job is first fenced. A value that is not a number counts as the last epoch, which
 * admits no worker. */
uint64_t ddpi_server_epoch(const struct ddpi_server *server, const char *job);
/* End all epochs of @job before @epoch. DDP_E_CONFLICT: the job is in a later one. */
ddp_status ddpi_server_set_epoch(struct ddpi_server *server, const char *job, uint64_t epoch,
                                 struct ddp_error *err);

/* ---- what rounds need of a server (round_hooks.c) ---- */

ddp_status ddpi_server_create_rounds(struct ddpi_server *server, const uint8_t seed[DDPI_SEED_SIZE],
                                     struct ddp_error *err);

/* ---- the end of a store that is for one job (job_end.c) ---- */

/* @job has members, or has had a result and has none any more. */
void ddpi_server_note_begin(struct ddpi_server *server, const char *job);
void ddpi_server_note_end(struct ddpi_server *server, const char *job);

/* At the end of a turn: whether the job is over. */
void ddpi_server_look_for_end(struct ddpi_server *server);

/* ---- what ended jobs have left behind (reclaim.c) ---- */

/* Delete some of it, if room is short; true: there is more. */
bool ddpi_server_make_room(struct ddpi_server *server);

/* ---- a turn of the loop (server_turn.c) ---- */

/* When the input of a turn is read, deadlines that have passed are applied and waiting requests are
 * served; at its end changes are committed and replies leave. */

/* Start the handles of the turn on env.loop; cannot fail. */
void ddpi_server_turn_start(struct ddpi_server *server);
/* Close them; @closed is called for each, whose `data` is the server. */
void ddpi_server_turn_close(struct ddpi_server *server, uv_close_cb closed);

/* The loop does not sleep in this turn. */
void ddpi_server_turn_again(struct ddpi_server *server);

/* The sink hook of the core. */
void ddpi_server_on_change(void *ctx, const struct ddpi_mutation *mutation);

/* Begin to make all changes durable, unless a commit is under way. If that fails, all connections
 * are dropped, and the owner is told, or the log if the server is being closed. */
void ddpi_server_commit(struct ddpi_server *server);

/* So many changes wait for a commit that who has sent a change of @size bytes should wait, too. */
bool ddpi_server_is_behind(const struct ddpi_server *server, size_t size);

/* Whether all replies may leave: no commit is under way, and the sink has its right to the
 * contents. */
bool ddpi_server_may_answer_all(const struct ddpi_server *server);

/* Commit, and send all replies that may leave. */
void ddpi_server_settle(struct ddpi_server *server);

#endif
