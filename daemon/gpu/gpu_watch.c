/*
 * gpu_watch.c - the loop's side of the board. Owns the handles; never waits for a thread, and never
 * calls NVML.
 */
#include "gpu_watch.h"

#include "clock.h"
#include "gpu_board.h"
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SLACK_MS = 500, LINE_MAX_LEN = 512 };

void gpu_watch_init(struct gpu_watch *watch, uv_loop_t *loop, const struct gpu_watch_hooks *hooks)
{
    *watch = (struct gpu_watch){.loop = loop, .hooks = *hooks};
}

/* ---- news ---- */

static void settle_reclaim(struct gpu_watch *watch)
{
    watch->settling = false;
    uv_timer_stop(&watch->timer);
    watch->hooks.settled(watch->hooks.ctx);
}

/* Errors of the program itself are in the failure report. */
static void say_faults(struct gpu_watch *watch)
{
    struct gpu_board *board = watch->board;
    struct gpu_fault fresh[GPU_FAULTS_MAX];
    uint32_t count = 0;
    pthread_mutex_lock(&board->lock);
    for (uint32_t i = 0; i < board->faults_count; i++)
        if (!board->fault_said[i]) {
            board->fault_said[i] = true;
            fresh[count++] = board->faults[i];
        }
    pthread_mutex_unlock(&board->lock);
    for (uint32_t i = 0; i < count; i++) {
        char label[GPU_LABEL], name[256], line[LINE_MAX_LEN];
        enum gpu_fault_blame blame = gpu_fault_meaning(&fresh[i]).blame;
        if (blame != GPU_FAULT_OF_HARDWARE && blame != GPU_FAULT_OF_DRIVER)
            continue;
        gpu_label(&board->gpus[fresh[i].gpu], label);
        gpu_fault_name(&fresh[i], name, sizeof name);
        snprintf(line, sizeof line, "%s: %s", label, name);
        watch->hooks.say(watch->hooks.ctx, line);
    }
}

static void take_answer(struct gpu_watch *watch)
{
    struct gpu_board *board = watch->board;
    char still_held[GPU_HOLDERS_TEXT];
    pthread_mutex_lock(&board->lock);
    bool answered = board->answered == watch->asked;
    memcpy(still_held, board->still_held, sizeof still_held);
    pthread_mutex_unlock(&board->lock);
    if (!answered)
        return;
    watch->unresponsive = false;
    if (!watch->settling)
        return;
    for (char *line = still_held, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        watch->hooks.say(watch->hooks.ctx, line);
    }
    settle_reclaim(watch);
}

static void on_board_news(uv_async_t *async)
{
    struct gpu_watch *watch = async->data;
    if (watch->board == NULL)
        return;
    say_faults(watch);
    take_answer(watch);
}

static void on_no_answer(uv_timer_t *timer)
{
    struct gpu_watch *watch = timer->data;
    char line[LINE_MAX_LEN];
    snprintf(
        line, sizeof line,
        "NVML has not answered for %.1f s, so it is not known whether the GPUs' memory is free",
        (double)watch->patience_ms / 1e3);
    watch->unresponsive = true;
    watch->hooks.say(watch->hooks.ctx, line);
    settle_reclaim(watch);
}

/* ---- opening and closing ---- */

static void close_watch_handles(struct gpu_watch *watch)
{
    uv_close((uv_handle_t *)&watch->news, NULL);
    uv_close((uv_handle_t *)&watch->timer, NULL);
}

static void begin_watching(struct gpu_watch *watch, const pid_t *pids, uint32_t count,
                           const char *visible)
{
    watch->begun = true;
    if (uv_async_init(watch->loop, &watch->news, on_board_news) != 0)
        return;
    uv_timer_init(watch->loop, &watch->timer);
    watch->news.data = watch->timer.data = watch;
    watch->board = gpu_board_start(pids, count, visible, &watch->news);
    if (watch->board == NULL)
        close_watch_handles(watch);
}

void gpu_watch_begin(struct gpu_watch *watch, const pid_t *pids, uint32_t count,
                     const char *visible)
{
    struct gpu_board *board = watch->board;
    if (!watch->begun) {
        begin_watching(watch, pids, count, visible);
    } else if (board != NULL) {
        pthread_mutex_lock(&board->lock);
        memcpy(board->pids, pids, count * sizeof *pids);
        board->uses_count = 0;
        board->starts++;
        pthread_cond_signal(&board->wake);
        pthread_mutex_unlock(&board->lock);
    }
}

