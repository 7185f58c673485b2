/*
 * sqlite_sink.c - keeps the store's contents in an SQLite file. Owns the database handle and its
 * prepared statements; depends on the core through sink.h only.
 *
 * The happy path: the first change of a turn begins a transaction, each change is one statement,
 * the commit ends it; with WAL and synchronous=FULL that takes one fsync.
 *
 * Possible failure modes are:
 *   - a statement or the commit fails (the disk is full, say): the first failure is kept, the
 *     commit returns it, and the transaction is rolled back. The file then holds the state of the
 *     last commit, and no later change was acknowledged;
 *   - the process dies: the same.
 */
#include "sqlite_sink.h"

#include "error.h"
#include "failpoint.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { APPLICATION_ID = 0x64647072, SCHEMA = 2 };

/* Ids are not reused while a pending deletion covers earlier ones only. */
#define LAST_QUEUED                                \
    "max(ifnull((SELECT max(id) FROM queued), 0)," \
    " ifnull((SELECT max(queued) FROM detached), 0))"

#define STATEMENTS(X)                                                                       \
    X(BEGIN, "BEGIN IMMEDIATE")                                                             \
    X(COMMIT, "COMMIT")                                                                     \
    X(ROLLBACK, "ROLLBACK")                                                                 \
    X(SET, "INSERT INTO keys (key, value, version, session) "                               \
           "VALUES (?1, ?2, ?3, nullif(?4, 0)) ON CONFLICT (key) DO "                       \
           "UPDATE SET value = ?2, version = ?3, session = nullif(?4, 0)")                  \
    X(DELETE, "DELETE FROM keys WHERE key = ?1")                                            \
    X(PUSH, "INSERT INTO queued (id, key, value) VALUES (1 + " LAST_QUEUED ", ?1, ?2)")     \
    X(POP, "DELETE FROM queued WHERE id = (SELECT min(id) FROM queued WHERE key = ?1)")     \
    X(SESSION_OPEN, "INSERT INTO sessions (number, token, lease_ms) VALUES (?4, ?2, ?5)")   \
    X(SESSION_END, "DELETE FROM sessions WHERE number = ?4")                                \
    X(DETACH, "INSERT INTO detached (number, prefix, version, queued) "                     \
              "VALUES (?7, ?1, ?3, " LAST_QUEUED ")")                                       \
    X(DETACHED_END, "DELETE FROM detached WHERE number = ?7")                               \
    X(REMEMBER, "INSERT INTO changes (version, kind, key, value) VALUES (?3, ?6, ?1, ?2)")  \
    X(FORGET, "DELETE FROM changes WHERE version <= ?3")                                    \
    X(MARK, "INSERT OR REPLACE INTO meta (name, number) VALUES ('version', ?3)")            \
    X(HISTORY, "INSERT OR REPLACE INTO meta (name, number) VALUES ('history', ?3)")         \
    X(LOAD_SESSIONS, "SELECT NULL, token, 0, number, lease_ms, 0, 0 FROM sessions")         \
    X(LOAD_KEYS, "SELECT key, value, version, session, 0, 0, 0 FROM keys ORDER BY version") \
    X(LOAD_DETACHED, "SELECT prefix, NULL, version, 0, 0, 0, number FROM detached")         \
    X(LOAD_QUEUED, "SELECT key, value, 0, 0, 0, 0, 0 FROM queued ORDER BY id")              \
    X(LOAD_CHANGES, "SELECT key, value, version, 0, 0, kind, 0 FROM changes "               \
                    "ORDER BY version")                                                     \
    X(LOAD_META, "SELECT number FROM meta WHERE name = ?1")

enum statement {
#define STATEMENT(name, text) STATEMENT_##name,
    STATEMENTS(STATEMENT)
#undef STATEMENT
        STATEMENT_COUNT
};

