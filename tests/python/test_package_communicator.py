#!/usr/bin/env python3
"""test_package_communicator.py - ddprun.Communicator: each operation with ranks as threads, and below ddprun; what is refused."""

import array
import ctypes
import gc
import os
import sys
import threading
import unittest
import weakref
from datetime import timedelta
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
import ddprun
from ddprun_run import DdprunCase

RANKS = 3


def floats(*numbers):
    return array.array('f', numbers)


def zeros(count):
    return floats(*[0] * count)


class Threads(unittest.TestCase):
    """Ranks as threads of this process."""

    def each(self, rank_main, ranks=RANKS):
        """What rank_main(comm) returns for each rank; an exception is one of those too."""
        results, comms = [None] * ranks, ddprun.Communicator.local(ranks)

        def work(comm):
            try:
                with comm:
                    results[comm.rank] = rank_main(comm)
            except Exception as error: # the test looks at it
                results[comm.rank] = error
        threads = [threading.Thread(target=work, args=(comm,)) for comm in comms]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class Local(Threads):
    """On host memory."""

    def assert_each(self, rank_main, expected):
        self.assertEqual(self.each(rank_main), [expected(rank) for rank in range(RANKS)])

    def test_reductions(self):
        def work(comm):
            own = floats(comm.rank, 1, 10 * comm.rank)
            out, part, rooted = zeros(3), zeros(1), zeros(3)
            comm.all_reduce(own, out, 'max')
            comm.reduce_scatter(own, part)
            comm.reduce(own, rooted if comm.rank == 2 else None, root=2)
            comm.all_reduce(own)
            pair = [floats(1), floats(2, comm.rank)]
            comm.all_reduce_many(pair, 'product')
            scaled = floats(1)
            comm.all_reduce(scaled, op='premul_sum', factor=comm.rank + 1)
            return list(own), list(out), list(part), list(rooted), [list(one) for one in pair], scaled[0]
        self.assert_each(work, lambda rank: ([3, 3, 30], [2, 1, 20], [(3, 3, 30)[rank]],
                                             [3, 3, 30] if rank == 2 else [0, 0, 0], [[1], [8, 0]], 6))

    def test_moving(self):
        def work(comm):
            rank, size = comm.rank, comm.size
            one = floats(5 if rank == 1 else 0)
            comm.broadcast(one, root=1)
            gathered, at_root, own, swapped = zeros(size), zeros(size), zeros(1), zeros(size)
            comm.all_gather(floats(rank), gathered)
            comm.gather(floats(rank), at_root if rank == 0 else None)
            comm.scatter(floats(7, 8, 9) if rank == 2 else None, own, root=2)
            comm.all_to_all(floats(*[10 * rank + to for to in range(size)]), swapped)
            pair = [floats(rank), floats(rank, rank)]
            comm.broadcast_many(pair, root=2)
            return one[0], list(gathered), list(at_root), own[0], list(swapped), [list(each) for each in pair]
        self.assert_each(work, lambda rank: (5, [0, 1, 2], [0, 1, 2] if rank == 0 else [0, 0, 0], 7 + rank,
                                             [rank, 10 + rank, 20 + rank], [[2], [2, 2]]))

    def test_uneven_parts(self):
        counts = [1, 0, 2]

        def work(comm):
            rank = comm.rank
            gathered, part, at_root, own = zeros(3), zeros(counts[rank]), zeros(3), zeros(counts[rank])
            comm.all_gather(floats(*[rank] * counts[rank]), gathered, counts=counts)
            comm.reduce_scatter(floats(1, 2, 3), part, counts=counts)
            comm.gather(floats(*[rank] * counts[rank]), at_root if rank == 1 else None, root=1, counts=counts)
            comm.scatter(floats(4, 5, 6) if rank == 1 else None, own, root=1, counts=counts)
            swapped = zeros(comm.size * counts[rank])
            comm.all_to_all(floats(*[rank] * 3), swapped, send_counts=counts, recv_counts=[counts[rank]] * comm.size)
            return list(gathered), list(part), list(at_root), list(own), list(swapped)
        self.assert_each(work, lambda rank: ([0, 2, 2], ([3], [], [6, 9])[rank], [0, 2, 2] if rank == 1 else [0, 0, 0],
                                             ([4], [], [5, 6])[rank], ([0, 1, 2], [], [0, 0, 1, 1, 2, 2])[rank]))

    def test_messages(self):
        def work(comm):
            following, before, got = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size, zeros(1)
            comm.send_recv(floats(comm.rank), following, got, before)
            seen = [got[0]]
            with comm.group():
                comm.send(floats(10 + comm.rank), following)
                self.assertEqual(comm.recv(got, before), before)
                gc.collect()
            seen.append(got[0])
            request = comm.recv(got, tag=7, async_op=True)
            comm.send(floats(20 + comm.rank), following, tag=7)
            request.wait()
            seen.append((got[0], request.source))
            comm.barrier()
            if comm.rank == 0:
                return seen, sorted(comm.recv(got) for _ in range(comm.size - 1))
            comm.send(floats(0), 0)
            return seen, None
        self.assert_each(work, lambda rank: ([(rank - 1) % 3, 10 + (rank - 1) % 3, (20 + (rank - 1) % 3, (rank - 1) % 3)],
                                             [1, 2] if rank == 0 else None))

    def test_requests(self):
        def work(comm):
            buffers = [floats(comm.rank, index) for index in range(8)]
            requests = [comm.all_reduce(one, async_op=True) for one in buffers]
            comm.all_reduce(floats(1), async_op=True) # dropped: it goes on, with its buffer
            gc.collect()
            for request in requests[1:]:
                request.wait(timedelta(seconds=60))
            self.assertTrue(requests[0].test())
            comm.barrier()
            return [list(one) for one in buffers], all(request.done for request in requests)
        self.assert_each(work, lambda _: ([[3, 3 * index] for index in range(8)], True))

    def test_dropped_requests_keep_their_buffers_until_they_have_ended(self):
        class Bytes(bytearray):
            """One that can have a weak reference."""

        def work(comm):
            seen = []
            for _ in range(40):
                data = Bytes((b'x' if comm.rank == 0 else b'y') * (1 << 20))
                if comm.rank == 0:
                    seen.append(weakref.ref(data))
                    comm.send(data, 1, dtype='uint8', async_op=True)
                    del data
                else:
                    comm.recv(data, 0, dtype='uint8')
                    self.assertEqual(data.count(b'x'), len(data))
                comm.barrier()
            return sum(one() is not None for one in seen)
        left, nothing = self.each(work, 2)
        self.assertEqual(nothing, 0)
        self.assertLess(left, 10)

    def test_other_communicators(self):
        def shrunk(comm):
            if comm.rank == 1:
                return None
            with comm.shrink([1]) as left:
                return left.size, left.rank

        def divided(comm):
            total = floats(comm.rank)
            part = comm.split(0 if comm.rank < 2 else None, key=-comm.rank)
            if comm.rank == 2:
                self.assertIsNone(part)
                part = comm.create_group([2])
            with part:
                part.all_reduce(total)
                return total[0], part.size, part.rank
        self.assert_each(divided, lambda rank: ((1, 2, 1), (1, 2, 0), (2, 1, 0))[rank])
        self.assert_each(shrunk, lambda rank: ((2, 0), None, (2, 1))[rank])

    def test_what_is_refused_has_no_effect(self):
        both = floats(1, 2, 3, 4)

        def work(comm):
            refused = (
                (lambda: comm.all_reduce(b'constant'), 'read-only'),
                (lambda: comm.all_reduce(floats(1), zeros(2)), 'recv has 2 elements, and needs 1'),
                (lambda: comm.all_reduce(floats(1), array.array('i', [0])), 'elements of float32, and recv of int32'),
                (lambda: comm.all_reduce(floats(1), op='mean'), "no reduction 'mean'"),
                (lambda: comm.all_gather(floats(1), zeros(2)), 'recv has 2 elements, and needs 3'),
                (lambda: comm.reduce_scatter(floats(1), zeros(1)), 'send has 1 elements, and needs 3'),
                (lambda: comm.all_to_all(floats(1), zeros(1)), 'not a part for each of 3 ranks'),
                (lambda: comm.all_to_all(floats(1, 1), zeros(1), send_counts=[1, 1, 0], recv_counts=[1, 0]),
                 '2 counts for 3 ranks'),
                (lambda: comm.all_gather(floats(1), zeros(3), counts=[1, -1, 3]), 'negative'),
                (lambda: comm.gather(floats(1), zeros(2), root=comm.rank), 'recv has 2 elements, and needs 3'),
                (lambda: comm.broadcast([1]), 'is a list'),
                (lambda: comm.broadcast(floats(1), root=9), 'root 9 does not exist'),
                (lambda: comm.all_reduce(memoryview(both)[:3], memoryview(both)[1:]), 'overlap'),
                (lambda: comm.all_reduce_many([floats(1), array.array('d', [1])]), 'float32, float64'),
                (lambda: comm.barrier(timeout=timedelta(0)), 'timeout is zero'),
                (lambda: comm.create_group([comm.rank, -1]), 'no ranks'),
                (lambda: comm.split(-5), 'out of range'),
                (lambda: comm.broadcast(floats(1), 2**32), 'the rank is 4294967296, and has to be from 0 to'),
                (lambda: comm.broadcast_many([floats(1)], -2**32), 'the rank is -4294967296'),
                (lambda: comm.reduce(floats(1), root=2**32 + 1), 'the rank is'),
                (lambda: comm.send(floats(1), 2**64), 'the rank is'),
                (lambda: comm.send(floats(1), 0, tag=2**32), 'the tag is'),
                (lambda: comm.recv(floats(1), 2**32), 'the rank is'),
                (lambda: comm.recv(floats(1), 0, tag=-1), 'the tag is'),
                (lambda: comm.send_recv(floats(1), 2**32, floats(1), 0), 'the rank to send to is'),
                (lambda: comm.send_recv(floats(1), 0, floats(1), -1), 'the rank to receive from is'))
            for call, text in refused:
                with self.assertRaises(ddprun.Invalid) as caught:
                    call()
                self.assertIn(text, str(caught.exception))
            comm.barrier()
            return 'usable'
        self.assert_each(work, lambda _: 'usable')

    def test_failures_are_exceptions(self):
        def mismatched(comm):
            comm.barrier() if comm.rank == 0 else comm.all_reduce(floats(1))
        for error in self.each(mismatched, 2):
            self.assertIsInstance(error, (ddprun.Mismatch, ddprun.Closed))
            self.assertIn('barrier', str(error))

        def aborted(comm):
            comm.abort() if comm.rank == 0 else comm.barrier()
            comm.check()
        for error in self.each(aborted, 2):
            self.assertIsInstance(error, ddprun.Aborted)
            self.assertEqual(error.rank, 0)

    def test_closing(self):
        comm, other = ddprun.Communicator.local(2)
        seen = []

        def wait():
            try:
                comm.barrier()
            except ddprun.Error as error:
                seen.append(type(error))
        waiting = threading.Thread(target=wait)
        waiting.start()
        comm.close()
        waiting.join()
        self.assertIn(seen, ([ddprun.Aborted], [ddprun.Invalid])) # the latter if close() came first
        comm.close()
        with self.assertRaisesRegex(ddprun.Invalid, 'this communicator is closed'):
            comm.barrier()
        other.close()

    def test_a_request_outlives_its_communicator(self):
        comm, other = ddprun.Communicator.local(2)
        request = comm.all_reduce(floats(1), async_op=True)
        comm.close()
        with self.assertRaises(ddprun.Error):
            request.wait()
        self.assertTrue(request.done)
        del request
        other.close()

    def test_forgotten_ones_are_closed(self):
        comms = ddprun.Communicator.local(2)
        with self.assertWarns(ResourceWarning):
            del comms
            gc.collect()

    def test_a_child_cannot_use_it(self):
        comm, = ddprun.Communicator.local(1)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except ddprun.Invalid as error:
                os.write(write, str(error).encode())
            comm.close()
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with open(read, encoding='utf-8') as pipe:
            self.assertIn('process', pipe.read())
        comm.barrier()
        comm.close()

    def test_options(self):
        for options, text in (({'rank': 1}, 'pass both or neither'), ({'rank': 2, 'world_size': 2}, 'does not exist'),
                              ({'algorithm': 'best'}, "'best'"), ({'timeout': 3}, 'timedelta'),
                              ({'unique_id': b'short'}, '5 bytes'), ({'name': 'a\0b'}, 'name has no zero bytes'),
                              ({'endpoint': '127.0.0.1:1\0'}, 'endpoint has no'), ({'prefix': b'p'}, 'prefix is a str')):
            with self.assertRaises(ddprun.Invalid) as caught:
                ddprun.Communicator(**options)
            self.assertIn(text, str(caught.exception))
        with ddprun.Communicator(unique_id=ddprun.get_unique_id(), rank=0, world_size=1,
                                 timeout=timedelta(seconds=9)) as comm:
            self.assertEqual(comm.timeout, timedelta(seconds=9))
            comm.set_timeout(timedelta(seconds=8))
            self.assertEqual(comm.timeout, timedelta(seconds=8))
            self.assertEqual(repr(comm), '<ddprun.Communicator: rank 0 of 1>')


