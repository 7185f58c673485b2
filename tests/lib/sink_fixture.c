/*
 * sink_fixture.c - lives of a core with a sink, what they were given back, and the row of SQLite.
 */
#include "sink_fixture.h"

#include "check_main.h"
#include "sqlite_sink.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GIVEN_MAX = 4 * 1024 * 1024 };

struct ddpi_mark sink_restored;
static const struct sink_row *row_in_use;
static struct ddpi_sink hooks;
static char given[GIVEN_MAX];
static size_t ngiven;

void sink_use(const struct sink_row *row)
{
    row_in_use = row;
    given[ngiven = 0] = '\0';
}

const char *sink_given(void)
{
    return given;
}

static void __attribute__((format(printf, 1, 2))) note_given(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ngiven += (size_t)vsnprintf(given + ngiven, sizeof given - ngiven, format, args);
    va_end(args);
    ck_assert_uint_lt(ngiven, sizeof given);
}

/* ---- lives ---- */

ddp_status sink_take(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err)
{
    (void)ctx;
    bool random = mutation->kind == DDPI_MUTATION_SESSION_OPEN; /* a token */
    note_given("%d '%.*s' '%.*s' v%" PRIu64 " s%" PRIu64 " n%" PRIu64 " l%" PRIu32 "\n",
               (int)mutation->kind, (int)mutation->key.len, (const char *)mutation->key.data,
               random ? 0 : (int)mutation->value.len,
               mutation->value.len > 0 ? (const char *)mutation->value.data : "", mutation->version,
               mutation->session, mutation->number, mutation->lease_ms);
    return ddpi_kv_restore(kv, mutation, now, err);
}

ddp_status sink_try_begin(const struct ddpi_kv_limits *limits, struct ddp_error *err)
{
    kv_make(limits);
    ddp_status status = row_in_use->open(&hooks, &sink_restored, err);
    if (status != DDP_OK)
        return status;
    note_given("version %" PRIu64 " floor %" PRId64 "\n", sink_restored.version,
               sink_restored.remembers ? (int64_t)sink_restored.floor : -1);
    ddpi_kv_restore_mark(kv, &sink_restored, now);
    ddpi_kv_set_sink(kv, hooks.change, hooks.ctx);
    return DDP_OK;
}

void sink_begin(const struct ddpi_kv_limits *limits)
{
    struct ddp_error err;
    ck_assert_msg(sink_try_begin(limits, &err) == DDP_OK, "%s", err.msg);
}

static void on_committed(void *ctx, const struct ddp_error *failure)
{
    ck_assert_msg(failure == NULL, "%s", failure != NULL ? failure->msg : "");
    *(bool *)ctx = true;
}

void sink_commit(void)
{
    const struct ddpi_mark mark = ddpi_kv_mark(kv);
    bool committed = false;
    hooks.commit(hooks.ctx, &mark, (struct ddpi_committed){on_committed, &committed});
    ck_assert(committed);
}

void sink_end(void)
{
    ddpi_kv_set_sink(kv, NULL, NULL);
    row_in_use->close();
    for (int i = 0; i < CLIENTS; i++)
        ddpi_kv_client_gone(kv, &clients[i]);
    ddpi_kv_destroy(kv);
}

/* ---- SQLite ---- */

static char folder[PATH_MAX];
char sink_file[PATH_MAX + 8];
static struct ddpi_sqlite_sink *opened;

static void sqlite_setup(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/test_state.XXXXXX", tmp != NULL ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(sink_file, sizeof sink_file, "%s/state", folder);
    sink_use(&sink_in_sqlite);
}

static void sqlite_close(void)
{
    ddpi_sqlite_sink_close(opened);
    opened = NULL;
}

static void sqlite_teardown(void)
{
    sqlite_close();
    unlink(sink_file);
    ck_assert_int_eq(rmdir(folder), 0); /* it leaves nothing else */
}

static ddp_status sqlite_open(struct ddpi_sink *ret_hooks, struct ddpi_mark *ret_mark,
                              struct ddp_error *err)
{
    ddp_status status = ddpi_sqlite_sink_open(sink_file, &opened, err);
    if (status != DDP_OK)
        return status;
    *ret_hooks = ddpi_sqlite_sink_hooks(opened);
    return ddpi_sqlite_sink_load(opened, sink_take, NULL, ret_mark, err);
}

const struct sink_row sink_in_sqlite = {
    .name = "SQLite",
    .setup = sqlite_setup,
    .teardown = sqlite_teardown,
    .open = sqlite_open,
    .close = sqlite_close,
};