static const char *const statement_texts[] = {
#define STATEMENT(name, text) text,
    STATEMENTS(STATEMENT)
#undef STATEMENT
};

/* The meanings of the parameters ?1 to ?7, and of the columns of the LOAD statements. */
enum parameter { KEY = 1, VALUE, VERSION, SESSION, LEASE, KIND, NUMBER };

struct ddpi_sqlite_sink {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    char *path;
    bool was_there;           /* before this process opened it */
    int64_t old_size;         /* what it had then, in bytes */
    bool changing;            /* a transaction is open */
    struct ddp_error failure; /* the first since the last commit; status DDP_OK: none */
};

/* ---- statements ---- */

static ddp_status refuse_damaged(const struct ddpi_sqlite_sink *state, const char *how,
                                 struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_PROTOCOL,
                          "the state %s is damaged, or something else than a state (%s); restore "
                          "the latest copy (after an older one watches may miss changes), or name "
                          "a fresh file",
                          state->path, how);
}

static ddp_status explain_sqlite(const struct ddpi_sqlite_sink *state, int code,
                                 struct ddp_error *err)
{
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ddpi_error_set(
            err, DDP_E_DENIED,
            "the state %s is in use by another process; end that process, or name another file",
            state->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return refuse_damaged(state, sqlite3_errmsg(state->db), err);
    case SQLITE_NOMEM:
        return ddpi_error_set(err, DDP_E_NOMEM, "out of memory for the state %s", state->path);
    case SQLITE_FULL:
        return ddpi_error_set(err, DDP_E_SYSTEM,
                              "the state %s cannot be written: the disk is full, or a limit on the "
                              "size of files is reached; make room and start again",
                              state->path);
    default:
        return ddpi_error_set(err, DDP_E_SYSTEM, "the state %s: %s (%s)", state->path,
                              sqlite3_errmsg(state->db),
                              strerrordesc_np(sqlite3_system_errno(state->db)));
    }
}

static void bind_bytes(sqlite3_stmt *statement, enum parameter parameter, struct ddpi_bytes bytes)
{
    (void)sqlite3_bind_blob64(statement, parameter, bytes.len > 0 ? bytes.data : "", bytes.len,
                              SQLITE_STATIC);
}

/* Bind all parameters; binding one that @statement does not have fails harmlessly. */
static void bind_all(sqlite3_stmt *statement, const struct ddpi_mutation *mutation)
{
    bool set = mutation->kind == DDPI_MUTATION_SET;
    bind_bytes(statement, KEY, mutation->key);
    bind_bytes(statement, VALUE, mutation->value);
    (void)sqlite3_bind_int64(statement, VERSION, (int64_t)mutation->version);
    (void)sqlite3_bind_int64(statement, SESSION, (int64_t)mutation->session);
    (void)sqlite3_bind_int64(statement, LEASE, mutation->lease_ms);
    (void)sqlite3_bind_int64(statement, KIND,
                             set ? DDPI_MUTATION_PAST_SET : DDPI_MUTATION_PAST_DELETE);
    (void)sqlite3_bind_int64(statement, NUMBER, (int64_t)mutation->number);
}

/* A statement that returns no rows. */
static ddp_status run_statement(struct ddpi_sqlite_sink *state, enum statement which,
                                const struct ddpi_mutation *mutation, struct ddp_error *err)
{
    sqlite3_stmt *statement = state->statements[which];
    if (mutation != NULL)
        bind_all(statement, mutation);
    int code = sqlite3_step(statement);
    ddp_status status = code == SQLITE_DONE ? DDP_OK : explain_sqlite(state, code, err);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return status;
}

/* ---- changes ---- */

static ddp_status injected(const char *what, int sys_errno, struct ddp_error *err)
{
    return sys_errno != 0 ? ddpi_error_sys(err, sys_errno, "%s", what) : DDP_OK;
}

