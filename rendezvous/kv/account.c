/*
 * account.c - what each job uses, and may use: an account for each job, one for keys that belong to
 * no job, and one for the keys and sessions of the rounds. Owns the accounts; the account of a job
 * exists while it holds something. Charging cannot fail, as the limits are checked before.
 *
 * There are three rules. All accounts but that of the rounds share what the limits allow. A job (or
 * all keys of no job) may use its share only: a number, or as much as it leaves free for others, so
 * that the first job may use half, the next a quarter, and there is always room for one more. The
 * rounds have a reserve on top of the limits, so that membership never waits for a client to delete
 * something.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"
#include "proof.h"

#include <inttypes.h>

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
    ddpi_table_finish_free(&kv->accounts, offsetof(struct kv_account, node));
    ddpi_heap_finish(&kv->richest);
}

/* ---- the limits ---- */

/* One part in so many of a limit: what a second job may use next to a first with its full share. */
enum { TIGHT_PART = 4 };

/* The name of each resource, and the options of ddprund that raise its limits. */
static const struct {
    const char *what, *option, *job_option;
} rooms[KV_ROOMS] = {
    [KV_ROOM_KEYS] = {"keys", "--max-keys", "--max-job-keys"},
    [KV_ROOM_BYTES] = {"bytes", "--max-bytes", "--max-job-bytes"},
    [KV_ROOM_SESSIONS] = {"sessions", "--max-sessions", "--max-job-sessions"},
};

/* Used by all but the rounds. */
static size_t used_of_limit(const struct ddpi_kv *kv, enum kv_room room)
{
    return kv->used[room] - kv->reserve->used[room];
}

static const char *account_label(const struct ddpi_kv *kv, const struct kv_account *account,
                                 char *text, size_t size)
{
    if (account == kv->reserve)
        return "the nodes of jobs";
    if (account == kv->jobless)
        return "no job";
    snprintf(text, size, "the job '%.*s'", (int)account->node.key_len, account->name);
    return text;
}

static ddp_status store_full(const struct ddpi_kv *kv, enum kv_room room, struct ddp_error *err)
{
    char text[DDPI_JOB_MAX + 16];
    const struct ddpi_heap_node *top = ddpi_heap_top(&kv->richest);
    const struct kv_account *most =
        top != NULL ? ddpi_container_of(top, struct kv_account, rank) : kv->jobless;
    return ddpi_error_set(err, DDP_E_LIMIT,
                          "the store is full: it holds %zu of at most %zu %s; the most, %zu keys "
                          "and %zu bytes, belong to %s; delete keys or raise the limit (%s)",
                          used_of_limit(kv, room), kv->limits.room[room], rooms[room].what,
                          most->used[KV_ROOM_KEYS], most->used[KV_ROOM_BYTES],
                          account_label(kv, most, text, sizeof text), rooms[room].option);
}

static ddp_status reserve_full(const struct ddpi_kv *kv, enum kv_room room, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_LIMIT,
                          "the store is full: the nodes of jobs hold %zu of at most %zu %s "
                          "reserved for them; raise --reserve",
                          kv->reserve->used[room], kv->limits.reserve[room], rooms[room].what);
}

static ddp_status share_full(struct ddpi_kv *kv, const struct kv_account *account,
                             enum kv_room room, size_t most, struct ddp_error *err)
{
    char text[DDPI_JOB_MAX + 16];
    const char *name = account_label(kv, account, text, sizeof text);
    kv->shares_full++;
    if (kv->limits.of_job[room] != 0)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "%s has %zu %s, of at most %zu for each job (%s); delete some", name,
                              account->used[room], rooms[room].what, most, rooms[room].job_option);
    return ddpi_error_set(err, DDP_E_LIMIT,
                          "%s has %zu %s, and %zu are free: a job has at most as much as it leaves "
                          "to others, so that one alone cannot fill the store; delete some, raise "
                          "the limit (%s), or give each job a number (%s)",
                          name, account->used[room], rooms[room].what, most, rooms[room].option,
                          rooms[room].job_option);
}

static size_t difference(size_t most, size_t held)
{
    return most > held ? most - held : 0;
}

static size_t free_for_all(const struct ddpi_kv *kv, enum kv_room room)
{
    return difference(kv->limits.room[room], used_of_limit(kv, room));
}

/* How much @account may have in all. */
static size_t share_of(const struct ddpi_kv *kv, const struct kv_account *account,
                       enum kv_room room)
{
    if (account == kv->reserve)
        return kv->limits.reserve[room];
    size_t of_job = kv->limits.of_job[room];
    return of_job != 0 ? of_job : free_for_all(kv, room);
}

static bool lacks_room(const struct ddpi_kv *kv, enum kv_room room, size_t amount,
                       const struct kv_account *account)
{
    return account != kv->reserve && amount > free_for_all(kv, room);
}

static bool lacks_share(const struct ddpi_kv *kv, enum kv_room room, size_t amount,
                        const struct kv_account *account)
{
    return amount > difference(share_of(kv, account, room), account->used[room]);
}

/* Keys that are gone use room until they are dropped: a request that needs the room drops them
 * earlier. It drops only what helps, so it drops no more than it puts in the place. */
static void drop_for(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                     size_t amount)
{
    bool dropped = room != KV_ROOM_SESSIONS && ddpi_kv_has_gone(kv);
    account->pins++;
    while (dropped) {
        bool any = lacks_room(kv, room, amount, account) ||
                   (account != kv->reserve && kv->limits.of_job[room] == 0);
        dropped =
            (lacks_room(kv, room, amount, account) || lacks_share(kv, room, amount, account)) &&
            ddpi_kv_drop_one(kv, any ? NULL : account);
    }
    account->pins--;
}

static ddp_status room_check(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                             size_t amount, struct ddp_error *err)
{
    if (amount == 0)
        return DDP_OK;
    drop_for(kv, account, room, amount);
    if (lacks_room(kv, room, amount, account))
        return store_full(kv, room, err);
    if (!lacks_share(kv, room, amount, account))
        return DDP_OK;
    if (account == kv->reserve)
        return reserve_full(kv, room, err);
    return share_full(kv, account, room, share_of(kv, account, room), err);
}

ddp_status ddpi_kv_check_room(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                              size_t amount, struct ddp_error *err)
{
    if (account == NULL)
        return ddpi_error_nomem(err, sizeof(*account));
    ddp_status status = room_check(kv, account, room, amount, err);
    if (status != DDP_OK)
        ddpi_kv_account_release(kv, account);
    return status;
}

ddp_status ddpi_kv_check_growth(struct ddpi_kv *kv, struct kv_account *account, size_t keys,
                                size_t bytes, struct ddp_error *err)
{
    ddp_status status = ddpi_kv_check_room(kv, account, KV_ROOM_KEYS, keys, err);
    return status == DDP_OK ? ddpi_kv_check_room(kv, account, KV_ROOM_BYTES, bytes, err) : status;
}

bool ddpi_kv_is_tight(const struct ddpi_kv *kv)
{
    for (enum kv_room room = 0; room < KV_ROOM_SESSIONS; room++)
        if (used_of_limit(kv, room) > kv->limits.room[room] / TIGHT_PART)
            return true;
    return false;
}
