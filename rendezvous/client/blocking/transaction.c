/*
 * transaction.c - the blocking client's transactions, and compare-and-swap by value, which is one.
 */
#include "blocking_call.h"

ddp_status ddp_store_transact(ddp_store *store, const struct ddp_store_clause *clauses,
                              size_t count, uint32_t timeout_ms, uint64_t *ret_version,
                              struct ddp_error *err)
{
    struct ddpi_buf packed;
    ddp_status status =
        ddpi_target_pack_clauses(&store->target, &store->limits, clauses, count, &packed, err);
    if (status == DDP_OK) {
        struct call call = {
            CALL_MESSAGE(.op = DDPI_OP_TRANSACT, .clauses = {.packed = ddpi_buf_head(&packed),
                                                             .packed_len = ddpi_buf_len(&packed),
                                                             .count = (uint32_t)count})};
        status = ddpi_store_run(store, &call, timeout_ms, err);
        if ((status == DDP_OK || status == DDP_E_CONFLICT) && ret_version != NULL)
            *ret_version = call.version;
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
