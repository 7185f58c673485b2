/*
 * gpu_board.c - the two threads that call NVML. Each owns its state of the library; of the agent
 * they touch only the board.
 *
 * The polling thread notes which worker uses which GPU: a second after a start, then at doubling
 * intervals, as a query costs the driver time. On request it waits for GPU memory to be freed. The
 * listening thread waits for faults; it runs if a GPU can report them.
 */
#include "gpu_board.h"

#include "clock.h"
#include "mem.h"
#include "thread.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define FIRST_LOOK_US UINT64_C(1000000)
#define LAST_LOOK_US  UINT64_C(30000000)
#define RETRY_US      UINT64_C(20000)

enum {
    LISTEN_MS = 1000, /* how often the listening thread checks for the end */
    LISTEN_PAUSE_MS = 100,
};

/* ---- the board ---- */

static void free_board(struct gpu_board *board)
{
    pthread_cond_destroy(&board->wake);
    pthread_mutex_destroy(&board->lock);
    ddpi_free(board->visible);
    ddpi_free(board->pids);
    ddpi_free(board);
}

bool gpu_board_drop(struct gpu_board *board)
{
    pthread_mutex_lock(&board->lock);
    bool held = --board->holders > 0;
    pthread_mutex_unlock(&board->lock);
    if (!held)
        free_board(board);
    return held;
}

/* Called with the lock held. */
static void tell_loop(struct gpu_board *board)
{
    if (!board->over)
        uv_async_send(board->news);
}

/* The thread gets a reference to the board. */
static bool start_gpu_thread(struct gpu_board *board, void *(*body)(void *), void *arg)
{
    pthread_t thread;
    pthread_mutex_lock(&board->lock);
    board->holders++;
    pthread_mutex_unlock(&board->lock);
    bool started = ddpi_thread_start(&thread, 0, body, arg) == 0;
    if (started)
        pthread_detach(thread);
    else
        gpu_board_drop(board);
    return started;
}

/* ---- the listening thread ---- */

struct listener {
    struct gpu_board *board;
    struct nvml_library nvml;
    nvml_library_event_set set;
    nvml_library_device devices[GPUS_MAX];
    uint32_t count;
};

static bool same_fault(const struct gpu_fault *a, const struct gpu_fault *b)
{
    return a->kind == b->kind && a->xid == b->xid && a->gpu == b->gpu;
}

/* The place of an equal fault; else a free one, else that of the oldest. */
static uint32_t fault_place(struct gpu_board *board, const struct gpu_fault *fault)
{
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < board->faults_count; i++) {
        if (same_fault(&board->faults[i], fault))
            return i;
        if (board->faults[i].last_us < board->faults[oldest].last_us)
            oldest = i;
    }
    return board->faults_count < GPU_FAULTS_MAX ? board->faults_count++ : oldest;
}

static void note_fault(struct gpu_board *board, struct gpu_fault fault)
{
    pthread_mutex_lock(&board->lock);
    uint32_t place = fault_place(board, &fault);
    struct gpu_fault *known = &board->faults[place];
    bool again = same_fault(known, &fault) && known->times > 0 &&
                 fault.last_us - known->last_us < GPU_FAULT_WINDOW_US;
    if (again) {
        fault.times = known->times + 1;
        fault.first_us = known->first_us;
    }
    *known = fault;
    board->fault_said[place] &= again;
    tell_loop(board);
    pthread_mutex_unlock(&board->lock);
}

static void take_nvml_event(struct listener *listener, const struct nvml_library_event *event)
{
    uint64_t at_us = ddpi_monotonic_us();
    struct gpu_fault fault = {.times = 1, .first_us = at_us, .last_us = at_us};
    while (fault.gpu < listener->count && listener->devices[fault.gpu] != event->device)
        fault.gpu++;
    if (fault.gpu == listener->count)
        return;
    switch (event->type) {
    case NVML_LIBRARY_EVENT_XID:
        fault.kind = GPU_FAULT_XID;
        fault.xid = (uint32_t)event->data;
        break;
    case NVML_LIBRARY_EVENT_ECC_DOUBLE:
        fault.kind = GPU_FAULT_ECC_DOUBLE;
        break;
    case NVML_LIBRARY_EVENT_ECC_SINGLE:
        fault.kind = GPU_FAULT_ECC_SINGLE;
        break;
    default:
        return;
    }
    note_fault(listener->board, fault);
}

