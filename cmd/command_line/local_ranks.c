/*
 * local_ranks.c - reads lists of local ranks. Pure; owns nothing.
 */
#include "local_ranks.h"

#include "error.h"
#include "parse.h"

#include <stdio.h>
#include <string.h>

static ddp_status parse_bits(const char *text, size_t len, uint8_t *ret_bits, struct ddp_error *err)
{
    if (len != 1 || *text < '0' || *text > '3')
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%.*s' is not 0 (none), 1 (stdout), 2 (stderr) or 3 (both)",
                              (int)len, text);
    *ret_bits = (uint8_t)(*text - '0');
    return DDP_OK;
}

static ddp_status parse_local_rank(const char *text, size_t len, uint32_t nproc, uint32_t *ret_rank,
                                   struct ddp_error *err)
{
    char number[24];
    int64_t rank;
    snprintf(number, sizeof number, "%.*s", len < sizeof number ? (int)len : 23, text);
    if (ddpi_parse_int(number, 0, (int64_t)nproc - 1, &rank, NULL) != DDP_OK)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%.*s' is not a local rank; these go from 0 to %u here, one less "
                              "than the number of workers",
                              (int)len, text, nproc - 1);
    *ret_rank = (uint32_t)rank;
    return DDP_OK;
}

ddp_status local_ranks_parse_streams(const char *text, uint32_t nproc, uint8_t *ret_bits,
                                     struct ddp_error *err)
{
    uint8_t bits = 0;
    if (strchr(text, ':') == NULL) {
        ddp_status status = parse_bits(text, strlen(text), &bits, err);
        if (status == DDP_OK)
            memset(ret_bits, bits, nproc);
        return status;
    }
    memset(ret_bits, 0, nproc);
    const char *item;
    size_t len;
    for (const char *cursor = text; ddpi_parse_list_next(&cursor, ',', &item, &len);) {
        const char *colon = memchr(item, ':', len);
        uint32_t rank;
        if (colon == NULL)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "'%.*s' is not LOCAL_RANK:STREAMS, such as 0:3", (int)len, item);
        size_t rank_len = (size_t)(colon - item);
        ddp_status status = parse_local_rank(item, rank_len, nproc, &rank, err);
        if (status == DDP_OK)
            status = parse_bits(colon + 1, len - rank_len - 1, &bits, err);
        if (status != DDP_OK)
            return status;
        ret_bits[rank] = bits;
    }
    return DDP_OK;
}

ddp_status local_ranks_parse_filter(const char *text, uint32_t nproc, bool *ret_hidden,
                                    struct ddp_error *err)
{
    memset(ret_hidden, text != NULL && *text != '\0', nproc);
    const char *item;
    size_t len;
    for (const char *cursor = text; ddpi_parse_list_next(&cursor, ',', &item, &len);) {
        uint32_t rank;
        if (len == 0)
            continue;
        ddp_status status = parse_local_rank(item, len, nproc, &rank, err);
        if (status != DDP_OK)
            return status;
        ret_hidden[rank] = false;
    }
    return DDP_OK;
}
