/*
 * round_record.c - fuzzes rendezvous/wire/round_record.h: the input as each kind of record. What is
 * taken, written down again, is taken as the same.
 */
#include "round_record.h"

#include "fuzz.h"

#include <string.h>

#define ROUND_TRIP(kind, type)                                                                     \
    static void kind##_round_trip(struct ddpi_bytes record)                                        \
    {                                                                                              \
        type first, second;                                                                        \
        struct ddp_error err;                                                                      \
        struct ddpi_buf written, again;                                                            \
        ddp_status status = ddpi_round_##kind##_get(record, &first, &err);                         \
        if (status != DDP_OK) {                                                                    \
            HOLDS(status == DDP_E_PROTOCOL);                                                       \
            fuzz_check_error(&err, status);                                                        \
            return;                                                                                \
        }                                                                                          \
        ddpi_buf_init(&written, DDPI_ROUND_RECORD_MAX);                                            \
        ddpi_buf_init(&again, DDPI_ROUND_RECORD_MAX);                                              \
        HOLDS(ddpi_round_##kind##_put(&written, &first, NULL) == DDP_OK);                          \
        record = ddpi_bytes_of(ddpi_buf_head(&written), ddpi_buf_len(&written));                   \
        HOLDS(ddpi_round_##kind##_get(record, &second, NULL) == DDP_OK);                           \
        HOLDS(ddpi_round_##kind##_put(&again, &second, NULL) == DDP_OK);                           \
        HOLDS(                                                                                     \
            ddpi_bytes_equal(record, ddpi_bytes_of(ddpi_buf_head(&again), ddpi_buf_len(&again)))); \
        ddpi_buf_finish(&written);                                                                 \
        ddpi_buf_finish(&again);                                                                   \
    }

ROUND_TRIP(member, struct ddp_round_member)
ROUND_TRIP(seat, struct ddp_round_seat)
ROUND_TRIP(summary, struct ddpi_rounds_summary)
ROUND_TRIP(blame, struct ddpi_rounds_blame)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    member_round_trip(ddpi_bytes_of(data, size));
    seat_round_trip(ddpi_bytes_of(data, size));
    summary_round_trip(ddpi_bytes_of(data, size));
    blame_round_trip(ddpi_bytes_of(data, size));
    return 0;
}