void gpu_watch_close(struct gpu_watch *watch)
{
    struct gpu_board *board = watch->board;
    if (board == NULL)
        return;
    pthread_mutex_lock(&board->lock);
    board->over = true;
    pthread_cond_signal(&board->wake);
    pthread_mutex_unlock(&board->lock);
    watch->board = NULL;
    watch->left = gpu_board_drop(board);
    close_watch_handles(watch);
}

/* ---- waiting for memory ---- */

void gpu_watch_reclaim(struct gpu_watch *watch, uint64_t timeout_ms)
{
    struct gpu_board *board = watch->board;
    if (board == NULL || watch->unresponsive || timeout_ms == 0)
        return;
    pthread_mutex_lock(&board->lock);
    bool ready = board->ready;
    if (ready) {
        watch->asked = ++board->asked;
        board->until_us = ddpi_monotonic_us() + timeout_ms * 1000;
        pthread_cond_signal(&board->wake);
    }
    pthread_mutex_unlock(&board->lock);
    if (!ready)
        return; /* workers that ended before NVML was ready have used little */
    watch->settling = true;
    watch->patience_ms = timeout_ms + SLACK_MS;
    uv_timer_start(&watch->timer, on_no_answer, watch->patience_ms, 0);
}

bool gpu_watch_settled(const struct gpu_watch *watch)
{
    return !watch->settling;
}

void gpu_watch_give_up(struct gpu_watch *watch)
{
    if (!watch->settling)
        return;
    watch->settling = false;
    uv_timer_stop(&watch->timer);
}

/* ---- the GPU of a worker ---- */

/* With the lock held: the recorded use of @gpu by all processes of @local_rank. */
static bool sum_uses(const struct gpu_board *board, uint32_t local_rank, uint32_t gpu,
                     struct gpu_use *ret)
{
    *ret = (struct gpu_use){.local_rank = local_rank, .gpu = gpu};
    bool any = false;
    for (uint32_t i = 0; i < board->uses_count; i++) {
        const struct gpu_use *use = &board->uses[i];
        if (use->local_rank != local_rank || use->gpu != gpu)
            continue;
        any = true;
        ret->bytes += use->bytes != NVML_LIBRARY_UNKNOWN ? use->bytes : 0;
        ret->seen_us = use->seen_us > ret->seen_us ? use->seen_us : ret->seen_us;
    }
    return any;
}

static bool was_seen(const struct gpu_board *board, uint32_t local_rank)
{
    for (uint32_t i = 0; i < board->uses_count; i++)
        if (board->uses[i].local_rank == local_rank)
            return true;
    return false;
}

/* The GPU that programs usually choose: that of the local rank. */
static bool usual_gpu(const struct gpu_board *board, uint32_t local_rank, uint32_t *ret_gpu)
{
    uint32_t place = board->visible_count == 1 ? 0 : local_rank;
    if (place >= board->visible_count)
        return false;
    *ret_gpu = board->visible_gpus[place];
    return true;
}

static bool has_gpu(const struct gpu_board *board, uint32_t local_rank, uint32_t gpu)
{
    struct gpu_use use;
    uint32_t usual;
    if (was_seen(board, local_rank))
        return sum_uses(board, local_rank, gpu, &use);
    return usual_gpu(board, local_rank, &usual) && usual == gpu;
}

static void print_use(const struct gpu *gpu, const struct gpu_use *use, uint64_t ended_us,
                      char *text, size_t size)
{
    char label[GPU_LABEL], bytes[GPU_SIZE_TEXT], before[32];
    gpu_label(gpu, label);
    gpu_size(use->bytes, bytes);
    report_duration(ended_us > use->seen_us ? ended_us - use->seen_us : 0, before, sizeof before);
    if (use->bytes > 0)
        snprintf(text, size, "%s, %s in use %s before", label, bytes, before);
    else
        snprintf(text, size, "%s", label);
}

static bool print_uses(const struct gpu_board *board, uint32_t local_rank, uint64_t ended_us,
                       char *text, size_t size)
{
    struct gpu_use use;
    uint32_t usual;
    char label[GPU_LABEL];
    size_t used = 0;
    for (uint32_t gpu = 0; gpu < board->gpus_count && used < size; gpu++) {
        char one[LINE_MAX_LEN];
        if (!sum_uses(board, local_rank, gpu, &use))
            continue;
        print_use(&board->gpus[gpu], &use, ended_us, one, sizeof one);
        used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? "; " : "", one);
    }
    if (used > 0 || !usual_gpu(board, local_rank, &usual))
        return used > 0;
    gpu_label(&board->gpus[usual], label);
    snprintf(text, size, "%s, by its local rank; it was not seen there", label);
    return true;
}