class Driver:
    """The driver of tests/cuda, with the context of a GPU current in this thread."""

    def __init__(self, gpu):
        os.environ['DDP_HOST_CUDA_DEVICES'] = '2'
        self._library = ctypes.CDLL(os.environ['HOST_CUDA'])
        self._library.cuInit(0)
        context = ctypes.c_void_p()
        self('cuDevicePrimaryCtxRetain', ctypes.byref(context), gpu)
        self('cuCtxPushCurrent', context)

    def __call__(self, name, *arguments):
        found, why = ctypes.c_void_p(), ctypes.c_uint()
        self._library.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), 12000, ctypes.c_uint64(0), ctypes.byref(why))
        assert found.value and ctypes.CFUNCTYPE(ctypes.c_int)(found.value)(*arguments) == 0, name

    def stream(self):
        made = ctypes.c_void_p()
        self('cuStreamCreate', ctypes.byref(made), 1)
        return made.value


class OnGpu:
    """Eight floats on the GPU."""

    def __init__(self, driver, value=0.0):
        address = ctypes.c_uint64()
        driver('cuMemAlloc', ctypes.byref(address), ctypes.c_size_t(32))
        driver('cuMemcpyHtoDAsync', address, (ctypes.c_float * 8)(*[value] * 8), ctypes.c_size_t(32), None)
        driver('cuStreamSynchronize', None)
        self.__cuda_array_interface__ = {'shape': (8,), 'typestr': '<f4', 'data': (address.value, False), 'version': 3}