static bool board_is_over(struct gpu_board *board)
{
    pthread_mutex_lock(&board->lock);
    bool over = board->over;
    pthread_mutex_unlock(&board->lock);
    return over;
}

static void *listen_for_faults(void *arg)
{
    static const struct timespec pause = {.tv_nsec = LISTEN_PAUSE_MS * 1000000L};
    struct listener *listener = arg;
    while (!board_is_over(listener->board)) {
        struct nvml_library_event event = {0};
        nvml_library_result result = listener->nvml.wait_event(listener->set, &event, LISTEN_MS);
        if (result == NVML_LIBRARY_SUCCESS)
            take_nvml_event(listener, &event);
        else if (result != NVML_LIBRARY_ERROR_TIMEOUT)
            nanosleep(&pause, NULL); /* with a lost GPU every wait fails at once */
    }
    gpu_board_drop(listener->board);
    ddpi_free(listener);
    return NULL;
}

static bool register_events(const struct gpu_look *look, nvml_library_event_set set)
{
    const unsigned long long wanted =
        NVML_LIBRARY_EVENT_XID | NVML_LIBRARY_EVENT_ECC_DOUBLE | NVML_LIBRARY_EVENT_ECC_SINGLE;
    const struct nvml_library *nvml = &look->nvml;
    bool any = false;
    for (uint32_t i = 0; i < look->count; i++) {
        unsigned long long served = 0;
        if (look->watched[i] &&
            nvml->get_event_types(look->devices[i], &served) == NVML_LIBRARY_SUCCESS &&
            (served & wanted) != 0)
            any |= nvml->register_events(look->devices[i], served & wanted, set) ==
                   NVML_LIBRARY_SUCCESS;
    }
    return any;
}

static void start_listening(struct gpu_board *board, const struct gpu_look *look)
{
    const struct nvml_library *nvml = &look->nvml;
    nvml_library_event_set set;
    if (nvml->get_event_types == NULL || nvml->create_event_set == NULL ||
        nvml->register_events == NULL || nvml->wait_event == NULL ||
        nvml->create_event_set(&set) != NVML_LIBRARY_SUCCESS || !register_events(look, set))
        return;
    struct listener *listener = ddpi_calloc(1, sizeof *listener);
    if (listener == NULL)
        return;
    listener->board = board;
    listener->nvml = *nvml;
    listener->set = set;
    listener->count = look->count;
    memcpy(listener->devices, look->devices, sizeof listener->devices);
    if (!start_gpu_thread(board, listen_for_faults, listener))
        ddpi_free(listener);
}

/* ---- the polling thread ---- */

struct looker {
    struct gpu_board *board;
    struct gpu_look look;
    pid_t *pids;
    uint64_t starts;
    uint64_t interval_us;
    uint64_t look_us;  /* when to poll next */
    uint64_t retry_us; /* when to check memory again */
    uint64_t asked;    /* the board's @asked that is being answered */
    uint64_t until_us;
};

/* Copy the pids of workers that have been started since. */
static void see_workers(struct looker *looker)
{
    struct gpu_board *board = looker->board;
    if (looker->starts == board->starts)
        return;
    looker->starts = board->starts;
    memcpy(looker->pids, board->pids, board->count * sizeof *board->pids);
    gpu_look_forget(&looker->look);
    board->uses_count = 0;
    looker->interval_us = FIRST_LOOK_US;
    looker->look_us = ddpi_monotonic_us() + FIRST_LOOK_US;
}

/* Wait for work; false: the end. *@ret_asked: see whether memory is free; else poll the workers. */
static bool await_turn(struct looker *looker, bool *ret_asked)
{
    struct gpu_board *board = looker->board;
    pthread_mutex_lock(&board->lock);
    while (!board->over) {
        see_workers(looker);
        *ret_asked = board->asked != board->answered;
        looker->asked = board->asked;
        looker->until_us = board->until_us;
        uint64_t due_us = *ret_asked ? looker->retry_us : looker->look_us;
        if (ddpi_monotonic_us() >= due_us)
            break;
        const struct timespec due = {.tv_sec = (time_t)(due_us / 1000000),
                                     .tv_nsec = (long)(due_us % 1000000) * 1000};
        pthread_cond_timedwait(&board->wake, &board->lock, &due);
    }
    bool over = board->over;
    pthread_mutex_unlock(&board->lock);
    return !over;
}

