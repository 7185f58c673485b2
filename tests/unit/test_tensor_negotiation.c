/*
 * test_tensor_negotiation.c - requests as bytes, the negotiation of named tensors between simulated
 * ranks, the cache of responses, fusion, and scaling.
 */
#include "check_main.h"
#include "failmem.h"
#include "mem.h"
#include "negotiation.h"
#include "response_cache.h"
#include "tensor_fusion.h"
#include "tensor_scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_LIMIT = 1 << 20, MOST = 64 };

static struct ddpi_tensor_request request_of(const char *name, uint64_t count)
{
    struct ddpi_tensor_request request = {.kind = DDPI_TENSOR_ALL_REDUCE,
                                          .dtype = DDP_FLOAT32,
                                          .op = DDP_SUM,
                                          .prescale = 1,
                                          .postscale = 1,
                                          .count = count};
    snprintf(request.name, sizeof request.name, "%s", name);
    return request;
}

static void give(struct ddpi_negotiation *negotiation, uint32_t rank,
                 const struct ddpi_tensor_request *request)
{
    struct ddpi_buf list;
    struct ddp_error err;
    ddpi_buf_init(&list, LIST_LIMIT);
    ck_assert(ddpi_tensor_request_put(&list, request));
    ck_assert_int_eq(ddpi_negotiation_take(negotiation, rank, ddpi_buf_head(&list),
                                           ddpi_buf_len(&list), 1000, &err),
                     DDP_OK);
    ddpi_buf_finish(&list);
}

static struct ddpi_wanted_tensor *next_of(struct ddpi_negotiation *negotiation)
{
    ddpi_negotiation_settle(negotiation);
    return ddpi_negotiation_next(negotiation);
}

static void expect(struct ddpi_negotiation *negotiation, const char *name, const char *reason)
{
    struct ddpi_wanted_tensor *wanted = next_of(negotiation);
    ck_assert_ptr_nonnull(wanted);
    ck_assert_str_eq(wanted->response.request.name, name);
    ck_assert_int_eq(wanted->response.failed, reason != NULL);
    if (reason != NULL)
        ck_assert_str_eq(wanted->response.reason.msg, reason);
    ddpi_free(wanted);
}

/* ---- bytes ---- */

START_TEST(a_request_survives_its_bytes_and_no_cut_does)
{
    struct ddpi_tensor_request request = request_of("layer.weight", 12345678901), read;
    struct ddpi_buf list;
    request.prescale = 0.1;
    request.set = 3;
    request.on_gpu = true;
    request.group_size = 2;
    snprintf(request.group, sizeof request.group, "%s", "layer.bias");
    ddpi_buf_init(&list, LIST_LIMIT);
    ck_assert(ddpi_tensor_request_put(&list, &request));
    struct ddpi_rd rd = ddpi_rd_of(ddpi_buf_head(&list), ddpi_buf_len(&list));
    ck_assert(ddpi_tensor_request_read(&rd, &read) && ddpi_rd_done(&rd));
    char a[DDPI_TENSOR_VALUE], b[DDPI_TENSOR_VALUE];
    ck_assert_ptr_null(ddpi_tensor_difference(&request, &read, a, b));
    ck_assert_str_eq(read.name, request.name);
    ck_assert_uint_eq(read.set, request.set);
    for (size_t len = 0; len < ddpi_buf_len(&list); len++) {
        rd = ddpi_rd_of(ddpi_buf_head(&list), len);
        ck_assert(!ddpi_tensor_request_read(&rd, &read));
    }
    ddpi_buf_finish(&list);
}
END_TEST

/* Whatever the bytes are, they are read or refused; run with sanitizers. */
START_TEST(any_bytes_are_read_or_refused)
{
    srandom(7);
    for (int run = 0; run < 20000; run++) {
        struct ddpi_negotiation negotiation;
        struct ddpi_buf list;
        struct ddp_error err;
        struct ddpi_tensor_request request = request_of("x", 4);
        ck_assert_int_eq(ddpi_negotiation_init(&negotiation, 2, &err), DDP_OK);
        ddpi_buf_init(&list, LIST_LIMIT);
        for (int i = 0; i < 2; i++) {
            request.name[0] = (char)('a' + i);
            ck_assert(ddpi_tensor_request_put(&list, &request));
        }
        for (int i = 0; i < 2; i++)
            list.data[(size_t)random() % ddpi_buf_len(&list)] = (uint8_t)random();
        for (uint32_t rank = 0; rank < 2; rank++)
            if (ddpi_negotiation_take(&negotiation, rank, ddpi_buf_head(&list), ddpi_buf_len(&list),
                                      0, &err) != DDP_OK)
                ck_assert_int_eq(err.status, DDP_E_PROTOCOL);
        ddpi_negotiation_settle(&negotiation);
        ddpi_buf_finish(&list);
        ddpi_negotiation_finish(&negotiation);
    }
}
END_TEST