class OnDevice(Threads):
    """Operations that are only enqueued."""

    def rank_0_alone(self, call):
        """What is left of the arrays when call(comm, arrays, stream) has returned on rank 0, before it ends; and afterwards."""
        left, alone = [], threading.Event()

        def work(comm):
            driver = Driver(comm.rank)
            stream = driver.stream()
            comm.all_reduce(OnGpu(driver), stream=stream) # ranks that are threads meet in a collective
            arrays = [OnGpu(driver, 1), OnGpu(driver)]
            seen = [weakref.ref(array) for array in arrays]
            if comm.rank == 1:
                alone.wait()
            try:
                call(comm, arrays, stream)
                del arrays
                gc.collect()
                left.append(sum(one() is not None for one in seen))
            finally:
                alone.set()
            for _ in range(300):
                comm.all_reduce(OnGpu(driver), stream=stream)
            driver('cuStreamSynchronize', ctypes.c_void_p(stream))
            comm.check()
            comm.all_reduce(OnGpu(driver), stream=stream)
            return sum(one() is not None for one in seen)
        return self.each(work, 2), left[:1]

    def test_arrays_are_kept_until_their_operation_has_ended(self):
        halves = ([1, 7], [7, 1])

        def in_a_group(comm, arrays, stream):
            with comm.group():
                comm.send(arrays[0], 1 - comm.rank, stream=stream)
                comm.recv(arrays[1], 1 - comm.rank, stream=stream)
        for call in (lambda comm, arrays, stream: comm.all_reduce(*arrays, stream=stream),
                     lambda comm, arrays, stream: comm.all_reduce_many(arrays, stream=stream),
                     lambda comm, arrays, stream: comm.all_to_all(*arrays, send_counts=halves[comm.rank],
                                                                  recv_counts=halves[comm.rank], stream=stream),
                     lambda comm, arrays, stream: comm.send_recv(arrays[0], 1 - comm.rank, arrays[1], 1 - comm.rank,
                                                                 stream=stream),
                     in_a_group):
            self.assertEqual(self.rank_0_alone(call), ([0, 0], [2]))

    def test_errors_that_are_known_at_the_call(self):
        def work(comm):
            driver = Driver(comm.rank)
            with self.assertRaisesRegex(ddprun.Invalid, 'root 9 does not exist'):
                comm.broadcast(OnGpu(driver), root=9)
            comm.abort()
            with self.assertRaises(ddprun.Aborted):
                comm.all_reduce(OnGpu(driver))
            return 'raised'
        self.assertEqual(self.each(work, 1), ['raised'])


