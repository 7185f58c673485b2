/*
 * permissions.c - applies the roles of proto.def to requests. Owns nothing.
 */
#include "permissions.h"

#include "error.h"
#include "round_names.h"

#include <inttypes.h>
#include <stdio.h>

/* The lowest role that may ask for each operation. */
static const enum ddpi_role least_roles[] = {
#define DDPI_MESSAGE(symbol, type, name, role, request, reply) DDPI_ROLE_##role,
#include "proto.def"
#undef DDPI_MESSAGE
};

static bool has_prefix(struct ddpi_bytes key, const char *prefix)
{
    size_t len = strlen(prefix);
    return key.len >= len && memcmp(key.data, prefix, len) == 0;
}

/* The first key that @request would change and that begins with @prefix (@inside), or does not;
 * false: there is none. */
static bool find_changed(const struct ddpi_message *request, const char *prefix, bool inside,
                         struct ddpi_bytes *ret_key)
{
    struct ddpi_clauses clauses = request->clauses;
    switch (request->op) {
    case DDPI_OP_SET:
    case DDPI_OP_ADD:
    case DDPI_OP_CAS:
    case DDPI_OP_DELETE:
    case DDPI_OP_SET_EPHEMERAL:
        *ret_key = request->key;
        return has_prefix(request->key, prefix) == inside;
    case DDPI_OP_TRANSACT:
        for (struct ddpi_clause clause; ddpi_clauses_next(&clauses, &clause);)
            if (clause.kind >= DDPI_THEN_SET && has_prefix(clause.key, prefix) == inside) {
                *ret_key = clause.key;
                return true;
            }
        return false;
    default:
        return false;
    }
}

/* A worker of a generation does not write keys that workers of another generation read. */
static ddp_status check_generation(const struct ddpi_identity *identity,
                                   const struct ddpi_message *request, struct ddp_error *err)
{
    char prefix[24];
    struct ddpi_bytes key;
    snprintf(prefix, sizeof prefix, "g%" PRIu64 "/", identity->epoch);
    if (identity->role != DDPI_ROLE_WORKER || identity->epoch == 0 ||
        !find_changed(request, prefix, false, &key))
        return DDP_OK;
    return ddpi_error_set(
        err, DDP_E_DENIED,
        "a worker of epoch %" PRIu64 " may change the keys of its generation, which "
        "begin with '%s', and not '%.*s'",
        identity->epoch, prefix, (int)(key.len < 80 ? key.len : 80), (const char *)key.data);
}

ddp_status ddpi_role_permits(const struct ddpi_identity *identity,
                             const struct ddpi_message *request, struct ddp_error *err)
{
    if (request->op == DDPI_OP_KEEPER_STATUS &&
        (identity->role != DDPI_ROLE_KEEPER || !identity->proven))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "only a keeper that has proven the token may ask for '%s'",
                              ddpi_op_name(request->op));
    if (identity->role == DDPI_ROLE_AGENT)
        return DDP_OK;
    enum ddpi_role least =
        request->op < DDPI_OP_NATIVE_COUNT ? least_roles[request->op] : DDPI_ROLE_AGENT;
    if (identity->role > least)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the role '%s' may not ask for '%s': that takes %s",
                              ddpi_role_name(identity->role), ddpi_op_name(request->op),
                              least == DDPI_ROLE_AGENT ? "an agent" : "a worker or an agent");
    struct ddpi_bytes key;
    if (identity->job[0] == '\0' && find_changed(request, DDPI_ROUND_PREFIX, true, &key))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the role '%s' may not change keys that begin with '%s': that takes "
                              "an agent",
                              ddpi_role_name(identity->role), DDPI_ROUND_PREFIX);
    return check_generation(identity, request, err);
}
