/*
 * bootstrap.c - from the store to a ring. Owns the connection to the store while it runs; edges and
 * listeners belong to the communicator.
 *
 * Keys, below the prefix of this generation, for the NAME of a communicator:
 *
 *     comm/NAME/joins/RANK           how often this rank has joined; numbers the ROUND
 *     comm/NAME/ROUND/card/RANK      where to find the rank (card.h)
 *     comm/NAME/ROUND/machine/ID     how many ranks run on this machine
 *
 * A rank publishes its card, waits for all cards (so who is missing is known by name), connects to
 * the next rank, accepts the previous one, and ends with a round in which all cards are passed on,
 * for the edges to come: so nobody reads more than two of them from the store. The address that is
 * published is the source address of the way to the store: nothing is derived from a host name.
 */
#include "bootstrap.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "tls.h"

#include <ddprun/store.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    STORE_CONNECT_MAX_MS = 30000,
    SPINS = 300, /* some microseconds: as long as a peer on another core needs to answer */
    MISSING_NAMED = 8,
    KEY_TEXT = 256, /* a name has at most 128 characters, a number 20, a machine 95 */
};

struct bootstrap {
    struct ddp_comm *comm;
    const struct ddpi_config *config;
    struct ddp_error *err;
    uint64_t deadline_ms;
    ddp_store *store;
    int64_t round;
    struct ddpi_meeting *meeting; /* the communicator's */
};

static uint32_t left_ms(const struct bootstrap *boot)
{
    int left = ddpi_remaining_ms(ddpi_now_ms(&ddpi_clock_monotonic), boot->deadline_ms);
    return (uint32_t)left;
}

static void card_key(const struct bootstrap *boot, uint32_t rank, char key[KEY_TEXT])
{
    snprintf(key, KEY_TEXT, "comm/%s/%lld/card/%u", boot->config->name, (long long)boot->round,
             rank);
}

static void machine_key(const struct bootstrap *boot, char key[KEY_TEXT])
{
    snprintf(key, KEY_TEXT, "comm/%s/%lld/machine/%s", boot->config->name, (long long)boot->round,
             boot->meeting->card.machine);
}

static ddp_status open_store(struct bootstrap *boot)
{
    uint32_t timeout_ms = left_ms(boot);
    if (timeout_ms > STORE_CONNECT_MAX_MS)
        timeout_ms = STORE_CONNECT_MAX_MS;
    int token_fd = boot->config->token_fd;
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = boot->config->store_endpoint,
                                              .prefix = boot->config->store_prefix,
                                              .connect_timeout_ms = timeout_ms,
                                              .auth = token_fd > 0 ? DDP_STORE_AUTH_BEYOND_LOOPBACK
                                                                   : DDP_STORE_AUTH_DEFAULT,
                                              .token_fd = token_fd,
                                              .flags = boot->config->tls ? DDP_STORE_TLS : 0};
    ddp_status status = ddp_store_connect(&options, &boot->store, boot->err);
    if (status != DDP_OK)
        return status;
    char key[KEY_TEXT];
    snprintf(key, sizeof key, "comm/%s/joins/%u", boot->config->name, boot->comm->rank);
    return ddp_store_add(boot->store, key, 1, left_ms(boot), &boot->round, boot->err);
}

static ddp_status hide_data(struct bootstrap *boot, bool keyed)
{
    struct ddpi_edges *edges = &boot->comm->edges;
    if (!keyed)
        return ddpi_error_set(
            boot->err, DDP_E_DENIED,
            "TLS between ranks (DDPRUN_TLS_RANKS) takes the key that ddprun gives "
            "them (DDPRUN_RANK_KEY_FD), and there is none; start the program with "
            "ddprun, and let no program between close that descriptor");
    ddp_status status = ddpi_tls_engine_create(&edges->tls, boot->err);
    boot->meeting->tls = edges->tls;
    return status;
}

static ddp_status open_listeners(struct bootstrap *boot)
{
    struct ddpi_endpoint endpoint;
    struct sockaddr_storage address = {0};
    ddp_status status = ddpi_parse_endpoint(boot->config->store_endpoint, &endpoint, boot->err);
    if (status == DDP_OK)
        status = ddpi_source_address(endpoint.host, endpoint.port, &address, boot->err);
    struct ddpi_rank_key key;
    ddpi_rank_key_read(boot->config->rank_key_fd, &key);
    if (status == DDP_OK)
        status = ddpi_meeting_init(boot->meeting, boot->comm->rank, boot->comm->world_size,
                                   boot->comm->bell, &key, &address, !boot->config->force_tcp,
                                   boot->err);
    if (status == DDP_OK && boot->config->tls_ranks)
        status = hide_data(boot, key.given);
    ddpi_wipe(&key, sizeof key);
    return status;
}