static ddp_status keep_change(struct ddpi_sqlite_sink *state, const struct ddpi_mutation *mutation,
                              struct ddp_error *err)
{
    static const enum statement statements[] = {
        [DDPI_MUTATION_SET] = STATEMENT_SET,
        [DDPI_MUTATION_DELETE] = STATEMENT_DELETE,
        [DDPI_MUTATION_PUSH] = STATEMENT_PUSH,
        [DDPI_MUTATION_POP] = STATEMENT_POP,
        [DDPI_MUTATION_SESSION_OPEN] = STATEMENT_SESSION_OPEN,
        [DDPI_MUTATION_SESSION_END] = STATEMENT_SESSION_END,
        [DDPI_MUTATION_DETACH] = STATEMENT_DETACH,
        [DDPI_MUTATION_DETACHED_END] = STATEMENT_DETACHED_END,
    };
    ddp_status status = DDP_OK;
    if (!state->changing) {
        status = injected("the state", DDPI_FAILPOINT("state.begin"), err);
        if (status == DDP_OK)
            status = run_statement(state, STATEMENT_BEGIN, NULL, err);
        state->changing = status == DDP_OK;
    }
    if (status == DDP_OK)
        status = injected("the state", DDPI_FAILPOINT("state.change"), err);
    if (status == DDP_OK && mutation->kind != DDPI_MUTATION_REMEMBER) /* the mark stores it */
        status = run_statement(state, statements[mutation->kind], mutation, err);
    if (status == DDP_OK && mutation->remembered)
        status = run_statement(state, STATEMENT_REMEMBER, mutation, err);
    return status;
}

static void on_change(void *ctx, const struct ddpi_mutation *mutation)
{
    struct ddpi_sqlite_sink *state = ctx;
    if (state->failure.status == DDP_OK)
        (void)keep_change(state, mutation, &state->failure);
}

static ddp_status finish_transaction(struct ddpi_sqlite_sink *state, const struct ddpi_mark *mark,
                                     struct ddp_error *err)
{
    if (state->failure.status != DDP_OK) {
        *err = state->failure;
        return err->status;
    }
    const struct ddpi_mutation version = {.version = mark->version};
    const struct ddpi_mutation floor = {.version = mark->floor};
    const struct ddpi_mutation history = {.version = mark->remembers ? mark->floor + 1 : 0};
    ddp_status status = run_statement(state, STATEMENT_MARK, &version, err);
    if (status == DDP_OK)
        status = run_statement(state, STATEMENT_HISTORY, &history, err);
    if (status == DDP_OK)
        status = run_statement(state, STATEMENT_FORGET, &floor, err);
    if (status == DDP_OK)
        status = injected("the state", DDPI_FAILPOINT("state.commit"), err);
    if (status == DDP_OK)
        status = run_statement(state, STATEMENT_COMMIT, NULL, err);
    (void)DDPI_FAILPOINT("state.committed");
    return status;
}

static void on_commit(void *ctx, const struct ddpi_mark *mark, struct ddpi_committed done)
{
    struct ddpi_sqlite_sink *state = ctx;
    struct ddp_error why = {0};
    ddp_status status = DDP_OK;
    if (state->changing || state->failure.status != DDP_OK)
        status = finish_transaction(state, mark, &why);
    if (status != DDP_OK && state->changing && sqlite3_get_autocommit(state->db) == 0)
        (void)run_statement(state, STATEMENT_ROLLBACK, NULL, NULL);
    state->changing = false;
    done.call(done.ctx, status != DDP_OK ? &why : NULL);
}

struct ddpi_sink ddpi_sqlite_sink_hooks(struct ddpi_sqlite_sink *state)
{
    return (struct ddpi_sink){.ctx = state, .change = on_change, .commit = on_commit};
}

/* ---- loading ---- */

static struct ddpi_bytes column_bytes(sqlite3_stmt *statement, enum parameter parameter)
{
    int column = (int)parameter - 1;
    const void *data = sqlite3_column_blob(statement, column);
    return ddpi_bytes_of(data, (size_t)sqlite3_column_bytes(statement, column));
}

