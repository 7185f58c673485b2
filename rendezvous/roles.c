/*
 * roles.c - the table of roles is proto.def's; here it is applied.
 */
#include "roles.h"

#include "error.h"
#include "round_keys.h"

/* The role that an operation takes at least. */
static const enum ddpi_role least_roles[] = {
#define DDPI_MESSAGE(symbol, type, name, role, request, reply) DDPI_ROLE_##role,
#include "proto.def"
#undef DDPI_MESSAGE
};

static bool of_rounds(struct ddpi_bytes key)
{
    size_t len = strlen(DDPI_ROUND_PREFIX);
    return key.len >= len && memcmp(key.data, DDPI_ROUND_PREFIX, len) == 0;
}

/* Whether @request, of somebody who sees all keys, would change what rounds are made of. */
static bool changes_rounds(const struct ddpi_message *request)
{
    struct ddpi_clauses clauses = request->clauses;
    switch (request->op) {
    case DDPI_OP_SET:
    case DDPI_OP_ADD:
    case DDPI_OP_CAS:
    case DDPI_OP_DELETE:
    case DDPI_OP_SET_EPHEMERAL:
        return of_rounds(request->key);
    case DDPI_OP_TRANSACT:
        for (struct ddpi_clause clause; ddpi_clauses_next(&clauses, &clause);)
            if (clause.kind >= DDPI_THEN_SET && of_rounds(clause.key))
                return true;
        return false;
    default:
        return false;
    }
}

ddp_status ddpi_role_permits(const struct ddpi_identity *identity,
                             const struct ddpi_message *request, struct ddp_error *err)
{
    if (identity->role == DDPI_ROLE_AGENT)
        return DDP_OK;
    enum ddpi_role least =
        request->op < DDPI_OP_NATIVE_COUNT ? least_roles[request->op] : DDPI_ROLE_AGENT;
    if (identity->role > least)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the role '%s' may not ask for '%s': that takes %s",
                              ddpi_role_name(identity->role), ddpi_op_name(request->op),
                              least == DDPI_ROLE_AGENT ? "an agent" : "a worker or an agent");
    if (identity->job[0] == '\0' && changes_rounds(request))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the role '%s' may not change keys that begin with '%s': that takes "
                              "an agent",
                              ddpi_role_name(identity->role), DDPI_ROUND_PREFIX);
    return DDP_OK;
}