static ddp_status publish_card(struct bootstrap *boot)
{
    char key[KEY_TEXT];
    machine_key(boot, key);
    ddp_status status = ddp_store_add(boot->store, key, 1, left_ms(boot), NULL, boot->err);
    if (status != DDP_OK)
        return status;
    struct ddpi_buf wire;
    ddpi_buf_init(&wire, DDPI_CARD_WIRE_MAX);
    card_key(boot, boot->comm->rank, key);
    if (!ddpi_card_encode(&boot->meeting->card, &wire))
        status = ddpi_error_nomem(boot->err, DDPI_CARD_WIRE_MAX);
    else
        status = ddp_store_set(boot->store, key, ddpi_buf_head(&wire), ddpi_buf_len(&wire),
                               left_ms(boot), NULL, boot->err);
    ddpi_buf_finish(&wire);
    return status;
}

/* "2, 5 and 7", or "2, 5, 6 and 12 more". */
static void list_missing(const bool *here, uint32_t count, char *text, size_t size)
{
    uint32_t total = 0, named = 0;
    for (uint32_t rank = 0; rank < count; rank++)
        total += !here[rank];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t rank = 0; rank < count && named < MISSING_NAMED; rank++) {
        if (here[rank])
            continue;
        const char *glue = named == 0 ? "" : named + 1 == total ? " and " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%u", glue, rank);
        named++;
    }
    if (total > named)
        snprintf(text + used, size - used, " and %u more", total - named);
}

/* Replace the store's "deadline passed" by the ranks that are to blame for it. */
static ddp_status name_missing(struct bootstrap *boot)
{
    enum { LIST_TIMEOUT_MS = 2000 };
    char prefix[KEY_TEXT];
    snprintf(prefix, sizeof prefix, "comm/%s/%lld/card/", boot->config->name,
             (long long)boot->round);
    char **keys;
    size_t count;
    uint32_t world = boot->comm->world_size;
    bool *here = ddpi_calloc(world, sizeof *here);
    if (here == NULL ||
        ddp_store_list(boot->store, prefix, LIST_TIMEOUT_MS, &keys, &count, NULL) != DDP_OK) {
        ddpi_free(here);
        return DDP_E_TIMEOUT;
    }
    uint32_t came = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t rank;
        if (ddpi_parse_int(keys[i] + strlen(prefix), 0, world - 1, &rank, NULL) == DDP_OK) {
            here[rank] = true;
            came++;
        }
    }
    ddp_store_free(keys);
    char missing[128];
    list_missing(here, world, missing, sizeof missing);
    ddpi_free(here);
    return ddpi_error_set(boot->err, DDP_E_TIMEOUT,
                          "after %.1f s %u of %u ranks have joined; missing: rank %s",
                          boot->config->init_timeout_ms / 1000.0, came, world, missing);
}

/* Wait for ranks [first, first + count). */
static ddp_status await_slice(struct bootstrap *boot, uint32_t first, uint32_t count)
{
    char(*texts)[KEY_TEXT] = ddpi_calloc(count, sizeof *texts);
    const char **keys = ddpi_calloc(count, sizeof *keys);
    ddp_status status;
    if (texts == NULL || keys == NULL) {
        status = ddpi_error_nomem(boot->err, (unsigned long long)count * KEY_TEXT);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            card_key(boot, first + i, texts[i]);
            keys[i] = texts[i];
        }
        status = ddp_store_wait(boot->store, keys, count, left_ms(boot), boot->err);
    }
    ddpi_free(keys);
    ddpi_free(texts);
    return status == DDP_E_TIMEOUT ? name_missing(boot) : status;
}

static ddp_status await_cards(struct bootstrap *boot)
{
    uint32_t world = boot->comm->world_size;
    ddp_status status = DDP_OK;
    for (uint32_t first = 0; first < world && status == DDP_OK; first += DDP_STORE_MANY_MAX) {
        uint32_t rest = world - first;
        status = await_slice(boot, first, rest < DDP_STORE_MANY_MAX ? rest : DDP_STORE_MANY_MAX);
    }
    return status;
}

/* Into its slot in the meeting. */
static ddp_status read_card(struct bootstrap *boot, uint32_t rank)
{
    char key[KEY_TEXT];
    card_key(boot, rank, key);
    void *value;
    size_t len;
    ddp_status status =
        ddp_store_get(boot->store, key, left_ms(boot), &value, &len, NULL, boot->err);
    if (status != DDP_OK)
        return status;
    struct ddpi_card card;
    bool valid = ddpi_card_decode(value, len, &card);
    ddp_store_free(value);
    if (!valid)
        return ddpi_error_set(boot->err, DDP_E_PROTOCOL,
                              "rank %u uses another version of libddpcomm", rank);
    if (card.world_size != boot->comm->world_size)
        return ddpi_error_set(boot->err, DDP_E_MISMATCH,
                              "rank %u joins a world of %u ranks, rank %u one of %u", rank,
                              card.world_size, boot->comm->rank, boot->comm->world_size);
    return ddpi_card_put(&card, ddpi_meeting_slot(boot->meeting, rank))
               ? DDP_OK
               : ddpi_error_nomem(boot->err, DDPI_CARD_SLOT);
}

