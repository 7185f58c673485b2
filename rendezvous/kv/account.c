/*
 * account.c - what each job uses: an account for each job, one for keys that belong to no job, and
 * one for the keys and sessions of the rounds. Owns the accounts; the account of a job exists while
 * it holds something. Charging cannot fail: room.c checks the limits before.
 */
#include "kv_impl.h"
#include "mem.h"
#include "proof.h"

static const char job_prefix[] = "job/";

static const char *const reserved_prefixes[] = {"round/", "epoch/"};

bool ddpi_kv_is_reserved(struct ddpi_bytes key)
{
    for (size_t i = 0; i < sizeof reserved_prefixes / sizeof *reserved_prefixes; i++) {
        const char *prefix = reserved_prefixes[i];
        if (ddpi_bytes_has_prefix(key, ddpi_bytes_of(prefix, strlen(prefix))))
            return true;
    }
    return false;
}

/* The job that @key belongs to; empty: none. */
static struct ddpi_bytes job_of(struct ddpi_bytes key)
{
    size_t skip = strlen(job_prefix);
    if (!ddpi_bytes_has_prefix(key, ddpi_bytes_of(job_prefix, skip)))
        return ddpi_bytes_of("", 0);
    const char *name = (const char *)key.data + skip;
    const char *slash = memchr(name, '/', key.len - skip);
    size_t len = slash != NULL ? (size_t)(slash - name) : 0;
    return ddpi_bytes_of(name, len <= DDPI_JOB_MAX ? len : 0);
}

static struct kv_account *account_in(struct ddpi_table_node *node)
{
    return node != NULL ? ddpi_container_of(node, struct kv_account, node) : NULL;
}

static struct kv_account *account_find(struct ddpi_kv *kv, struct ddpi_bytes job)
{
    return job.len == 0 ? kv->jobless
                        : account_in(ddpi_table_find(&kv->accounts, job.data, job.len));
}

/* An account that is in no table. */
static struct kv_account *account_create(struct ddpi_bytes job)
{
    struct kv_account *account = ddpi_calloc(1, sizeof(*account) + job.len);
    if (account == NULL)
        return NULL;
    if (job.len > 0)
        memcpy(account->name, job.data, job.len);
    account->node.key = account->name;
    account->node.key_len = job.len;
    return account;
}

static struct kv_account *account_make(struct ddpi_kv *kv, struct ddpi_bytes job)
{
    struct kv_account *account = account_create(job);
    if (account == NULL || ddpi_table_insert(&kv->accounts, &account->node))
        return account;
    ddpi_free(account);
    return NULL;
}

struct kv_account *ddpi_kv_account_get(struct ddpi_kv *kv, struct ddpi_bytes key)
{
    if (ddpi_kv_is_reserved(key))
        return kv->reserve;
    struct kv_account *account = account_find(kv, job_of(key));
    return account != NULL ? account : account_make(kv, job_of(key));
}

struct kv_account *ddpi_kv_account_for(struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                                       struct ddpi_bytes key)
{
    bool denied = !client->agent && ddpi_kv_is_reserved(key);
    return denied ? kv->jobless : ddpi_kv_account_get(kv, key);
}

/* The heap has the lowest number at its top: that of the account that uses most. */
static void account_rank(struct ddpi_kv *kv, struct kv_account *account)
{
    ddpi_heap_remove(&kv->richest, &account->rank);
    if (account->used[KV_ROOM_BYTES] > 0 && account != kv->reserve)
        (void)ddpi_heap_insert(&kv->richest, &account->rank,
                               UINT64_MAX - account->used[KV_ROOM_BYTES]);
}

void ddpi_kv_charge(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                    size_t amount)
{
    kv->used[room] += amount;
    account->used[room] += amount;
    if (room == KV_ROOM_BYTES && amount > 0)
        account_rank(kv, account);
}

void ddpi_kv_refund(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                    size_t amount)
{
    kv->used[room] -= amount;
    account->used[room] -= amount;
    if (room != KV_ROOM_BYTES || amount == 0)
        return;
    account_rank(kv, account);
    ddpi_kv_account_release(kv, account);
}

void ddpi_kv_account_release(struct ddpi_kv *kv, struct kv_account *account)
{
    if (account == NULL || account->used[KV_ROOM_BYTES] > 0 || account->pins > 0 ||
        account == kv->reserve || account == kv->jobless)
        return;
    ddpi_table_remove(&kv->accounts, &account->node);
    ddpi_free(account);
}

void ddpi_kv_each_job(const struct ddpi_kv *kv,
                      bool (*visit)(void *ctx, const struct ddpi_kv_use *use), void *ctx)
{
    struct ddpi_table_iter iter = {0};
    struct ddpi_table_node *node;
    while ((node = ddpi_table_next(&kv->accounts, &iter)) != NULL) {
        const struct kv_account *account = account_in(node);
        const struct ddpi_kv_use use = {.job = ddpi_bytes_of(account->name, node->key_len),
                                        .keys = account->used[KV_ROOM_KEYS],
                                        .bytes = account->used[KV_ROOM_BYTES],
                                        .sessions = account->used[KV_ROOM_SESSIONS]};
        if (!visit(ctx, &use))
            return;
    }
}

bool ddpi_kv_accounts_init(struct ddpi_kv *kv, const uint8_t seed[DDPI_SEED_SIZE])
{
    ddpi_table_init(&kv->accounts, seed);
    kv->jobless = account_create(ddpi_bytes_of("", 0));
    kv->reserve = account_create(ddpi_bytes_of("", 0));
    return kv->jobless != NULL && kv->reserve != NULL;
}

/* What is still charged to accounts is being freed with the core. */
void ddpi_kv_accounts_finish(struct ddpi_kv *kv)
{
    ddpi_free(kv->jobless);
    ddpi_free(kv->reserve);
    struct ddpi_table_iter iter = {0};
    for (struct ddpi_table_node *node; (node = ddpi_table_next(&kv->accounts, &iter)) != NULL;)
        ddpi_free(account_in(node));
    ddpi_table_finish(&kv->accounts);
    ddpi_heap_finish(&kv->richest);
}