START_TEST(a_rank_cannot_want_a_tensor_twice_or_in_a_set_without_it)
{
    struct ddpi_negotiation negotiation;
    struct ddpi_tensor_request request = request_of("x", 4);
    struct ddpi_buf list;
    struct ddp_error err;
    uint8_t has[] = {1, 0, 1};
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, 3, &err), DDP_OK);
    ck_assert_int_eq(ddpi_negotiation_add_set(&negotiation, has, &err), DDP_OK);
    give(&negotiation, 1, &request);
    ddpi_buf_init(&list, LIST_LIMIT);
    ck_assert(ddpi_tensor_request_put(&list, &request));
    ck_assert_int_eq(
        ddpi_negotiation_take(&negotiation, 1, ddpi_buf_head(&list), ddpi_buf_len(&list), 0, &err),
        DDP_E_PROTOCOL);
    ck_assert_str_eq(err.msg, "rank 1 wants tensor \"x\" twice");
    ddpi_buf_truncate(&list, 0);
    request.set = 1;
    ck_assert(ddpi_tensor_request_put(&list, &request));
    ck_assert_int_eq(
        ddpi_negotiation_take(&negotiation, 1, ddpi_buf_head(&list), ddpi_buf_len(&list), 0, &err),
        DDP_E_PROTOCOL);
    ck_assert_str_eq(err.msg,
                     "rank 1 wants tensor \"x\" in process set 1, which does not have that rank");
    ddpi_buf_finish(&list);
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

/* ---- negotiation ---- */

struct difference {
    size_t offset;
    size_t size;
    uint64_t value;
    const char *sentence;
};

#define DIFFERS(member, other, text)                                  \
    {                                                                 \
        offsetof(struct ddpi_tensor_request, member),                 \
            sizeof(((struct ddpi_tensor_request *)0)->member), other, \
            "tensor \"x\": " text ": enqueue it alike on all ranks"   \
    }

static const struct difference differences[] = {
    DIFFERS(kind, DDPI_TENSOR_BROADCAST,
            "the operation is all_reduce on rank 1, but broadcast on rank 2"),
    DIFFERS(dtype, DDP_INT32, "the type is float32 on rank 1, but int32 on rank 2"),
    DIFFERS(count, 5, "the count is 4 on rank 1, but 5 on rank 2"),
    DIFFERS(op, DDP_MAX, "the reduction is sum on rank 1, but max on rank 2"),
    DIFFERS(on_gpu, 1, "the memory is of the host on rank 1, but on a GPU on rank 2"),
    DIFFERS(root, 2, "the root is 0 on rank 1, but 2 on rank 2"),
    DIFFERS(prescale, 0, "prescale is 1 on rank 1, but 0 on rank 2"),
    DIFFERS(postscale, 0, "postscale is 1 on rank 1, but 0 on rank 2"),
};

START_TEST(a_difference_names_tensor_ranks_and_values)
{
    const struct difference *row = &differences[_i];
    struct ddpi_negotiation negotiation;
    struct ddpi_tensor_request request = request_of("x", 4), other = request;
    memcpy((char *)&other + row->offset, &row->value, row->size);
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, 3, NULL), DDP_OK);
    give(&negotiation, 1, &request);
    give(&negotiation, 2, &other);
    ck_assert_ptr_null(next_of(&negotiation));
    give(&negotiation, 0, &request);
    expect(&negotiation, "x", row->sentence);
    for (uint32_t rank = 0; rank < 3; rank++)
        give(&negotiation, rank, &other);
    expect(&negotiation, "x", NULL);
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

