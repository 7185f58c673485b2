/*
 * roles.c - the table of roles is proto.def's; here it is applied.
 */
#include "roles.h"

#include "error.h"

/* The role that an operation takes at least. */
static const enum ddpi_role least_roles[] = {
#define DDPI_MESSAGE(symbol, type, name, role, request, reply) DDPI_ROLE_##role,
#include "proto.def"
#undef DDPI_MESSAGE
};

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
    return DDP_OK;
}
