/*
 * pmix_waiting.c - see pmix_waiting.h. On several nodes a rank that has left is a key of the store,
 * for which the servers of all nodes wait.
 */
#include "pmix_waiting.h"

#include "parse.h"
#include "pmix_upcalls.h"

#include <inttypes.h>
#include <stdio.h>

enum { MINUTE_MS = 60 * 1000 };

static const char left_key[] = "pmix/left";

static void fail_because_of(const struct pmix_waiting *waiting, uint32_t rank)
{
    waiting->tell("fail rank %" PRIu32 " has left MPI while others wait for it", rank);
}

static void on_left(void *data, const struct ddp_store_result *result)
{
    uint32_t waits;
    int64_t rank;
    if (result->status == DDP_OK && pmix_upcalls_count(PMIX_RANK_CONNECTED, &waits) > 0 &&
        ddpi_parse_int(result->value, 0, INT32_MAX, &rank, NULL) == DDP_OK)
        fail_because_of(data, (uint32_t)rank);
}

ddp_status pmix_waiting_serve(struct pmix_waiting *waiting, struct ddp_error *err)
{
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = DDP_STORE_OP_GET,
                                              .timeout_ms = DDP_STORE_FOREVER,
                                              .key = left_key};
    waiting->serves = true;
    return waiting->place->node_count == 1
               ? DDP_OK
               : ddp_store_uv_submit(waiting->gathering->store, &request, on_left, waiting, NULL,
                                     err);
}

static void end_telling(struct pmix_waiting *waiting)
{
    waiting->telling = false;
    if (waiting->told != NULL)
        waiting->told();
}

static void on_left_set(void *data, const struct ddp_store_result *result)
{
    (void)result;
    end_telling(data);
}

bool pmix_waiting_holds(struct pmix_waiting *waiting, void (*told)(void))
{
    waiting->told = told;
    return waiting->telling;
}

static void run_missing(struct pmix_task *task)
{
    struct pmix_waiting *waiting = ddpi_container_of(task, struct pmix_waiting, task);
    char text[16];
    struct ddp_error err;
    int len = snprintf(text, sizeof text, "%" PRIu32, waiting->missing);
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = DDP_STORE_OP_SET,
                                              .timeout_ms = DDP_STORE_FOREVER,
                                              .key = left_key,
                                              .value = text,
                                              .value_len = (size_t)len};
    if (waiting->place->node_count == 1)
        fail_because_of(waiting, waiting->missing);
    if (waiting->place->node_count == 1 ||
        pmix_gather_connect(waiting->gathering, &err) != DDP_OK ||
        ddp_store_uv_submit(waiting->gathering->store, &request, on_left_set, waiting, NULL,
                            &err) != DDP_OK)
        end_telling(waiting);
}

void pmix_waiting_missing(struct pmix_waiting *waiting, uint32_t rank)
{
    waiting->missing = rank;
    waiting->telling = true;
    waiting->task.run = run_missing;
    pmix_task_post(waiting->tasks, &waiting->task);
}

/* A program may call MPI in some of its ranks only, and its user not know that it does. */
static void on_minute(uv_timer_t *minute)
{
    const struct pmix_waiting *waiting = minute->data;
    uint32_t rank;
    if (!waiting->serves)
        waiting->tell("say the MPI ranks of this node have waited for %d s for MPI_Init() on the "
                      "other nodes; programs that are no MPI job need --mpi=pmi",
                      MINUTE_MS / 1000);
    else if (pmix_upcalls_count(PMIX_RANK_SILENT, &rank) > 0)
        waiting->tell("say rank %" PRIu32
                      " has not called MPI_Init() in %d s, and other ranks wait "
                      "for it; programs that are no MPI job need --mpi=pmi",
                      rank, MINUTE_MS / 1000);
}

void pmix_waiting_open(struct pmix_waiting *waiting, uv_loop_t *loop)
{
    waiting->minute.data = waiting;
    uv_timer_init(loop, &waiting->minute);
    uv_timer_start(&waiting->minute, on_minute, MINUTE_MS, 0);
}