START_TEST(joined_ranks_need_not_come_to_what_goes_on_without_them)
{
    struct ddpi_negotiation negotiation;
    struct ddpi_tensor_request request = request_of("x", 4), gather = request_of("g", 4), join;
    gather.kind = DDPI_TENSOR_ALL_GATHER;
    join = request_of("join", 0);
    join.kind = DDPI_TENSOR_JOIN;
    join.set = DDPI_SET_INTERNAL;
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, 3, NULL), DDP_OK);
    give(&negotiation, 0, &request);
    give(&negotiation, 1, &join);
    give(&negotiation, 0, &gather);
    ck_assert_ptr_null(next_of(&negotiation));
    give(&negotiation, 2, &request);
    expect(&negotiation, "x", NULL);
    give(&negotiation, 2, &gather);
    expect(&negotiation, "g",
           "tensor \"g\": rank 1 has joined, and takes no part in all_gather: call "
           "ddp_tensors_join() after it on all ranks");
    gather.kind = DDPI_TENSOR_UNEVEN_GATHER;
    give(&negotiation, 0, &gather);
    give(&negotiation, 2, &gather);
    expect(&negotiation, "g", NULL);
    give(&negotiation, 2, &request);
    give(&negotiation, 2, &join);
    char missing[DDPI_RANKS_TEXT];
    ddpi_negotiation_missing(
        &negotiation, ddpi_container_of(negotiation.wanted.prev, struct ddpi_wanted_tensor, link),
        missing);
    ck_assert_str_eq(missing, "0");
    give(&negotiation, 0, &request);
    give(&negotiation, 0, &join);
    expect(&negotiation, "x", NULL);
    struct ddpi_wanted_tensor *wanted = next_of(&negotiation);
    ck_assert_int_eq(wanted->response.request.kind, DDPI_TENSOR_JOIN);
    ck_assert_uint_eq(wanted->response.last_joined, 0);
    ck_assert_uint_eq(negotiation.njoined, 0);
    ddpi_free(wanted);
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

/* Horovod knows all-reduces only; those on a GPU need zeros there. */
static const struct joined_row {
    enum ddpi_tensor_kind kind;
    bool on_gpu, has_gpu;
    const char *reason;
} joined_rows[] = {
    {DDPI_TENSOR_ALL_REDUCE, false, false, NULL},
    {DDPI_TENSOR_ALL_REDUCE, true, true, NULL},
    {DDPI_TENSOR_ALL_REDUCE, true, false,
     "tensor \"x\": rank 1 has joined before it had a tensor on a GPU, and cannot give zeros "
     "there: enqueue one on all ranks before ddp_tensors_join()"},
    {DDPI_TENSOR_ALL_GATHER, false, false,
     "tensor \"x\": rank 1 has joined, and takes no part in all_gather: call "
     "ddp_tensors_join() after it on all ranks"},
    {DDPI_TENSOR_BROADCAST, false, true,
     "tensor \"x\": rank 1 has joined, and takes no part in broadcast: call "
     "ddp_tensors_join() after it on all ranks"},
    {DDPI_TENSOR_ALL_TO_ALL, true, true,
     "tensor \"x\": rank 1 has joined, and takes no part in all_to_all: call "
     "ddp_tensors_join() after it on all ranks"},
};

START_TEST(joined_ranks_take_no_part_in_what_they_cannot_give)
{
    const struct joined_row *row = &joined_rows[_i];
    struct ddpi_negotiation negotiation;
    struct ddpi_tensor_request request = request_of("x", 4), join = request_of("join", 0);
    request.kind = row->kind;
    request.on_gpu = row->on_gpu;
    join.kind = DDPI_TENSOR_JOIN;
    join.set = DDPI_SET_INTERNAL;
    join.on_gpu = row->has_gpu;
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, 3, NULL), DDP_OK);
    give(&negotiation, 0, &request);
    give(&negotiation, 1, &join);
    give(&negotiation, 2, &request);
    expect(&negotiation, "x", row->reason);
    join.on_gpu = !row->has_gpu; /* not all ranks need have one */
    give(&negotiation, 0, &join);
    give(&negotiation, 2, &join);
    expect(&negotiation, "join", NULL);
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

START_TEST(a_group_is_ready_and_fails_as_a_whole)
{
    struct ddpi_negotiation negotiation;
    struct ddpi_tensor_request a = request_of("a", 4), b = request_of("b", 5), bad;
    a.group_size = b.group_size = 2;
    snprintf(a.group, sizeof a.group, "%s", "a");
    snprintf(b.group, sizeof b.group, "%s", "a");
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, 2, NULL), DDP_OK);
    for (int round = 0; round < 2; round++) {
        bad = b;
        bad.count += (uint64_t)round;
        give(&negotiation, 0, &a);
        give(&negotiation, 0, &b);
        give(&negotiation, 1, &a);
        ck_assert_ptr_null(next_of(&negotiation));
        give(&negotiation, 1, &bad);
        const char *reason = round == 0 ? NULL
                                        : "tensor \"b\": the count is 5 on rank 0, but 6 on "
                                          "rank 1: enqueue it alike on all ranks";
        expect(&negotiation, "a", reason);
        expect(&negotiation, "b", reason);
    }
    give(&negotiation, 0, &a);
    give(&negotiation, 1, &a);
    ck_assert_ptr_null(next_of(&negotiation)); /* what is left is freed */
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

