/*
 * server_turn.h - a turn of the loop: when its input is read, deadlines that have passed are
 * applied and waiting requests are served; at its end changes are committed and replies leave.
 */
#ifndef DDPI_SERVER_TURN_H
#define DDPI_SERVER_TURN_H

#include "server_state.h"

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