bool gpu_watch_describe(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                        char *text, size_t size)
{
    struct gpu_board *board = watch->board;
    if (board == NULL)
        return false;
    pthread_mutex_lock(&board->lock);
    bool known = print_uses(board, local_rank, ended_us, text, size);
    pthread_mutex_unlock(&board->lock);
    return known;
}

/* ---- faults ---- */

static bool is_near(const struct gpu_fault *fault, uint64_t ended_us)
{
    return fault->last_us + GPU_FAULT_WINDOW_US >= ended_us;
}

/* "Xid 79 (...) on its GPU 3, 12.0 ms before: the hardware's fault, not the program's" */
static bool add_fault(const struct gpu_board *board, const struct gpu_fault *fault, bool own,
                      uint64_t ended_us, struct ddpi_buf *out)
{
    char name[256], apart[32], line[2 * LINE_MAX_LEN];
    const struct gpu_fault_meaning meaning = gpu_fault_meaning(fault);
    bool before = fault->last_us <= ended_us;
    gpu_fault_name(fault, name, sizeof name);
    report_duration(before ? ended_us - fault->last_us : fault->last_us - ended_us, apart,
                    sizeof apart);
    snprintf(line, sizeof line, "  %s on %sGPU %" PRIu32 "%s, %s %s: %s; %s\n", name,
             own ? "its " : "", board->gpus[fault->gpu].index, own ? "" : ", which is not its own",
             apart, before ? "before" : "later", gpu_fault_blames(meaning.blame), meaning.advice);
    return ddpi_buf_append(out, line, strlen(line));
}

/* Faults that can explain the end come first. */
static bool add_faults(const struct gpu_board *board, uint32_t local_rank, uint64_t ended_us,
                       struct ddpi_buf *out)
{
    bool ok = true;
    for (int explains = 1; explains >= 0; explains--)
        for (uint32_t i = 0; i < board->faults_count && ok; i++) {
            const struct gpu_fault *fault = &board->faults[i];
            if (is_near(fault, ended_us) && gpu_fault_explains(fault) == (explains == 1))
                ok = add_fault(board, fault, has_gpu(board, local_rank, fault->gpu), ended_us, out);
        }
    return ok;
}

static bool add_trouble(const struct gpu_board *board, struct ddpi_buf *out)
{
    static const char intro[] = "  the GPUs were not watched: ";
    return board->trouble[0] == '\0' ||
           (ddpi_buf_append(out, intro, sizeof intro - 1) &&
            ddpi_buf_append(out, board->trouble, strlen(board->trouble)) &&
            ddpi_buf_append(out, "\n", 1));
}

bool gpu_watch_faults(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                      struct ddpi_buf *out)
{
    struct gpu_board *board = watch->board;
    if (board == NULL)
        return true;
    pthread_mutex_lock(&board->lock);
    bool ok = add_trouble(board, out) && add_faults(board, local_rank, ended_us, out);
    pthread_mutex_unlock(&board->lock);
    return ok;
}

static const struct gpu_fault *find_cause(const struct gpu_board *board, uint32_t local_rank,
                                          uint64_t ended_us)
{
    const struct gpu_fault *first = NULL;
    for (uint32_t i = 0; i < board->faults_count; i++) {
        const struct gpu_fault *fault = &board->faults[i];
        if (is_near(fault, ended_us) && gpu_fault_explains(fault) &&
            has_gpu(board, local_rank, fault->gpu) &&
            (first == NULL || fault->first_us < first->first_us))
            first = fault;
    }
    return first;
}

bool gpu_watch_cause(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                     char *text, size_t size)
{
    struct gpu_board *board = watch->board;
    char name[256];
    if (board == NULL)
        return false;
    pthread_mutex_lock(&board->lock);
    const struct gpu_fault *fault = find_cause(board, local_rank, ended_us);
    if (fault != NULL) {
        gpu_fault_name(fault, name, sizeof name);
        snprintf(text, size, "%s on GPU %" PRIu32, name, board->gpus[fault->gpu].index);
    }
    pthread_mutex_unlock(&board->lock);
    return fault != NULL;
}