/* Ranks have tensors in other groups than others. */
static const struct group_row {
    const char *told;  /* "0b2": rank 0 wants b in the group "a" of 2, or 0b0 singly; ".": settle */
    const char *ready; /* what has failed until each "." and at the end */
    const char *reason; /* of all */
} group_rows[] = {
    {"1b0 0a2 0b2 . 1a0", "b.a", "\"b\": the size of its group is 0 on rank 1, but 2 on rank 0"},
    {"0a2 0b2 . 1b0 . 1a0", ".b.a", "\"b\": the size of its group is 2 on rank 0, but 0 on rank 1"},
    {"0a2 0b2 1a0 1b0", "ab", "\"a\": the size of its group is 2 on rank 0, but 0 on rank 1"},
    /* Tensors of which a rank tells later fail, too. */
    {"0b2 1b0 . 1a0 . 0a2", "b..a", "the size of its group is "},
    {"0b2 1b0 . 0a2 . 1a0", "b..a", "\"b\": the size of its group is 2 on rank 0, but 0 on rank 1"},
    /* To c rank 0 comes later. */
    {"0a2 0b2 1a3 1b3 1c3 . 0c0", "ab.c",
     "\"a\": the size of its group is 2 on rank 0, but 3 on rank 1"},
    {"1c3 1b3 . 1a3 0a2 . 0b2 . 0c0", ".a.b.c",
     "\"a\": the size of its group is 3 on rank 1, but 2 on rank 0"},
};

/* What is ready has failed with @reason: append its names to @names, behind which are zeros. */
static void take_failed(struct ddpi_negotiation *negotiation, const char *reason, char *names)
{
    for (struct ddpi_wanted_tensor *wanted; (wanted = next_of(negotiation)) != NULL;) {
        ck_assert(wanted->response.failed);
        ck_assert_ptr_nonnull(strstr(wanted->response.reason.msg, reason));
        names[strlen(names)] = wanted->response.request.name[0];
        ddpi_free(wanted);
    }
}

START_TEST(a_tensor_that_is_in_a_group_on_some_ranks_fails_with_it)
{
    const struct group_row *row = &group_rows[_i];
    struct ddpi_negotiation negotiation;
    char ready[16] = "";
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, 2, NULL), DDP_OK);
    for (const char *at = row->told; *at != '\0'; at += strcspn(at, " "), at += *at == ' ')
        if (*at == '.') {
            take_failed(&negotiation, row->reason, ready);
            ready[strlen(ready)] = '.';
        } else {
            struct ddpi_tensor_request request = request_of((char[]){at[1], '\0'}, 4);
            request.group_size = (uint32_t)(at[2] - '0');
            request.group[0] = request.group_size > 0 ? 'a' : '\0';
            give(&negotiation, (uint32_t)(at[0] - '0'), &request);
        }
    take_failed(&negotiation, row->reason, ready);
    ck_assert_str_eq(ready, row->ready);
    ck_assert_uint_eq(negotiation.names.count, 0);
    ck_assert_uint_eq(negotiation.groups.count, 0); /* the next step has nothing to do with it */
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

/* What a rank that has joined gives nothing to fails with its group, on both sides of it. */
START_TEST(a_group_with_what_a_joined_rank_does_not_give_fails)
{
    struct ddpi_negotiation negotiation;
    struct ddpi_tensor_request join = request_of("join", 0), requests[3];
    const char *reason = "rank 1 has joined, and takes no part in all_gather";
    char ready[16] = "";
    join.kind = DDPI_TENSOR_JOIN;
    join.set = DDPI_SET_INTERNAL;
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, 2, NULL), DDP_OK);
    give(&negotiation, 1, &join);
    for (int i = 0; i < 3; i++) {
        requests[i] = request_of((char[]){(char)('a' + i), '\0'}, 4);
        requests[i].group_size = 3;
        requests[i].group[0] = 'a';
    }
    requests[1].kind = DDPI_TENSOR_ALL_GATHER;
    for (int i = 0; i < 3; i++) {
        give(&negotiation, 0, &requests[i]);
        take_failed(&negotiation, reason, ready);
        ready[strlen(ready)] = '.';
    }
    ck_assert_str_eq(ready, ".ab.c.");
    ck_assert_uint_eq(negotiation.groups.count, 0);
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

/* ---- many ranks, any order ---- */

struct rank {
    uint32_t order[MOST]; /* of tensors */
    uint32_t next;
};

static void shuffle(uint32_t *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)random() % i, swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

