"""The C interface as ctypes has it: structs, numbers and names of <ddprun/comm.h> and <ddprun/store.h>.

A mirror, no more: tests/python/test_package_layout.py compares it with the headers. It loads no library.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p

# Status: number -> name (DDP_STATUS_MAP).
STATUSES = {
    0: 'ok', -1: 'no-memory', -2: 'system', -3: 'invalid', -4: 'protocol', -5: 'internal', -6: 'unsupported', -7: 'cuda',
    1: 'timeout', 2: 'not-found', 3: 'conflict', 4: 'closed', 5: 'unreachable', 6: 'denied', 7: 'limit', 8: 'type',
    9: 'mismatch', 10: 'peer-dead', 11: 'aborted', 12: 'gone', 13: 'canceled'}
STATUS_NUMBERS = {name: number for number, name in STATUSES.items()}

# Element type: name -> (number, bytes) (DDP_DTYPE_MAP).
DTYPES = {name: (number, size) for number, (name, size) in enumerate((
    ('float32', 4), ('float64', 8), ('float16', 2), ('bfloat16', 2), ('int32', 4), ('int64', 8), ('uint8', 1), ('int8', 1),
    ('int16', 2), ('uint16', 2), ('uint32', 4), ('uint64', 8), ('bool', 1), ('float8_e4m3', 1), ('float8_e5m2', 1),
    ('complex64', 8), ('complex128', 16), ('byte', 1)))}

# Reductions and algorithms: name -> number (DDP_REDUCE_OP_MAP, DDP_ALGORITHM_MAP).
REDUCE_OPS = {name: number for number, name in enumerate((
    'sum', 'average', 'min', 'max', 'product', 'bit_and', 'bit_or', 'bit_xor', 'premul_sum', 'average_before'))}
ALGORITHMS = {name: number for number, name in enumerate(('auto', 'ring', 'direct', 'doubling', 'hierarchical'))}

# enum ddp_kind
(BARRIER, MONITORED_BARRIER, BROADCAST, ALL_REDUCE, REDUCE, ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, ALL_TO_ALL, SEND,
 RECV) = range(12)

ANY_RANK = 0xffffffff
NO_COLOR = -1
SHRINK_ABORT = 1
STORE_FOREVER = 0xffffffff
STORE_NO_RECONNECT, STORE_TLS = 1, 2
STORE_AUTH_DEFAULT, STORE_AUTH_NONE, STORE_AUTH_TOKEN, STORE_AUTH_BEYOND_LOOPBACK = range(4)
STORE_ROLES = {'agent': 0, 'worker': 1, 'observer': 2}


class CError(Structure):
    """struct ddp_error"""
    _fields_ = [('status', c_int), ('sys_errno', c_int), ('msg', c_char * 1024)]


class UniqueId(Structure):
    """struct ddp_unique_id"""
    _fields_ = [('bytes', c_char * 128)]


KV_SET = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(CError))
KV_GET = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_size_t), POINTER(CError))
KV_WAIT = CFUNCTYPE(c_int, c_void_p, c_char_p, c_uint32, POINTER(CError))
KV_REMOVE = CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(CError))


class Kv(Structure):
    """struct ddp_kv"""
    _fields_ = [('size', c_size_t), ('ctx', c_void_p), ('set', KV_SET), ('get', KV_GET), ('wait', KV_WAIT),
                ('remove', KV_REMOVE)]


class CommOptions(Structure):
    """struct ddp_comm_options"""
    _fields_ = [('size', c_size_t), ('store_endpoint', c_char_p), ('store_prefix', c_char_p), ('name', c_char_p),
                ('world_size', c_uint32), ('rank', c_uint32), ('init_timeout_ms', c_uint32), ('timeout_ms', c_uint32),
                ('force_tcp', c_uint32), ('algorithm', c_int), ('kv', POINTER(Kv)), ('unique_id', POINTER(UniqueId))]


class CommStats(Structure):
    """struct ddp_comm_stats"""
    _fields_ = [('size', c_size_t)] + [(name, c_uint64) for name in (
        'operations', 'bytes_sent', 'bytes_received', 'stream_us', 'exchange_us', 'work_us', 'completion_us', 'seq', 'nodes')]


class ListedBuffer(Structure):
    """struct ddp_buffer"""
    _fields_ = [('send', c_void_p), ('recv', c_void_p), ('count', c_size_t)]


class Operation(Structure):
    """struct ddp_operation"""
    _fields_ = [('size', c_size_t), ('kind', c_int), ('send', c_void_p), ('recv', c_void_p), ('count', c_size_t),
                ('dtype', c_int), ('op', c_int), ('factor', c_double), ('peer', c_uint32), ('tag', c_uint32),
                ('timeout_ms', c_uint32), ('uneven', c_uint32), ('send_counts', POINTER(c_size_t)),
                ('send_offsets', POINTER(c_size_t)), ('recv_counts', POINTER(c_size_t)), ('recv_offsets', POINTER(c_size_t)),
                ('stream', c_void_p), ('source', POINTER(c_uint32)), ('on_done', c_void_p), ('ctx', c_void_p),
                ('buffers', POINTER(ListedBuffer)), ('nbuffers', c_size_t), ('non_finite', POINTER(c_uint32))]


class StoreOptions(Structure):
    """struct ddp_store_options"""
    _fields_ = [('size', c_size_t), ('endpoint', c_char_p), ('prefix', c_char_p), ('connect_timeout_ms', c_uint32),
                ('auth', c_int), ('token_file', c_char_p), ('token_fd', c_int), ('role', c_int), ('job', c_char_p),
                ('epoch', c_uint64), ('flags', c_uint32)]


class StoreValue(Structure):
    """struct ddp_store_value"""
    _fields_ = [('version', c_uint64), ('value', c_void_p), ('value_len', c_size_t)]


# Struct of a header -> its mirror, for the test of the layouts.
STRUCTS: dict[str, type[Structure]] = {
    'ddp_error': CError, 'ddp_unique_id': UniqueId, 'ddp_kv': Kv, 'ddp_comm_options': CommOptions,
    'ddp_comm_stats': CommStats, 'ddp_buffer': ListedBuffer, 'ddp_operation': Operation,
    'ddp_store_options': StoreOptions, 'ddp_store_value': StoreValue}

# Functions: name -> (what they return, their arguments before the struct ddp_error, which all of these take last).
_ADDRESS, _OUT = c_void_p, POINTER(c_void_p)
COMM_CALLS: dict[str, list[object]] = {
    'ddp_get_unique_id': [POINTER(UniqueId)],
    'ddp_comm_init': [POINTER(CommOptions), _OUT],
    'ddp_comm_init_local': [c_uint32, POINTER(c_int), _OUT],
    'ddp_comm_finalize': [_ADDRESS, c_uint32],
    'ddp_comm_check': [_ADDRESS],
    'ddp_comm_set_timeout': [_ADDRESS, c_uint32],
    'ddp_comm_split': [_ADDRESS, c_int, c_int, _OUT],
    'ddp_comm_create_group': [_ADDRESS, POINTER(c_uint32), c_uint32, _OUT],
    'ddp_comm_shrink': [_ADDRESS, POINTER(c_uint32), c_uint32, c_uint32, c_uint32, _OUT],
    'ddp_comm_start_progress': [_ADDRESS],
    'ddp_all_reduce': [_ADDRESS, _ADDRESS, _ADDRESS, c_size_t, c_int, c_int, c_void_p],
    'ddp_send_recv': [_ADDRESS, _ADDRESS, c_size_t, c_uint32, _ADDRESS, c_size_t, c_uint32, c_int, c_void_p],
    'ddp_barrier': [_ADDRESS, c_void_p],
    'ddp_monitored_barrier': [_ADDRESS, c_uint32],
    'ddp_run': [_ADDRESS, POINTER(Operation)],
    'ddp_start': [_ADDRESS, POINTER(Operation), _OUT],
    'ddp_request_test': [_ADDRESS, POINTER(c_int)],
    'ddp_request_wait': [_ADDRESS, c_uint32, POINTER(c_int)],
    'ddp_group_start': [_ADDRESS],
    'ddp_group_end': [_ADDRESS],
}
STORE_CALLS: dict[str, list[object]] = {
    'ddp_store_connect': [POINTER(StoreOptions), _OUT],
    'ddp_store_set': [_ADDRESS, c_char_p, c_char_p, c_size_t, c_uint32, POINTER(c_uint64)],
    'ddp_store_get': [_ADDRESS, c_char_p, c_uint32, _OUT, POINTER(c_size_t), POINTER(c_uint64)],
    'ddp_store_try_get': [_ADDRESS, c_char_p, c_uint32, _OUT, POINTER(c_size_t), POINTER(c_uint64)],
    'ddp_store_try_get_many': [_ADDRESS, POINTER(c_char_p), c_size_t, c_uint32, POINTER(POINTER(StoreValue))],
    'ddp_store_add': [_ADDRESS, c_char_p, ctypes.c_int64, c_uint32, POINTER(ctypes.c_int64)],
    'ddp_store_compare_and_swap': [_ADDRESS, c_char_p, c_uint64, c_char_p, c_size_t, c_uint32, POINTER(c_uint64)],
    'ddp_store_compare_and_swap_value': [_ADDRESS, c_char_p, c_char_p, c_size_t, c_char_p, c_size_t, c_uint32,
                                         POINTER(c_uint64)],
    'ddp_store_wait': [_ADDRESS, POINTER(c_char_p), c_size_t, c_uint32],
    'ddp_store_delete': [_ADDRESS, c_char_p, c_uint32],
    'ddp_store_list': [_ADDRESS, c_char_p, c_uint32, POINTER(POINTER(c_char_p)), POINTER(c_size_t)],
}

# Functions that take no struct ddp_error: name -> (result, arguments).
COMM_OTHERS: dict[str, tuple[object, list[object]]] = {
    'ddp_version': (c_char_p, []),
    'ddp_comm_destroy': (None, [_ADDRESS]),
    'ddp_comm_abort': (None, [_ADDRESS]),
    'ddp_comm_rank': (c_uint32, [_ADDRESS]),
    'ddp_comm_world_size': (c_uint32, [_ADDRESS]),
    'ddp_comm_get_timeout': (c_uint32, [_ADDRESS]),
    'ddp_comm_get_stats': (c_int, [_ADDRESS, POINTER(CommStats)]),
    'ddp_drop_unique_id': (None, [POINTER(UniqueId)]),
    'ddp_request_free': (None, [_ADDRESS]),
}
STORE_OTHERS: dict[str, tuple[object, list[object]]] = {
    'ddp_store_version': (c_char_p, []),
    'ddp_store_cancel': (None, [_ADDRESS]),
    'ddp_store_close': (None, [_ADDRESS]),
    'ddp_store_free': (None, [c_void_p]),
}
