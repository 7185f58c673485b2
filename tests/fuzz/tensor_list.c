/*
 * tensor_list.c - fuzzes the lists of named tensors that ranks send each other, and what is made of
 * them. The input: how many ranks there are, then for each list its rank, its length, its bytes.
 * What can be read encodes to the same bytes; every tensor that becomes ready was wanted, and
 * nothing is lost or freed twice.
 */
#include "mem.h"
#include "negotiation.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 5 };

static void read_requests(const uint8_t *list, size_t len)
{
    struct ddpi_rd rd = ddpi_rd_of(list, len);
    struct ddpi_tensor_request request;
    size_t before = rd.left;
    while (rd.left > 0 && ddpi_tensor_request_read(&rd, &request)) {
        struct ddpi_buf again;
        char a[DDPI_TENSOR_VALUE], b[DDPI_TENSOR_VALUE];
        ddpi_buf_init(&again, DDPI_TENSOR_LIST_LIMIT);
        HOLDS(ddpi_tensor_request_put(&again, &request));
        HOLDS(ddpi_buf_len(&again) == before - rd.left);
        HOLDS(memcmp(ddpi_buf_head(&again), list + (len - before), before - rd.left) == 0);
        HOLDS(ddpi_tensor_difference(&request, &request, a, b) == NULL);
        HOLDS(ddpi_tensor_name_valid(request.name));
        ddpi_buf_finish(&again);
        before = rd.left;
    }
}

/* Returns how many became ready. */
static size_t take_ready(struct ddpi_negotiation *negotiation)
{
    size_t count = 0;
    for (struct ddpi_wanted_tensor *wanted; (wanted = ddpi_negotiation_next(negotiation)) != NULL;
         count++) {
        const struct ddpi_tensor_response *response = &wanted->response;
        HOLDS(wanted->ncome > 0 && wanted->ncome <= negotiation->world_size);
        HOLDS(ddpi_tensor_name_valid(response->request.name));
        if (response->failed)
            fuzz_check_error(&response->reason, DDP_E_MISMATCH);
        ddpi_free(wanted);
    }
    return count;
}

static void check_missing(const struct ddpi_negotiation *negotiation)
{
    ddpi_list_for_each (link, &negotiation->wanted) {
        char text[DDPI_RANKS_TEXT];
        ddpi_negotiation_missing(negotiation,
                                 ddpi_container_of(link, struct ddpi_wanted_tensor, link), text);
        HOLDS(strnlen(text, sizeof text) < sizeof text);
    }
}

static void negotiate(struct ddpi_negotiation *negotiation, const uint8_t *data, size_t size)
{
    struct ddp_error err;
    size_t wanted = 0, ready = 0;
    for (uint64_t now_ms = 0; size >= 3; now_ms++) {
        uint32_t rank = data[0] % negotiation->world_size;
        size_t len = ((size_t)data[1] | (size_t)data[2] << 8);
        data += 3;
        size -= 3;
        len = len < size ? len : size;
        uint8_t *list = fuzz_copy(data, len);
        read_requests(list, len);
        ddp_status status = ddpi_negotiation_take(negotiation, rank, list, len, now_ms, &err);
        free(list);
        if (status != DDP_OK) {
            fuzz_check_error(&err, DDP_E_PROTOCOL);
            return;
        }
        ddpi_negotiation_settle(negotiation);
        wanted += len;
        ready += take_ready(negotiation);
        HOLDS(ready <= wanted);
        check_missing(negotiation);
        data += len;
        size -= len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct ddpi_negotiation negotiation;
    struct ddp_error err;
    uint8_t even[MOST_RANKS] = {1, 0, 1, 0, 1};
    HOLDS(ddpi_negotiation_init(&negotiation, data[0] % MOST_RANKS + 1U, &err) == DDP_OK);
    HOLDS(ddpi_negotiation_add_set(&negotiation, even, &err) == DDP_OK);
    negotiate(&negotiation, data + 1, size - 1);
    ddpi_negotiation_finish(&negotiation);
    return 0;
}