/* The model: tensor t is done when all ranks have come to it, and never before. */
START_TEST(tensors_in_any_order_are_ready_when_all_ranks_want_them)
{
    srandom((unsigned)_i + 1);
    uint32_t nranks = 1 + (uint32_t)random() % 8, ntensors = 1 + (uint32_t)random() % MOST;
    struct rank ranks[8] = {0};
    uint32_t come[MOST] = {0}, done[MOST] = {0}, ndone = 0;
    struct ddpi_negotiation negotiation;
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, nranks, NULL), DDP_OK);
    for (uint32_t rank = 0; rank < nranks; rank++)
        shuffle(ranks[rank].order, ntensors);
    while (ndone < ntensors) {
        for (uint32_t rank = 0; rank < nranks; rank++)
            for (long left = random() % 4; left > 0 && ranks[rank].next < ntensors; left--) {
                uint32_t tensor = ranks[rank].order[ranks[rank].next++];
                char name[16];
                snprintf(name, sizeof name, "tensor %u", tensor);
                struct ddpi_tensor_request request = request_of(name, tensor);
                give(&negotiation, rank, &request);
                come[tensor]++;
            }
        for (struct ddpi_wanted_tensor *wanted; (wanted = next_of(&negotiation)) != NULL;) {
            uint64_t tensor = wanted->response.request.count;
            ck_assert_uint_eq(come[tensor], nranks);
            ck_assert(!wanted->response.failed);
            done[tensor]++;
            ndone++;
            ddpi_free(wanted);
        }
        for (uint32_t tensor = 0; tensor < ntensors; tensor++)
            ck_assert_uint_eq(done[tensor], come[tensor] == nranks);
    }
    ck_assert_uint_eq(negotiation.names.count, 0);
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

/* Each rank has each tensor alone or in the group of a tensor before it; mostly in the same. */
enum { GROUP_RANKS = 3, GROUP_TENSORS = 7, GROUP_STEPS = 40 };

struct grouping {
    uint32_t first[GROUP_RANKS][GROUP_TENSORS]; /* of its group */
    uint64_t count[GROUP_RANKS][GROUP_TENSORS];
};

static void choose_grouping(struct grouping *grouping)
{
    for (uint32_t t = 0; t < GROUP_TENSORS; t++) {
        uint32_t before = (uint32_t)random() % (t + 1);
        for (uint32_t rank = 0; rank < GROUP_RANKS; rank++) {
            bool alone = random() % 20 == 0;
            grouping->first[rank][t] = alone ? t : grouping->first[rank][before];
            if (before == t)
                grouping->first[rank][t] = t;
            grouping->count[rank][t] = 4 + (random() % 50 == 0);
        }
    }
}

static struct ddpi_tensor_request grouped(const struct grouping *grouping, uint32_t rank,
                                          uint32_t tensor)
{
    struct ddpi_tensor_request request =
        request_of((char[]){(char)('a' + tensor), '\0'}, grouping->count[rank][tensor]);
    uint32_t first = grouping->first[rank][tensor];
    for (uint32_t t = 0; t < GROUP_TENSORS; t++)
        request.group_size += grouping->first[rank][t] == first;
    if (request.group_size == 1)
        request.group_size = 0;
    else
        request.group[0] = (char)('a' + first);
    return request;
}

/* The model: a tensor fails if it differs between ranks, or one with which it is in a group on some
 * rank fails. */
static void model_failures(const struct grouping *grouping, bool fails[GROUP_TENSORS])
{
    char a[DDPI_TENSOR_VALUE], b[DDPI_TENSOR_VALUE];
    for (uint32_t t = 0; t < GROUP_TENSORS; t++)
        for (uint32_t rank = 1; rank < GROUP_RANKS; rank++) {
            struct ddpi_tensor_request one = grouped(grouping, 0, t);
            struct ddpi_tensor_request other = grouped(grouping, rank, t);
            fails[t] = fails[t] || ddpi_tensor_difference(&one, &other, a, b) != NULL;
        }
    for (bool more = true; more;) {
        more = false;
        for (uint32_t rank = 0; rank < GROUP_RANKS; rank++)
            for (uint32_t t = 0; t < GROUP_TENSORS; t++)
                for (uint32_t u = 0; u < GROUP_TENSORS; u++)
                    if (grouping->first[rank][t] == grouping->first[rank][u] && fails[t] &&
                        !fails[u])
                        more = fails[u] = true;
    }
}

