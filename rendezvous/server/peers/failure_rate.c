/*
 * failure_rate.c - token buckets by address. Owns at most DDPI_FAILURE_RATE_ADDRESSES of them; an
 * address without one has a full bucket.
 */
#include "failure_rate.h"

#include "mem.h"

enum { TOKEN = 1000 }; /* units of a token: each millisecond adds `per_second` of them */

struct bucket {
    struct ddpi_table_node node;
    struct ddpi_list of_order;
    struct ddpi_address address;
    uint64_t missing; /* at @since_ms, in thousandths of a token */
    uint64_t since_ms;
};

void ddpi_failure_rate_init(struct ddpi_failure_rate *rate, uint32_t per_second, uint32_t burst,
                            const uint8_t seed[DDPI_SEED_SIZE])
{
    rate->per_second = per_second;
    rate->burst = burst;
    ddpi_table_init(&rate->table, seed);
    ddpi_list_init(&rate->order);
}

static void bucket_destroy(struct ddpi_failure_rate *rate, struct bucket *bucket)
{
    ddpi_table_remove(&rate->table, &bucket->node);
    ddpi_list_remove(&bucket->of_order);
    ddpi_free(bucket);
}

void ddpi_failure_rate_finish(struct ddpi_failure_rate *rate)
{
    ddpi_list_for_each_safe (node, &rate->order)
        bucket_destroy(rate, ddpi_container_of(node, struct bucket, of_order));
    ddpi_table_finish(&rate->table);
}

static struct bucket *bucket_find(const struct ddpi_failure_rate *rate,
                                  const struct ddpi_address *address)
{
    struct ddpi_table_node *node = ddpi_table_find(&rate->table, address, sizeof *address);
    return node != NULL ? ddpi_container_of(node, struct bucket, node) : NULL;
}

static uint64_t missing_now(const struct ddpi_failure_rate *rate, const struct bucket *bucket,
                            uint64_t now_ms)
{
    uint64_t gained;
    if (__builtin_mul_overflow(now_ms - bucket->since_ms, (uint64_t)rate->per_second, &gained))
        return 0;
    return bucket->missing > gained ? bucket->missing - gained : 0;
}

static bool has_token(const struct ddpi_failure_rate *rate, uint64_t missing)
{
    return missing + TOKEN <= (uint64_t)rate->burst * TOKEN;
}

bool ddpi_failure_rate_permits(const struct ddpi_failure_rate *rate,
                               const struct ddpi_address *address, uint64_t now_ms)
{
    const struct bucket *bucket = bucket_find(rate, address);
    return bucket == NULL || has_token(rate, missing_now(rate, bucket, now_ms));
}

static struct bucket *bucket_create(struct ddpi_failure_rate *rate,
                                    const struct ddpi_address *address)
{
    if (rate->table.count >= DDPI_FAILURE_RATE_ADDRESSES)
        bucket_destroy(rate, ddpi_container_of(rate->order.next, struct bucket, of_order));
    struct bucket *bucket = ddpi_calloc(1, sizeof *bucket);
    if (bucket == NULL)
        return NULL;
    bucket->address = *address;
    bucket->node.key = &bucket->address;
    bucket->node.key_len = sizeof bucket->address;
    ddpi_list_init(&bucket->of_order);
    if (!ddpi_table_insert(&rate->table, &bucket->node)) {
        ddpi_free(bucket);
        return NULL;
    }
    return bucket;
}

void ddpi_failure_rate_charge(struct ddpi_failure_rate *rate, const struct ddpi_address *address,
                              uint64_t now_ms)
{
    struct bucket *bucket = bucket_find(rate, address);
    if (bucket == NULL)
        bucket = bucket_create(rate, address);
    if (bucket == NULL)
        return;
    bucket->missing = missing_now(rate, bucket, now_ms);
    bucket->since_ms = now_ms;
    if (has_token(rate, bucket->missing))
        bucket->missing += TOKEN;
    ddpi_list_remove(&bucket->of_order);
    ddpi_list_append(&rate->order, &bucket->of_order);
}
