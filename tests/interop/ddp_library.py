"""ddp_library.py - libddpcomm's reducer for Python tests: the structs of <ddprun/ddp_reducer.h> by ctypes, which the package
ddprun does not have. A mirror of the C interface, no more."""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from ddprun import libraries

FLOAT32, FLOAT64, FLOAT16, BFLOAT16 = 0, 1, 2, 3
AVERAGE_BEFORE, AVERAGE_AFTER, SUM = 0, 1, 2


class Parameter(Structure):
    _fields_ = [('name', c_char_p), ('data', c_void_p), ('gradient', c_void_p), ('count', c_size_t),
                ('rows', c_size_t), ('dtype', c_int)]


class Hook(Structure):
    _fields_ = [('stage', c_void_p), ('forget', c_void_p), ('ctx', c_void_p)]


class Options(Structure):
    _fields_ = [('size', c_size_t), ('parameters', POINTER(Parameter)), ('nparameters', c_size_t),
                ('buffers', POINTER(Parameter)), ('nbuffers', c_size_t), ('bucket_bytes', POINTER(c_size_t)),
                ('nbucket_bytes', c_size_t), ('message_size', c_size_t), ('average', c_int), ('predivide', c_double),
                ('hook', POINTER(Hook)), ('as_views', c_uint32), ('view_memory', c_void_p), ('on_device', c_uint32),
                ('find_unused', c_uint32), ('static_graph', c_uint32), ('check_finite', c_uint32),
                ('delay_all_reduce', c_uint32), ('uneven_inputs', c_uint32), ('divide_by_active', c_uint32),
                ('no_broadcast', c_uint32), ('no_progress_thread', c_uint32), ('trace', c_char_p)]


class Compression(Structure):
    _fields_ = [('dtype', c_int), ('average', c_int), ('predivide', c_double), ('inner', POINTER(Hook))]


class PowerSgdOptions(Structure):
    _fields_ = [('size', c_size_t), ('rank', c_uint32), ('start_step', c_uint64), ('min_compression_rate', c_double),
                ('no_error_feedback', c_uint32), ('no_warm_start', c_uint32), ('seed', c_uint64)]


class Stats(Structure):
    _fields_ = [('size', c_size_t)] + [(name, c_uint64) for name in (
        'steps', 'rebuilds', 'buckets', 'bytes', 'step_us', 'reduce_us', 'exposed_us')]


class BucketStats(Structure):
    _fields_ = [('size', c_size_t)] + [(name, c_uint64) for name in (
        'bytes', 'gradients', 'first_ready_us', 'full_us', 'begin_us', 'end_us')]


LIBRARY = libraries.comm()
LIBRARY.ddp_reducer_gradient.restype = c_void_p
LIBRARY.ddp_reducer_destroy.restype = None
LIBRARY.ddp_compression_hook.restype = Hook
LIBRARY.ddp_power_sgd_hook.restype = Hook
LIBRARY.ddp_power_sgd_destroy.restype = None


def call(name, *arguments):
    """Call a function whose last argument is a struct ddp_error."""
    libraries.call(getattr(LIBRARY, name), *arguments)


class Communicator:
    def __init__(self):
        self.handle = c_void_p()
        call('ddp_comm_init', None, byref(self.handle))

    def close(self):
        LIBRARY.ddp_comm_destroy(self.handle)


class Reducer:
    """@parameters: (data, gradient, count, rows, dtype), with addresses as numbers or None."""

    def __init__(self, comm, parameters, limits=None, hook=None, **options):
        array = (Parameter * len(parameters))(*[
            Parameter(f'p{i}'.encode(), *parameter) for i, parameter in enumerate(parameters)])
        self.options = Options(size=ctypes.sizeof(Options), parameters=array, nparameters=len(parameters), **options)
        if limits:
            self.options.bucket_bytes = (c_size_t * len(limits))(*limits)
            self.options.nbucket_bytes = len(limits)
        if hook:
            self.options.hook = ctypes.pointer(hook)
        self.count = len(parameters)
        self.handle = c_void_p()
        call('ddp_reducer_create', comm.handle, byref(self.options), byref(self.handle))

    def gradient(self, parameter):
        return LIBRARY.ddp_reducer_gradient(self.handle, c_size_t(parameter))

    def begin(self):
        call('ddp_reducer_begin', self.handle)

    def ready(self, parameter):
        call('ddp_reducer_ready', self.handle, c_size_t(parameter), None)

    def finish(self):
        call('ddp_reducer_finish', self.handle)

    def set_sync(self, sync):
        call('ddp_reducer_set_sync', self.handle, c_int(sync))

    def join(self):
        last = c_uint32()
        call('ddp_reducer_join', self.handle, byref(last))
        return last.value

    def buckets(self):
        """The parameters of each bucket, in the order in which buckets are reduced."""
        stats = Stats(size=ctypes.sizeof(Stats))
        assert LIBRARY.ddp_reducer_get_stats(self.handle, byref(stats)) == 0
        lists = []
        for bucket in range(stats.buckets):
            one = BucketStats(size=ctypes.sizeof(BucketStats))
            members = (c_uint32 * self.count)()
            assert LIBRARY.ddp_reducer_get_bucket(self.handle, c_size_t(bucket), byref(one), members,
                                                  c_size_t(self.count)) == 0
            lists.append(list(members[:one.gradients]))
        return lists

    def close(self):
        LIBRARY.ddp_reducer_destroy(self.handle)
