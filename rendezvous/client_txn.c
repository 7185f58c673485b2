/*
 * client_txn.c - the blocking client's transactions, and compare-and-swap by value, which is one.
 */
#include "client_impl.h"
#include "error.h"
#include "mem.h"

_Static_assert((int)DDP_STORE_IF_VERSION == (int)DDPI_IF_VERSION &&
                   (int)DDP_STORE_IF_VALUE == (int)DDPI_IF_VALUE &&
                   (int)DDP_STORE_THEN_SET == (int)DDPI_THEN_SET &&
                   (int)DDP_STORE_THEN_DELETE == (int)DDPI_THEN_DELETE,
               "kinds of clauses cross the wire as they are");

static bool has_value(const struct ddp_store_clause *clause)
{
    return clause->kind == DDP_STORE_IF_VALUE || clause->kind == DDP_STORE_THEN_SET;
}

static ddp_status pack_clause(const ddp_store *store, const struct ddp_store_clause *given,
                              struct ddpi_buf *packed, struct ddp_error *err)
{
    if (given->kind < DDP_STORE_IF_VERSION || given->kind > DDP_STORE_THEN_DELETE)
        return ddpi_error_set(err, DDP_E_INVALID, "no clause of a transaction has the kind %d",
                              (int)given->kind);
    struct ddpi_clause clause = {.kind = (uint8_t)given->kind};
    if (given->kind == DDP_STORE_IF_VERSION)
        clause.version = given->version;
    if (has_value(given))
        clause.value = ddpi_bytes_of(given->value, given->value_len);
    ddp_status status = ddpi_client_check_value(store, clause.value.data, clause.value.len, err);
    char *full = NULL;
    if (status == DDP_OK)
        status = ddpi_client_key(store, given->key, &full, &clause.key, err);
    if (status == DDP_OK && !ddpi_clauses_put(packed, &clause))
        status = ddpi_error_nomem(err, clause.key.len + clause.value.len);
    ddpi_free(full);
    return status;
}

static ddp_status check_sizes(const struct ddp_store_clause *clauses, size_t count,
                              struct ddp_error *err)
{
    if (count == 0 || count > DDP_STORE_CLAUSES_MAX || clauses == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a transaction of %zu clauses; 1 to %d are allowed", count,
                              DDP_STORE_CLAUSES_MAX);
    size_t left = DDP_STORE_VALUE_MAX;
    for (size_t i = 0; i < count; i++) {
        if (!has_value(&clauses[i]))
            continue;
        if (clauses[i].value_len > left)
            return ddpi_error_set(err, DDP_E_LIMIT,
                                  "the values of a transaction are more than %d bytes together",
                                  DDP_STORE_VALUE_MAX);
        left -= clauses[i].value_len;
    }
    return DDP_OK;
}

ddp_status ddp_store_transact(ddp_store *store, const struct ddp_store_clause *clauses,
                              size_t count, uint32_t timeout_ms, uint64_t *ret_version,
                              struct ddp_error *err)
{
    ddp_status status = check_sizes(clauses, count, err);
    if (status != DDP_OK)
        return status;
    struct ddpi_buf packed;
    ddpi_buf_init(&packed, ddpi_request_max(DDPI_OP_TRANSACT));
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        status = pack_clause(store, &clauses[i], &packed, err);
    if (status == DDP_OK) {
        struct call call = {.timeout_ms = timeout_ms, .request = {.op = DDPI_OP_TRANSACT}};
        call.request.clauses = (struct ddpi_clauses){.packed = ddpi_buf_head(&packed),
                                                     .packed_len = ddpi_buf_len(&packed),
                                                     .count = (uint32_t)count};
        status = ddpi_client_run(store, &call, err);
        if ((status == DDP_OK || status == DDP_E_CONFLICT) && ret_version != NULL)
            *ret_version = call.reply.version;
    }
    ddpi_buf_finish(&packed);
    return status;
}

ddp_status ddp_store_compare_and_swap_value(ddp_store *store, const char *key, const void *expected,
                                            size_t expected_len, const void *value,
                                            size_t value_len, uint32_t timeout_ms,
                                            uint64_t *ret_version, struct ddp_error *err)
{
    const struct ddp_store_clause clauses[] = {
        {.kind = DDP_STORE_IF_VALUE, .key = key, .value = expected, .value_len = expected_len},
        {.kind = DDP_STORE_THEN_SET, .key = key, .value = value, .value_len = value_len},
    };
    return ddp_store_transact(store, clauses, 2, timeout_ms, ret_version, err);
}