START_TEST(groups_that_differ_fail_together_in_any_order)
{
    struct ddpi_negotiation negotiation;
    struct rank ranks[GROUP_RANKS];
    srandom((unsigned)_i + 1);
    ck_assert_int_eq(ddpi_negotiation_init(&negotiation, GROUP_RANKS, NULL), DDP_OK);
    for (int step = 0; step < GROUP_STEPS; step++) {
        struct grouping grouping;
        bool fails[GROUP_TENSORS] = {false};
        uint32_t left = GROUP_TENSORS;
        choose_grouping(&grouping);
        model_failures(&grouping, fails);
        for (uint32_t rank = 0; rank < GROUP_RANKS; rank++) {
            shuffle(ranks[rank].order, GROUP_TENSORS);
            ranks[rank].next = 0;
        }
        for (int cycle = 0; cycle < 1000 && left > 0; cycle++) {
            for (uint32_t rank = 0; rank < GROUP_RANKS; rank++)
                for (long n = random() % 4; n > 0 && ranks[rank].next < GROUP_TENSORS; n--) {
                    struct ddpi_tensor_request request =
                        grouped(&grouping, rank, ranks[rank].order[ranks[rank].next++]);
                    give(&negotiation, rank, &request);
                }
            for (struct ddpi_wanted_tensor *wanted; (wanted = next_of(&negotiation)) != NULL;) {
                ck_assert_int_eq(wanted->response.failed,
                                 fails[wanted->response.request.name[0] - 'a']);
                left--;
                ddpi_free(wanted);
            }
        }
        ck_assert_uint_eq(left, 0);
        ck_assert_uint_eq(negotiation.names.count + negotiation.groups.count, 0);
    }
    ddpi_negotiation_finish(&negotiation);
}
END_TEST

/* ---- cache ---- */

static void put(struct ddpi_response_cache *cache, const char *name, const char *group,
                uint32_t group_size)
{
    struct ddpi_tensor_request request = request_of(name, 1);
    snprintf(request.group, sizeof request.group, "%s", group);
    request.group_size = group_size;
    ck_assert_int_eq(ddpi_response_cache_put(cache, &request, NULL), DDP_OK);
}

static bool cached(struct ddpi_response_cache *cache, const char *name, const char *group,
                   uint32_t group_size)
{
    uint32_t slot;
    struct ddpi_tensor_request request = request_of(name, 1);
    snprintf(request.group, sizeof request.group, "%s", group);
    request.group_size = group_size;
    return ddpi_response_cache_find(cache, &request, &slot) == DDPI_CACHE_HIT;
}

START_TEST(the_cache_keeps_what_was_used_last_and_groups_whole)
{
    struct ddpi_response_cache cache;
    uint32_t slots[3], slot;
    ck_assert_int_eq(ddpi_response_cache_init(&cache, 3, NULL), DDP_OK);
    put(&cache, "a", "", 0);
    put(&cache, "b", "b", 2);
    put(&cache, "c", "b", 2);
    ck_assert_uint_eq(ddpi_response_cache_hits(&cache, (uint64_t[]){3}, slots), 1);
    ck_assert_uint_eq(ddpi_response_cache_hits(&cache, (uint64_t[]){7}, slots), 3);
    ck_assert_uint_eq(ddpi_response_cache_hits(&cache, (uint64_t[]){1}, slots), 1);
    put(&cache, "d", "", 0); /* in place of b, and c goes with it */
    ck_assert(cached(&cache, "a", "", 0) && cached(&cache, "d", "", 0));
    ck_assert(!cached(&cache, "b", "b", 2) && !cached(&cache, "c", "b", 2));
    struct ddpi_tensor_request other = request_of("a", 2);
    ck_assert_int_eq(ddpi_response_cache_find(&cache, &other, &slot), DDPI_CACHE_DIFFERS);
    ddpi_response_cache_evict(&cache, slot);
    ck_assert(!cached(&cache, "a", "", 0));
    put(&cache, "e", "e", 4); /* larger than the cache */
    ck_assert_uint_eq(cache.names.count, 1);
    ddpi_response_cache_finish(&cache);
}
END_TEST

/* The cache against a plain array: the last `capacity` names used are there. */
START_TEST(the_cache_is_that_of_a_plain_model)
{
    struct ddpi_response_cache cache;
    uint32_t capacity = 1 + (uint32_t)_i % 9, used[26] = {0}, now = 0, slot;
    srandom((unsigned)_i);
    ck_assert_int_eq(ddpi_response_cache_init(&cache, capacity, NULL), DDP_OK);
    for (int step = 0; step < 500; step++) {
        uint32_t letter = (uint32_t)random() % 26, later = 0;
        struct ddpi_tensor_request request = request_of((char[]){(char)('a' + letter), '\0'}, 1);
        for (uint32_t i = 0; i < 26; i++)
            later += used[i] > used[letter];
        bool there = used[letter] != 0 && later < capacity;
        ck_assert_int_eq(ddpi_response_cache_find(&cache, &request, &slot),
                         there ? DDPI_CACHE_HIT : DDPI_CACHE_MISS);
        if (there) {
            uint64_t bits = (uint64_t)1 << slot;
            uint32_t slots[26];
            ck_assert_uint_eq(ddpi_response_cache_hits(&cache, &bits, slots), 1);
        } else {
            ck_assert_int_eq(ddpi_response_cache_put(&cache, &request, NULL), DDP_OK);
        }
        used[letter] = ++now;
    }
    ddpi_response_cache_finish(&cache);
}
END_TEST