static int64_t column_number(sqlite3_stmt *statement, enum parameter parameter)
{
    return sqlite3_column_int64(statement, (int)parameter - 1);
}

struct loading {
    ddp_status (*take)(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err);
    void *ctx;
};

static ddp_status take_row(sqlite3_stmt *statement, enum ddpi_mutation_kind kind,
                           const struct loading *loading, struct ddp_error *err)
{
    int64_t stored_kind = column_number(statement, KIND);
    bool past = kind == DDPI_MUTATION_PAST_SET;
    if (past && stored_kind != DDPI_MUTATION_PAST_SET && stored_kind != DDPI_MUTATION_PAST_DELETE)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a change of the unknown kind %" PRId64,
                              stored_kind);
    struct ddpi_mutation mutation = {.kind = past ? (enum ddpi_mutation_kind)stored_kind : kind,
                                     .key = column_bytes(statement, KEY),
                                     .value = column_bytes(statement, VALUE),
                                     .version = (uint64_t)column_number(statement, VERSION),
                                     .session = (uint64_t)column_number(statement, SESSION),
                                     .number = (uint64_t)column_number(statement, NUMBER),
                                     .lease_ms = (uint32_t)column_number(statement, LEASE)};
    return loading->take(loading->ctx, &mutation, err);
}

static ddp_status load_rows(struct ddpi_sqlite_sink *state, enum statement which,
                            enum ddpi_mutation_kind kind, const struct loading *loading,
                            struct ddp_error *err)
{
    sqlite3_stmt *statement = state->statements[which];
    ddp_status status = DDP_OK;
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW && status == DDP_OK)
        status = take_row(statement, kind, loading, err);
    if (status == DDP_OK && code != SQLITE_DONE)
        status = explain_sqlite(state, code, err);
    else if (status != DDP_OK)
        status = ddpi_error_wrap(err, status, "the state %s", state->path);
    sqlite3_reset(statement);
    return status;
}

static ddp_status load_meta(struct ddpi_sqlite_sink *state, const char *name, uint64_t *ret_number,
                            struct ddp_error *err)
{
    sqlite3_stmt *statement = state->statements[STATEMENT_LOAD_META];
    (void)sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    int code = sqlite3_step(statement);
    ddp_status status = DDP_OK;
    if (code == SQLITE_ROW)
        *ret_number = (uint64_t)sqlite3_column_int64(statement, 0);
    else if (code == SQLITE_DONE)
        status = ddpi_error_set(err, DDP_E_PROTOCOL, "the state %s has no %s: it is damaged",
                                state->path, name);
    else
        status = explain_sqlite(state, code, err);
    sqlite3_reset(statement);
    return status;
}

ddp_status ddpi_sqlite_sink_load(struct ddpi_sqlite_sink *state,
                                 ddp_status (*take)(void *ctx, const struct ddpi_mutation *mutation,
                                                    struct ddp_error *err),
                                 void *ctx, struct ddpi_mark *ret_mark, struct ddp_error *err)
{
    static const struct {
        enum statement statement;
        enum ddpi_mutation_kind kind;
    } parts[] = {{STATEMENT_LOAD_SESSIONS, DDPI_MUTATION_SESSION_OPEN},
                 {STATEMENT_LOAD_KEYS, DDPI_MUTATION_SET},
                 {STATEMENT_LOAD_DETACHED, DDPI_MUTATION_DETACH},
                 {STATEMENT_LOAD_QUEUED, DDPI_MUTATION_PUSH},
                 {STATEMENT_LOAD_CHANGES, DDPI_MUTATION_PAST_SET}};
    const struct loading loading = {.take = take, .ctx = ctx};
    struct ddpi_mark mark = {0};
    uint64_t history = 0;
    ddp_status status = injected(state->path, DDPI_FAILPOINT("state.load"), err);
    for (size_t i = 0; status == DDP_OK && i < sizeof parts / sizeof *parts; i++)
        status = load_rows(state, parts[i].statement, parts[i].kind, &loading, err);
    if (status == DDP_OK)
        status = load_meta(state, "version", &mark.version, err);
    if (status == DDP_OK)
        status = load_meta(state, "incarnation", &mark.incarnation, err);
    if (status == DDP_OK)
        status = load_meta(state, "history", &history, err);
    if (status != DDP_OK)
        return status;
    mark.remembers = history > 0;
    mark.floor = history > 0 ? history - 1 : 0;
    *ret_mark = mark;
    return DDP_OK;
}

