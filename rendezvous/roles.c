/*
 * roles.c - the table of roles is proto.def's; here it is applied.
 */
#include "roles.h"

#include "error.h"

#include <stdio.h>

static const struct {
    enum ddpi_role role;
    unsigned fields;
} rows[] = {
#define DDPI_MESSAGE(symbol, type, name, role, request, reply) {DDPI_ROLE_##role, request},
#include "proto.def"
#undef DDPI_MESSAGE
};

struct scope {
    char prefix[sizeof "job//" + DDPI_JOB_MAX];
    size_t len;
};

static bool within(const struct scope *scope, struct ddpi_bytes key)
{
    return key.len >= scope->len && memcmp(key.data, scope->prefix, scope->len) == 0;
}

static bool all_within(const struct scope *scope, const struct ddpi_message *request,
                       unsigned fields)
{
    struct ddpi_keys keys = request->keys;
    struct ddpi_clauses clauses = request->clauses;
    struct ddpi_bytes key;
    struct ddpi_clause clause;
    bool good = !(fields & DDPI_KEY) || within(scope, request->key);
    while ((fields & DDPI_KEYS) && good && ddpi_keys_next(&keys, &key))
        good = within(scope, key);
    while ((fields & DDPI_CLAUSES) && good && ddpi_clauses_next(&clauses, &clause))
        good = within(scope, clause.key);
    return good;
}

ddp_status ddpi_role_permits(const struct ddpi_identity *identity,
                             const struct ddpi_message *request, struct ddp_error *err)
{
    if (identity->role == DDPI_ROLE_AGENT)
        return DDP_OK;
    enum ddpi_role least =
        request->op < DDPI_OP_NATIVE_COUNT ? rows[request->op].role : DDPI_ROLE_AGENT;
    if (identity->role > least)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the role '%s' may not ask for '%s': that takes %s",
                              ddpi_role_name(identity->role), ddpi_op_name(request->op),
                              least == DDPI_ROLE_AGENT ? "an agent" : "a worker or an agent");
    if (identity->job[0] == '\0')
        return DDP_OK;
    struct scope scope;
    scope.len = (size_t)snprintf(scope.prefix, sizeof scope.prefix, "job/%s/", identity->job);
    if (!all_within(&scope, request, rows[request->op].fields))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "this %s belongs to the job '%s', whose keys begin with '%s'; %s "
                              "names another",
                              ddpi_role_name(identity->role), identity->job, scope.prefix,
                              ddpi_op_name(request->op));
    return DDP_OK;
}