WORKER = '''
import array, os, signal, sys, ddprun
from datetime import timedelta
way = sys.argv[1]
rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
if way == 'environment':
    comm = ddprun.Communicator()
elif way == 'store':
    comm = ddprun.Communicator(store=ddprun.Store(timeout=timedelta(seconds=60)), rank=rank, world_size=size)
elif way == 'broken':
    class Broken(ddprun.Store):
        def fail(self, *_):
            raise RuntimeError('out of order')
        set = check = wait = fail
    try:
        ddprun.Communicator(store=Broken(), rank=rank, world_size=size)
    except ddprun.Error as error:
        print(type(error.__cause__).__name__, error)
    sys.exit(0)
elif way in ('id', 'kill'):
    with ddprun.Store() as store:
        if rank == 0:
            store.set('id', ddprun.get_unique_id())
        comm = ddprun.Communicator(unique_id=store.get('id'), rank=rank, world_size=size)
with comm:
    numbers = array.array('d', [rank])
    comm.all_reduce(numbers)
    print('sum', numbers[0], flush=True)
    if way == 'kill':
        signal.signal(signal.SIGTERM, signal.SIG_IGN) # ddprun ends the others too
        comm.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            comm.barrier()
        except ddprun.PeerDead as error:
            print('dead:', error.rank, bool(error.host), error.operation, error.sequence, flush=True)
        with comm.shrink() as left:
            left.all_reduce(numbers)
            print('left', left.size, numbers[0], flush=True)
'''


class Jobs(DdprunCase):
    """Ranks as processes, below ddprun."""

    def run_workers(self, way, *words):
        worker = self.write('worker.py', WORKER)
        env = {name: os.environ[name] for name in ('PYTHONPATH', 'DDPRUN_LIBRARY_PATH', 'PYTHONDONTWRITEBYTECODE')}
        return self.run_job('--nproc-per-node=3', *words, sys.executable, worker, way, env=env)

    def test_ways_to_meet(self):
        for way in ('environment', 'store', 'id'):
            job = self.run_workers(way)
            self.assert_succeeded(job)
            self.assertEqual(job.out.count('sum 3.0'), 3, job.out)

    def test_a_store_that_fails(self):
        job = self.run_workers('broken')
        self.assertEqual(job.out.count('RuntimeError'), 6, job.out + job.err)
        self.assertEqual(job.out.count('out of order'), 3, job.out)

    def test_a_killed_rank(self):
        job = self.run_workers('kill')
        self.assertEqual(job.out.count('dead: 1 True barrier 3'), 2, job.out + job.err)
        self.assertEqual(job.out.count('left 2 6.0'), 2, job.out + job.err)


if __name__ == '__main__':
    unittest.main()