/* ---- opening ---- */

static const char schema_text[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE meta (name TEXT PRIMARY KEY, number INTEGER NOT NULL);"
    "CREATE TABLE sessions"
    " (number INTEGER PRIMARY KEY, token BLOB NOT NULL, lease_ms INTEGER NOT NULL);"
    "CREATE TABLE keys (key BLOB NOT NULL UNIQUE, value BLOB NOT NULL,"
    " version INTEGER NOT NULL, session INTEGER);"
    "CREATE TABLE queued"
    " (id INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL);"
    "CREATE INDEX queued_by_key ON queued (key, id);"
    /* Prefixes whose keys up to this version, and values of queues up to this id, are gone, though
     * they may still be there. */
    "CREATE TABLE detached (number INTEGER PRIMARY KEY, prefix BLOB NOT NULL,"
    " version INTEGER NOT NULL, queued INTEGER NOT NULL);"
    "CREATE TABLE changes (version INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
    " key BLOB NOT NULL, value BLOB NOT NULL);"
    "INSERT INTO meta VALUES ('version', 0);"
    "INSERT INTO meta VALUES ('history', 0);" /* the floor of the history plus 1; 0: no history */
    "INSERT INTO meta VALUES ('incarnation', %" PRId64 ");"
    "PRAGMA application_id = %d;"
    "PRAGMA user_version = %d;"
    "COMMIT;";

/* SQLite itself would create the file with the permissions that the umask leaves. */
static ddp_status make_file(struct ddpi_sqlite_sink *state, struct ddp_error *err)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(state->path, flags | O_CREAT | O_EXCL, 0600);
    state->was_there = fd < 0 && errno == EEXIST;
    if (state->was_there)
        fd = open(state->path, flags);
    if (fd < 0)
        return ddpi_error_sys(err, errno, "cannot open the state %s", state->path);
    struct stat kind;
    bool regular = fstat(fd, &kind) == 0 && S_ISREG(kind.st_mode);
    close(fd);
    if (!regular)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the state %s is not a regular file; name another", state->path);
    state->old_size = kind.st_size;
    return DDP_OK;
}

static ddp_status execute(struct ddpi_sqlite_sink *state, const char *text, struct ddp_error *err)
{
    int code = sqlite3_exec(state->db, text, NULL, NULL, NULL);
    return code == SQLITE_OK ? DDP_OK : explain_sqlite(state, code, err);
}