/* ---- fusion ---- */

struct fusion_row {
    size_t threshold;
    const char *tensors; /* a letter for each type, a digit for its count; "(" and ")" a group */
    const char *expected;
};

/* f: a sum of float32, F: on a GPU, d: of float64, i: of int32, g: an all_gather of float32; m: a
 * maximum, a: an average, p: with another prescale, q: with another postscale */
static const struct fusion_row fusion_rows[] = {
    {12, "f1f2", "[0 1]"},
    {11, "f1f2", "[0] [1]"}, /* never above */
    {0, "f1f1", "[0] [1]"},
    {4, "f2f1f1", "[0] [1] [2]"},
    {100, "f1d1f1d1", "[0 2] [1 3]"},
    {100, "f1i1f1", "[0 2] [1]"},
    {100, "f1g1f1", "[0 2] [1]"},
    /* What is skipped counts: 4 + 8 bytes are looked past, 4 + 16 are not. */
    {16, "f1d1f1", "[0 2] [1]"},
    {16, "f1d2f1", "[0] [1] [2]"},
    {12, "f1f3f1", "[0] [1] [2]"},
    {100, "f1(f1f1)", "[0 1 2]"},
    {8, "f1(f1f1)f1", "[0] [1 2] [3]"}, /* a group is not divided */
    {4, "(f1f1)f1", "[0 1] [2]"},       /* even above the threshold */
    {100, "(f1d1)f1", "[0 2] [1]"},
    {100, "f1m1f1a1m1", "[0 2] [1 4] [3]"},
    {100, "f1p1q1p1f1", "[0 4] [1 3] [2]"},
    {100, "f1F1f1F1", "[0 2] [1 3]"},
    /* On a GPU each takes a multiple of 16 bytes. */
    {32, "F1F4F1", "[0 1] [2]"},
    {31, "F1F1", "[0] [1]"},
    {16, "(F1F1)F1", "[0 1] [2]"},
};

static size_t parse_tensors(const char *text, struct ddpi_tensor_response *responses)
{
    size_t count = 0, group = MOST;
    for (; *text != '\0'; text++) {
        if (*text == '(') {
            group = count;
        } else if (*text == ')') {
            for (size_t i = group; i < count; i++) {
                responses[i].request.group_size = (uint32_t)(count - group);
                snprintf(responses[i].request.group, DDPI_TENSOR_NAME, "%zu", group);
            }
        } else {
            struct ddpi_tensor_request request = request_of("x", (uint64_t)(text[1] - '0'));
            request.dtype = *text == 'd' ? DDP_FLOAT64 : *text == 'i' ? DDP_INT32 : DDP_FLOAT32;
            if (*text == 'g')
                request.kind = DDPI_TENSOR_ALL_GATHER;
            request.on_gpu = *text == 'F';
            request.op = *text == 'm' ? DDP_MAX : *text == 'a' ? DDP_AVERAGE : DDP_SUM;
            request.prescale = *text == 'p' ? 0.5 : 1;
            request.postscale = *text == 'q' ? 0.5 : 1;
            responses[count++] = (struct ddpi_tensor_response){.request = request};
            text++;
        }
    }
    return count;
}

START_TEST(fusion_follows_horovods_rules)
{
    const struct fusion_row *row = &fusion_rows[_i];
    struct ddpi_tensor_response responses[MOST];
    const struct ddpi_tensor_response *ready[MOST];
    size_t order[MOST], ends[MOST], used = 0, at = 0;
    bool taken[MOST];
    char text[256] = "";
    size_t count = parse_tensors(row->tensors, responses);
    for (size_t i = 0; i < count; i++)
        ready[i] = &responses[i];
    size_t batches = ddpi_tensor_fuse(ready, count, row->threshold, order, ends, taken);
    for (size_t batch = 0; batch < batches; batch++) {
        used += (size_t)snprintf(text + used, sizeof text - used, batch > 0 ? " [" : "[");
        for (size_t first = at; at < ends[batch]; at++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu",
                                     at > first ? " " : "", order[at]);
        used += (size_t)snprintf(text + used, sizeof text - used, "]");
    }
    ck_assert_str_eq(text, row->expected);
}
END_TEST

/* ---- scaling ---- */