static void look_at_workers(struct looker *looker)
{
    struct gpu_board *board = looker->board;
    const struct gpu_look *look = &looker->look;
    gpu_look_take(&looker->look, looker->pids, board->count);
    pthread_mutex_lock(&board->lock);
    if (looker->starts == board->starts) { /* else these are uses of earlier workers */
        memcpy(board->uses, look->uses, look->uses_count * sizeof *look->uses);
        board->uses_count = look->uses_count;
    }
    pthread_mutex_unlock(&board->lock);
    looker->interval_us *= looker->interval_us < LAST_LOOK_US ? 2 : 1;
    looker->look_us = ddpi_monotonic_us() + looker->interval_us;
}

static void see_whether_free(struct looker *looker)
{
    struct gpu_board *board = looker->board;
    char still_held[GPU_HOLDERS_TEXT] = "";
    bool is_free = gpu_look_is_free(&looker->look, looker->pids, board->count);
    if (!is_free && ddpi_monotonic_us() < looker->until_us) {
        looker->retry_us = ddpi_monotonic_us() + RETRY_US;
        return;
    }
    if (!is_free)
        gpu_look_holders(&looker->look, looker->pids, board->count, still_held);
    looker->retry_us = 0;
    pthread_mutex_lock(&board->lock);
    board->answered = looker->asked;
    memcpy(board->still_held, still_held, sizeof still_held);
    tell_loop(board);
    pthread_mutex_unlock(&board->lock);
}

static void publish_gpus(struct gpu_board *board, const struct gpu_look *look)
{
    pthread_mutex_lock(&board->lock);
    memcpy(board->gpus, look->gpus, sizeof look->gpus);
    memcpy(board->visible_gpus, look->visible, sizeof look->visible);
    board->gpus_count = look->count;
    board->visible_count = look->visible_count;
    board->ready = true;
    pthread_mutex_unlock(&board->lock);
}

static void say_trouble(struct gpu_board *board, const struct ddp_error *err)
{
    pthread_mutex_lock(&board->lock);
    snprintf(board->trouble, sizeof board->trouble, "%.*s", (int)sizeof board->trouble - 1,
             err->msg);
    pthread_mutex_unlock(&board->lock);
}

static void look_and_answer(struct looker *looker)
{
    struct ddp_error err;
    bool asked;
    ddp_status status = gpu_look_open(&looker->look, looker->board->visible, &err);
    if (status != DDP_OK) {
        if (status != DDP_E_NOT_FOUND)
            say_trouble(looker->board, &err);
        return;
    }
    publish_gpus(looker->board, &looker->look);
    start_listening(looker->board, &looker->look);
    while (await_turn(looker, &asked))
        if (asked)
            see_whether_free(looker);
        else
            look_at_workers(looker);
}

static void free_looker(struct looker *looker)
{
    if (looker != NULL)
        ddpi_free(looker->pids);
    ddpi_free(looker);
}

static void *look_after_gpus(void *arg)
{
    struct looker *looker = arg;
    look_and_answer(looker);
    gpu_board_drop(looker->board);
    free_looker(looker);
    return NULL;
}

/* ---- start ---- */

static bool init_lock(struct gpu_board *board)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&board->lock, NULL);
    bool ok =
        pthread_condattr_init(&attr) == 0 && pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0;
    pthread_cond_init(&board->wake, ok ? &attr : NULL);
    pthread_condattr_destroy(&attr);
    return ok;
}

struct gpu_board *gpu_board_start(const pid_t *pids, uint32_t count, const char *visible,
                                  uv_async_t *news)
{
    struct gpu_board *board = ddpi_calloc(1, sizeof *board);
    struct looker *looker = ddpi_calloc(1, sizeof *looker);
    if (board == NULL || looker == NULL) {
        ddpi_free(board);
        ddpi_free(looker);
        return NULL;
    }
    bool ok = init_lock(board);
    board->holders = 1;
    board->news = news;
    board->count = count;
    board->starts = 1;
    board->pids = ddpi_calloc(count, sizeof *pids);
    board->visible = visible != NULL ? ddpi_strdup(visible) : NULL;
    looker->board = board;
    looker->pids = ddpi_calloc(count, sizeof *pids);
    ok = ok && board->pids != NULL && looker->pids != NULL && (visible == NULL || board->visible);
    if (ok)
        memcpy(board->pids, pids, count * sizeof *pids);
    if (ok && start_gpu_thread(board, look_after_gpus, looker))
        return board;
    free_looker(looker);
    gpu_board_drop(board);
    return NULL;
}