static ddp_status read_pragma(struct ddpi_sqlite_sink *state, const char *text, int *ret_number,
                              struct ddp_error *err)
{
    sqlite3_stmt *statement;
    int code = sqlite3_prepare_v2(state->db, text, -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        *ret_number = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return code == SQLITE_ROW ? DDP_OK : explain_sqlite(state, code, err);
}

/* A file without pages is fresh: an empty one, or one that was killed while it was made, whose
 * journal has taken all back. Any other must carry our application id and version. */
static ddp_status check_kind(struct ddpi_sqlite_sink *state, bool *ret_fresh, struct ddp_error *err)
{
    int application = 0, version = 0, pages = 0;
    ddp_status status = read_pragma(state, "PRAGMA application_id", &application, err);
    if (status == DDP_OK)
        status = read_pragma(state, "PRAGMA user_version", &version, err);
    if (status == DDP_OK)
        status = read_pragma(state, "PRAGMA page_count", &pages, err);
    *ret_fresh = pages == 0 && application == 0;
    if (status == DDP_OK && *ret_fresh && state->old_size == 1) /* for SQLite one byte is none */
        return refuse_damaged(state, "it has a single byte", err);
    if (status != DDP_OK || *ret_fresh)
        return status;
    if (application != APPLICATION_ID)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "%s is an SQLite file, but no state of a ddprun store; name another "
                              "file",
                              state->path);
    if (version != SCHEMA)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the state %s has the format %d, and this program knows %d; use the "
                              "version of the program that wrote it",
                              state->path, version, SCHEMA);
    return DDP_OK;
}

static ddp_status make_schema(struct ddpi_sqlite_sink *state, struct ddp_error *err)
{
    char text[sizeof schema_text + 64];
    int64_t incarnation;
    if (getrandom(&incarnation, sizeof incarnation, 0) != (ssize_t)sizeof incarnation)
        return ddpi_error_sys(err, errno, "cannot get random bytes");
    snprintf(text, sizeof text, schema_text, incarnation, APPLICATION_ID, SCHEMA);
    return execute(state, text, err);
}

static ddp_status prepare_statements(struct ddpi_sqlite_sink *state, struct ddp_error *err)
{
    for (size_t i = 0; i < STATEMENT_COUNT; i++) {
        int code = sqlite3_prepare_v3(state->db, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                      &state->statements[i], NULL);
        if (code != SQLITE_OK)
            return explain_sqlite(state, code, err);
    }
    return DDP_OK;
}

static ddp_status open_database(struct ddpi_sqlite_sink *state, struct ddp_error *err)
{
    int code =
        sqlite3_open_v2(state->path, &state->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return explain_sqlite(state, code, err);
    bool fresh = false;
    ddp_status status = execute(state, "PRAGMA locking_mode = EXCLUSIVE", err);
    if (status == DDP_OK)
        status = check_kind(state, &fresh, err);
    if (status == DDP_OK && fresh) /* first, as WAL writes a page, with which it is not fresh */
        status = make_schema(state, err);
    if (status == DDP_OK)
        status = execute(state, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;", err);
    if (status == DDP_OK) /* queues have no versions, so the core cannot do this */
        status = execute(state,
                         "DELETE FROM queued WHERE EXISTS (SELECT 1 FROM detached WHERE"
                         " id <= queued AND substr(key, 1, length(prefix)) = prefix)",
                         err);
    if (status == DDP_OK)
        status = prepare_statements(state, err);
    return status;
}

ddp_status ddpi_sqlite_sink_open(const char *path, struct ddpi_sqlite_sink **ret,
                                 struct ddp_error *err)
{
    struct ddpi_sqlite_sink *state = ddpi_calloc(1, sizeof(*state));
    if (state == NULL)
        return ddpi_error_nomem(err, sizeof(*state));
    state->path = ddpi_strdup(path);
    ddp_status status = state->path != NULL ? make_file(state, err) : ddpi_error_nomem(err, 1);
    if (status == DDP_OK)
        status = open_database(state, err);
    if (status != DDP_OK) {
        ddpi_sqlite_sink_close(state);
        return status;
    }
    *ret = state;
    return DDP_OK;
}

bool ddpi_sqlite_sink_was_emptied(const struct ddpi_sqlite_sink *state)
{
    return state->was_there && state->old_size == 0;
}

void ddpi_sqlite_sink_close(struct ddpi_sqlite_sink *state)
{
    if (state == NULL)
        return;
    for (size_t i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(state->statements[i]);
    sqlite3_close(state->db);
    ddpi_free(state->path);
    ddpi_free(state);
}