START_TEST(integers_are_scaled_in_float64_and_truncated)
{
    int32_t ints[] = {7, -7, INT32_MAX, INT32_MIN};
    ddpi_tensor_scale(ints, ints, 2, DDP_INT32, 0.5);
    ddpi_tensor_scale(ints + 2, ints + 2, 2, DDP_INT32, 2);
    ck_assert_int_eq(ints[0], 3);
    ck_assert_int_eq(ints[1], -3);
    ck_assert_int_eq(ints[2], INT32_MAX);
    ck_assert_int_eq(ints[3], INT32_MIN);
    uint64_t wide[] = {10, UINT64_MAX};
    ddpi_tensor_scale(wide, wide, 2, DDP_UINT64, -1);
    ck_assert_uint_eq(wide[0], 0);
    ck_assert_uint_eq(wide[1], 0);
    float floats[] = {3};
    ddpi_tensor_scale(floats, floats, 1, DDP_FLOAT32, 0.1);
    ck_assert(floats[0] == 3 * 0.1f);
    ck_assert(ddpi_tensor_can_scale(DDP_FLOAT16) && !ddpi_tensor_can_scale(DDP_BOOL));
}
END_TEST

/* ---- memory ---- */

static ddp_status negotiate_once(struct ddp_error *err)
{
    struct ddpi_negotiation negotiation;
    struct ddpi_response_cache cache;
    struct ddpi_tensor_request request = request_of("a", 4);
    struct ddpi_buf list;
    request.group_size = 1;
    snprintf(request.group, sizeof request.group, "%s", "a");
    ddp_status status = ddpi_negotiation_init(&negotiation, 1, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_response_cache_init(&cache, 4, err);
    if (status == DDP_OK) {
        ddpi_buf_init(&list, LIST_LIMIT);
        if (!ddpi_tensor_request_put(&list, &request))
            status = DDP_E_NOMEM;
        if (status == DDP_OK)
            status = ddpi_negotiation_take(&negotiation, 0, ddpi_buf_head(&list),
                                           ddpi_buf_len(&list), 0, err);
        ddpi_negotiation_settle(&negotiation);
        if (status == DDP_OK)
            status = ddpi_response_cache_put(&cache, &request, err);
        ddpi_buf_finish(&list);
        ddpi_response_cache_finish(&cache);
    }
    ddpi_negotiation_finish(&negotiation);
    return status;
}

START_TEST(each_allocation_may_fail)
{
    struct ddp_error err;
    ddp_status status = DDP_E_NOMEM;
    unsigned good = 0;
    for (bool failed = true; failed; good++) {
        failmem_start(good);
        status = negotiate_once(&err);
        failed = failmem_stop();
        ck_assert_int_eq(status, failed ? DDP_E_NOMEM : DDP_OK);
    }
    ck_assert_uint_gt(good, 8);
}
END_TEST

#define ROWS(table) (int)(sizeof(table) / sizeof((table)[0]))

Suite *test_suite(void)
{
    Suite *suite = suite_create("tensor_negotiation");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, a_request_survives_its_bytes_and_no_cut_does);
    tcase_add_test(tcase, any_bytes_are_read_or_refused);
    tcase_add_test(tcase, a_rank_cannot_want_a_tensor_twice_or_in_a_set_without_it);
    tcase_add_loop_test(tcase, a_difference_names_tensor_ranks_and_values, 0, ROWS(differences));
    tcase_add_test(tcase, joined_ranks_need_not_come_to_what_goes_on_without_them);
    tcase_add_loop_test(tcase, joined_ranks_take_no_part_in_what_they_cannot_give, 0,
                        ROWS(joined_rows));
    tcase_add_test(tcase, a_group_is_ready_and_fails_as_a_whole);
    tcase_add_loop_test(tcase, a_tensor_that_is_in_a_group_on_some_ranks_fails_with_it, 0,
                        ROWS(group_rows));
    tcase_add_test(tcase, a_group_with_what_a_joined_rank_does_not_give_fails);
    tcase_add_loop_test(tcase, groups_that_differ_fail_together_in_any_order, 0, 50);
    tcase_add_loop_test(tcase, tensors_in_any_order_are_ready_when_all_ranks_want_them, 0, 50);
    tcase_add_test(tcase, the_cache_keeps_what_was_used_last_and_groups_whole);
    tcase_add_loop_test(tcase, the_cache_is_that_of_a_plain_model, 0, 18);
    tcase_add_loop_test(tcase, fusion_follows_horovods_rules, 0, ROWS(fusion_rows));
    tcase_add_test(tcase, integers_are_scaled_in_float64_and_truncated);
    tcase_add_test(tcase, each_allocation_may_fail);
    suite_add_tcase(suite, tcase);
    return suite;
}