static ddp_status choose_spins(struct bootstrap *boot)
{
    char key[KEY_TEXT];
    machine_key(boot, key);
    void *value;
    size_t len;
    ddp_status status =
        ddp_store_get(boot->store, key, left_ms(boot), &value, &len, NULL, boot->err);
    if (status != DDP_OK)
        return status;
    int64_t local_ranks;
    status = ddpi_parse_int(value, 1, DDPI_WORLD_MAX, &local_ranks, boot->err);
    ddp_store_free(value);
    if (status != DDP_OK)
        return ddpi_error_wrap(boot->err, status, "number of ranks on this machine");
    if (boot->meeting->card.shm)
        ddpi_bootstrap_spins(boot->comm, local_ranks);
    return DDP_OK;
}

void ddpi_bootstrap_spins(struct ddp_comm *comm, int64_t local_ranks)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= local_ranks)
        comm->spin_limit = SPINS;
}

/* The time is up, or somebody has something to say. */
static ddp_status await_neighbours(struct bootstrap *boot, uint32_t next, uint32_t prev)
{
    const struct ddpi_edges *edges = &boot->comm->edges;
    struct pollfd pollfd = {.fd = ddpi_meeting_wait_fd(boot->meeting), .events = POLLIN};
    uint64_t now = ddpi_now_ms(&ddpi_clock_monotonic),
             wake_ms = ddpi_meeting_wake_ms(boot->meeting);
    const struct ddpi_edge *asked = &boot->meeting->attempt.edge;
    if (asked->broken != NULL)
        return ddpi_error_set(boot->err, DDP_E_PEER_DEAD, "%s %s", asked->peer_name, asked->broken);
    if (now >= boot->deadline_ms && edges->ring[DDPI_NEXT] == NULL)
        return ddpi_error_set(boot->err, DDP_E_TIMEOUT, "rank %u has not answered in time", next);
    if (now >= boot->deadline_ms)
        return ddpi_error_set(boot->err, DDP_E_TIMEOUT, "rank %u has not connected in time", prev);
    if (boot->deadline_ms < wake_ms)
        wake_ms = boot->deadline_ms;
    if (poll(&pollfd, 1, ddpi_remaining_ms(now, wake_ms)) < 0 && errno != EINTR)
        return ddpi_error_sys(boot->err, errno, "poll");
    return DDP_OK;
}

/* The previous rank is the only one that comes in by itself now: others know our card only when the
 * last round is over, and that needs us. */
static ddp_status make_ring(struct bootstrap *boot)
{
    struct ddp_comm *comm = boot->comm;
    struct ddpi_edge *const *ring = comm->edges.ring;
    uint32_t next = ddpi_ring_next(comm->rank, comm->world_size);
    uint32_t prev = ddpi_ring_prev(comm->rank, comm->world_size);
    ddp_status status = read_card(boot, next);
    if (status == DDP_OK)
        status = read_card(boot, prev);
    if (status == DDP_OK)
        status = ddpi_meeting_ask(boot->meeting, next, DDPI_LINK_RING, boot->err);
    while (status == DDP_OK && (ring[DDPI_NEXT] == NULL || ring[DDPI_PREV] == NULL)) {
        struct ddpi_arrival arrival;
        status = ddpi_meeting_advance(boot->meeting, &arrival, boot->err);
        if (status == DDP_OK && arrival.edge != NULL)
            status = ddpi_edges_set_ring(&comm->edges, arrival.asked ? DDPI_NEXT : DDPI_PREV,
                                         arrival.edge, boot->err);
        else if (status == DDP_OK)
            status = await_neighbours(boot, next, prev);
    }
    return status;
}

ddp_status ddpi_bootstrap(struct ddp_comm *comm, const struct ddpi_config *config,
                          struct ddp_error *err)
{
    struct bootstrap boot = {
        .comm = comm,
        .config = config,
        .err = err,
        .deadline_ms = ddpi_deadline(ddpi_now_ms(&ddpi_clock_monotonic), config->init_timeout_ms),
        .meeting = &comm->edges.meeting};
    static ddp_status (*const steps[])(struct bootstrap *) = {
        open_store, open_listeners, publish_card, await_cards, choose_spins, make_ring};
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == DDP_OK; i++)
        status = steps[i](&boot);
    ddp_store_close(boot.store);
    if (status == DDP_OK)
        status = ddpi_comm_join(comm, left_ms(&boot), err);
    if (status == DDP_OK)
        status = ddpi_edges_open(&comm->edges, err);
    if (status == DDP_OK)
        return DDP_OK;
    return ddpi_error_wrap(err, status, "rank %u cannot join '%s'", comm->rank, config->name);
}
