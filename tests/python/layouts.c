/*
 * layouts.c - prints how the compiler lays out the public structs: "struct size", then
 * "struct.member offset size" for each member. test_package_layout.py compares that with the
 * package's mirror.
 */
#include <ddprun/comm.h>
#include <ddprun/store.h>
#include <stdio.h>

#define STRUCT(type) printf(#type " %zu\n", sizeof(struct type))
#define MEMBER(type, member)                                              \
    printf(#type "." #member " %zu %zu\n", offsetof(struct type, member), \
           sizeof(((struct type *)NULL)->member))

static void print_small(void)
{
    STRUCT(ddp_error);
    MEMBER(ddp_error, status);
    MEMBER(ddp_error, sys_errno);
    MEMBER(ddp_error, msg);
    STRUCT(ddp_unique_id);
    MEMBER(ddp_unique_id, bytes);
    STRUCT(ddp_buffer);
    MEMBER(ddp_buffer, send);
    MEMBER(ddp_buffer, recv);
    MEMBER(ddp_buffer, count);
    STRUCT(ddp_store_value);
    MEMBER(ddp_store_value, version);
    MEMBER(ddp_store_value, value);
    MEMBER(ddp_store_value, value_len);
    STRUCT(ddp_kv);
    MEMBER(ddp_kv, size);
    MEMBER(ddp_kv, ctx);
    MEMBER(ddp_kv, set);
    MEMBER(ddp_kv, get);
    MEMBER(ddp_kv, wait);
    MEMBER(ddp_kv, remove);
}

static void print_options(void)
{
    STRUCT(ddp_comm_options);
    MEMBER(ddp_comm_options, size);
    MEMBER(ddp_comm_options, store_endpoint);
    MEMBER(ddp_comm_options, store_prefix);
    MEMBER(ddp_comm_options, name);
    MEMBER(ddp_comm_options, world_size);
    MEMBER(ddp_comm_options, rank);
    MEMBER(ddp_comm_options, init_timeout_ms);
    MEMBER(ddp_comm_options, timeout_ms);
    MEMBER(ddp_comm_options, force_tcp);
    MEMBER(ddp_comm_options, algorithm);
    MEMBER(ddp_comm_options, kv);
    MEMBER(ddp_comm_options, unique_id);
    STRUCT(ddp_store_options);
    MEMBER(ddp_store_options, size);
    MEMBER(ddp_store_options, endpoint);
    MEMBER(ddp_store_options, prefix);
    MEMBER(ddp_store_options, connect_timeout_ms);
    MEMBER(ddp_store_options, auth);
    MEMBER(ddp_store_options, token_file);
    MEMBER(ddp_store_options, token_fd);
    MEMBER(ddp_store_options, role);
    MEMBER(ddp_store_options, job);
    MEMBER(ddp_store_options, epoch);
    MEMBER(ddp_store_options, flags);
}

static void print_stats(void)
{
    STRUCT(ddp_comm_stats);
    MEMBER(ddp_comm_stats, size);
    MEMBER(ddp_comm_stats, operations);
    MEMBER(ddp_comm_stats, bytes_sent);
    MEMBER(ddp_comm_stats, bytes_received);
    MEMBER(ddp_comm_stats, stream_us);
    MEMBER(ddp_comm_stats, exchange_us);
    MEMBER(ddp_comm_stats, work_us);
    MEMBER(ddp_comm_stats, completion_us);
    MEMBER(ddp_comm_stats, seq);
    MEMBER(ddp_comm_stats, nodes);
}

static void print_operation(void)
{
    STRUCT(ddp_operation);
    MEMBER(ddp_operation, size);
    MEMBER(ddp_operation, kind);
    MEMBER(ddp_operation, send);
    MEMBER(ddp_operation, recv);
    MEMBER(ddp_operation, count);
    MEMBER(ddp_operation, dtype);
    MEMBER(ddp_operation, op);
    MEMBER(ddp_operation, factor);
    MEMBER(ddp_operation, peer);
    MEMBER(ddp_operation, tag);
    MEMBER(ddp_operation, timeout_ms);
    MEMBER(ddp_operation, uneven);
    MEMBER(ddp_operation, send_counts);
    MEMBER(ddp_operation, send_offsets);
    MEMBER(ddp_operation, recv_counts);
    MEMBER(ddp_operation, recv_offsets);
    MEMBER(ddp_operation, stream);
    MEMBER(ddp_operation, source);
    MEMBER(ddp_operation, on_done);
    MEMBER(ddp_operation, ctx);
    MEMBER(ddp_operation, buffers);
    MEMBER(ddp_operation, nbuffers);
    MEMBER(ddp_operation, non_finite);
}

/* Names with their numbers: "kind name number bytes". */
static void print_names(void)
{
#define STATUS(symbol, value, name, text, retryable) printf("status %s %d 0\n", name, symbol);
    DDP_STATUS_MAP(STATUS)
#define DTYPE(symbol, size, name) printf("dtype %s %d %d\n", name, symbol, size);
    DDP_DTYPE_MAP(DTYPE)
#define REDUCE_OP(symbol, name) printf("op %s %d 0\n", name, symbol);
    DDP_REDUCE_OP_MAP(REDUCE_OP)
#define ALGORITHM(symbol, name) printf("algorithm %s %d 0\n", name, symbol);
    DDP_ALGORITHM_MAP(ALGORITHM)
    printf("kind RECV %d 0\n", DDP_KIND_RECV);
    printf("kind BROADCAST %d 0\n", DDP_KIND_BROADCAST);
    printf("kind ALL_TO_ALL %d 0\n", DDP_KIND_ALL_TO_ALL);
}

int main(void)
{
    print_small();
    print_options();
    print_stats();
    print_operation();
    print_names();
    return 0;
}
