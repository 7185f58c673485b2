"""test_tcpstore.py - PyTorch's own client against PyTorch's own server and against ddprun's.

The same script of calls runs against both, and what it returns or raises must be the same. Then
process groups are made through ddprun's store, across processes. Runs under the Python that has
PyTorch, $INTEROP_PYTHON, and is skipped where there is none; DDPRUN_INTEROP=1 makes that a failure.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from skip import need_torch


def python_with_torch():
    """Start again under the Python that has PyTorch."""
    wanted = os.environ.get('INTEROP_PYTHON', '')
    if sys.executable == wanted or os.environ.get('INTEROP_INSIDE'):
        return
    need_torch(wanted)
    os.environ['INTEROP_INSIDE'] = '1'
    os.environ['TORCH_CPP_LOG_LEVEL'] = 'ERROR'  # the failures are on purpose
    os.execv(wanted, [wanted, '-X', 'faulthandler', *sys.argv])


if __name__ == '__main__':
    python_with_torch()

import socket  # noqa: E402
import struct  # noqa: E402
import threading  # noqa: E402
import unittest  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from datetime import timedelta  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

SOON = timedelta(seconds=60)
BRIEFLY = timedelta(milliseconds=150)
STORE_SERVER = os.environ['STORE_SERVER']


class Ours:
    """ddprun's store in a process of its own."""

    def __enter__(self):
        self.process = subprocess.Popen([STORE_SERVER], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        host, port = self.process.stdout.readline().strip().rsplit(':', 1)
        self.host, self.port = host, int(port)
        return self

    def new_generation(self, prefix):
        self.process.stdin.write(prefix + '\n')
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == prefix

    def __exit__(self, *_):
        self.process.stdin.close()
        status = self.process.wait()
        self.process.stdout.close()
        assert status == 0, f'store_server ended with {status}'


class Theirs:
    """PyTorch's store in this process."""

    def __enter__(self):
        self.store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)
        self.host, self.port = '127.0.0.1', self.store.port
        return self

    def __exit__(self, *_):
        self.store = None


def connect(server, timeout=SOON, **options):
    return dist.TCPStore(server.host, server.port, is_master=False, timeout=timeout, **options)


@contextmanager
def in_background(function, *args):
    """Runs while the block does; what it raises is raised at the end."""
    outcome = []

    def body():
        try:
            outcome.append(('returned', function(*args)))
        except Exception as error:  # pylint: disable=broad-except
            outcome.append(('raised', error))
    thread = threading.Thread(target=body)
    thread.start()
    yield outcome
    thread.join()
    if outcome[0][0] == 'raised':
        raise outcome[0][1]


class Script:
    """The calls, as a list of what they returned or raised."""

    def __init__(self, server):
        self.server = server
        self.log = []

    def note(self, name, function, *args):
        try:
            result = function(*args)
        except Exception as error:  # pylint: disable=broad-except
            text = str(error).split('\n', 1)[0]
            for changing in (str(self.server.port), self.server.host):
                text = text.replace(changing, '')
            self.log.append((name, type(error).__name__, text))
            return
        if isinstance(result, list):
            result = sorted(result) if name.startswith('list_keys') else result
        self.log.append((name, repr(result)))

    def call(self, store, method, *args):
        self.note(f'{method}{args!r}'[:100], getattr(store, method), *args)

    def keys_and_values(self, a):
        large = bytes(range(256)) * 4096
        for key, value in [('a', 'b'), ('e', ''), ('', 'x'), (b'k\x00\xff', b'\x00\x01\xff'),
                           ('large', large), ('k' * 8000, 'long key'), ('ü', 'ß')]:
            self.call(a, 'set', key, value)
            self.call(a, 'get', key)
            self.call(a, 'check', [key])
        self.call(a, 'num_keys')
        self.call(a, 'delete_key', b'k\x00\xff')
        self.call(a, 'delete_key', b'k\x00\xff')
        self.call(a, 'delete_key', 'never')
        self.call(a, 'list_keys')
        self.call(a, 'check', ['a', 'none'])
        self.call(a, 'check', [])

    def numbers(self, a):
        for key, delta in [('n', 5), ('n', -7), ('z', 0), ('n', 2**62), ('n', 2**62)]:
            self.call(a, 'add', key, delta)
            self.call(a, 'get', key)
        for text in ['41', ' 5', '5 ', '1.9', '-3x', '+7', '\t8', str(2**63 - 1)]:
            self.call(a, 'set', 't', text)
            self.call(a, 'add', 't', 1)
            self.call(a, 'get', 't')

    def compare_set(self, a):
        for key, expected, desired in [
                ('c', 'x', 'v'), ('c', '', 'v'), ('c', 'x', 'w'), ('c', '', 'w'), ('c', 'v', 'w'),
                ('c', 'w', 'w'), ('c', 'w', ''), ('c', '', 'u'), ('empty', '', '')]:
            self.call(a, 'compare_set', key, expected, desired)
            self.call(a, 'check', [key])
        self.call(a, 'get', 'c')

    def append_and_many(self, a):
        for value in ['', 'x', 'yz', '']:
            self.call(a, 'append', 'p', value)
            self.call(a, 'get', 'p')
        self.call(a, 'multi_set', ['m', 'q', 'm'], ['1', '', '2'])
        self.call(a, 'multi_get', ['q', 'm', 'm'])
        self.call(a, 'multi_set', [], [])
        self.call(a, 'multi_get', [])
        many = [f'many/{i}' for i in range(3000)]
        self.call(a, 'multi_set', many, [key * 5 for key in many])
        self.call(a, 'multi_get', many)
        self.call(a, 'check', many)
        self.call(a, 'wait', many)
        self.call(a, 'num_keys')

    def waits(self, a, b):
        self.call(a, 'wait', ['never', 'n2'], BRIEFLY)
        self.call(a, 'wait', [], BRIEFLY)
        self.call(a, 'check', [])  # the answers are still in step
        for key, method, args in [('w1', 'set', ('w1', '')), ('w2', 'add', ('w2', 0)),
                                  ('w3', 'append', ('w3', 'x')),
                                  ('w4', 'multi_set', (['o', 'w4'], ['1', '2'])),
                                  ('w5', 'compare_set', ('w5', '', 'x')),
                                  ('w6', 'barrier', ('w6', 1))]:
            with in_background(a.wait, [key], SOON):
                self.call(b, method, *args)
        with in_background(a.get, 'g') as got:
            self.call(b, 'set', 'g', 'v')
        self.log.append(repr(got[0][1]))
        with in_background(a.multi_get, ['w1', 'h']) as got:
            self.call(b, 'add', 'h', 3)
        self.log.append(repr(got[0][1]))
        self.call(a, 'barrier', 'b', 1)
        self.call(a, 'barrier', 'b2', 2, BRIEFLY)
        self.call(a, 'get', 'b2')
        self.call(a, 'set', 'text', 'x')

    def queues(self, a, b):
        self.call(a, 'queue_len', 'q')
        self.call(a, 'queue_pop', 'q', False)
        for value in ['1', '', b'\x00\xff', '4']:
            self.call(a, 'queue_push', 'q', value)
        self.call(a, 'queue_len', 'q')
        self.call(a, 'check', ['q'])
        self.call(a, 'delete_key', 'q')
        self.call(a, 'set', 'q', 'value')
        for _ in range(5):
            self.call(a, 'queue_pop', 'q', False)
        self.call(a, 'get', 'q')
        self.call(a, 'list_keys')
        with in_background(a.queue_pop, 'w') as got:
            self.call(b, 'queue_push', 'w', 'x')
        self.log.append(repr(got[0][1]))
        a.set_timeout(BRIEFLY)
        self.call(a, 'queue_pop', 'empty')
        a.set_timeout(SOON)
        self.call(a, 'queue_len', 'empty')

    def prefixes(self, a):
        p = dist.PrefixStore('p', a)
        self.call(p, 'set', 'k', 'v')
        self.call(p, 'add', 'n', 1)
        self.call(p, 'check', ['k', 'n'])
        self.call(p, 'multi_set', ['m'], ['1'])
        self.call(p, 'multi_get', ['m', 'k'])
        self.call(p, 'compare_set', 'k', 'v', 'w')
        self.call(p, 'append', 'k', 'x')
        self.call(p, 'queue_push', 'q', '1')
        self.call(p, 'queue_pop', 'q')
        self.call(p, 'barrier', 'b', 1)
        self.call(p, 'list_keys')
        self.call(dist.PrefixStore('b', dist.PrefixStore('a', a)), 'set', 'k', 'v')
        self.call(a, 'list_keys')
        c = a.clone()
        self.call(c, 'get', 'p/k')
        del c
        self.call(a, 'num_keys')

    def broken(self):
        """Calls that cost the client its connection, each on one of its own."""
        for method, args in [('add', ('text', 1)), ('barrier', ('text', 1)),
                             ('get', ('k' * 9000,)), ('set', ('v', 'v' * (8 * 2**20 + 1)))]:
            store = connect(self.server)
            try:
                getattr(store, method)(*args)
                store.num_keys()
                self.log.append((method, 'works'))
            except dist.DistNetworkError:
                self.log.append((method, 'DistNetworkError'))

    def run(self):
        a, b = connect(self.server, world_size=1), connect(self.server)
        self.call(a, 'num_keys')
        self.keys_and_values(a)
        self.numbers(a)
        self.compare_set(a)
        self.append_and_many(a)
        self.waits(a, b)
        self.queues(a, b)
        self.prefixes(a)
        self.broken()
        self.call(a, 'num_keys')
        self.call(b, 'list_keys')
        return self.log


class SameAnswers(unittest.TestCase):
    def test_script(self):
        with Theirs() as theirs, Ours() as ours:
            wanted, got = Script(theirs).run(), Script(ours).run()
        self.assertGreater(len(wanted), 150)
        for one, other in zip(wanted, got):
            self.assertEqual(one, other)
        self.assertEqual(len(wanted), len(got))


class ManyClients(unittest.TestCase):
    def test_each_sets_one_key_and_waits_for_all(self):
        count = 128
        keys = [str(i) for i in range(count)]
        failures = []

        def client(index, server):
            try:
                store = connect(server, timedelta(seconds=60))
                store.set(keys[index], b'x' * 100)
                store.wait(keys)
                assert store.num_keys() == count
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)
        with Ours() as server:
            threads = [threading.Thread(target=client, args=(i, server)) for i in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])

    def test_counts_across_threads(self):
        with Ours() as server:
            def client():
                store = connect(server)
                for _ in range(500):
                    store.add('n', 1)
            threads = [threading.Thread(target=client) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(connect(server).get('n'), b'4000')

    def test_queue_serves_everybody(self):
        with Ours() as server:
            got = []

            def consumer():
                store = connect(server)
                for _ in range(10):
                    while True:
                        try:
                            got.append(store.queue_pop('q'))
                            break
                        except dist.QueueEmptyError:
                            pass  # another one was faster, between its waking and its asking
            threads = [threading.Thread(target=consumer) for _ in range(6)]
            for thread in threads:
                thread.start()
            producer = connect(server)
            for i in range(60):
                producer.queue_push('q', str(i))
                producer.queue_len('q')
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(map(int, got)), list(range(60)))


class Connections(unittest.TestCase):
    def test_requests_in_pieces(self):
        with Ours() as server, socket.create_connection((server.host, server.port)) as raw:
            client = connect(server)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = b'\x00' + struct.pack('<I', 0x3C85F7CE)
            request = b'\x01' + struct.pack('<Q', 2) + b'/k' + struct.pack('<Q', 5) + b'value'
            for byte in hello + request[:-1]:
                raw.sendall(bytes([byte]))
                self.assertFalse(client.check(['k']))
            raw.sendall(request[-1:])
            self.assertEqual(client.get('k'), b'value')

    def test_without_a_server(self):
        with socket.socket() as bound, self.assertRaises(dist.DistNetworkError):  # where nobody listens
            bound.bind(('127.0.0.1', 0))
            dist.TCPStore('127.0.0.1', bound.getsockname()[1], is_master=False, timeout=timedelta(seconds=1))

    def test_a_new_generation_is_empty(self):
        with Ours() as server:
            old = connect(server, world_size=1)
            old.set('k', 'old')
            old.num_keys()
            server.new_generation('g1/tcp/')
            with self.assertRaises(dist.DistNetworkError):
                old.get('k')
            new = connect(server, world_size=1)
            self.assertEqual(new.num_keys(), 1)
            self.assertFalse(new.check(['k']))


RANK = '''
import os, sys, torch, torch.distributed as dist
method, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if method == "env://":
    dist.init_process_group("gloo", init_method=method)
else:
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world)
for _ in range(3):
    ones = torch.ones(4) * (rank + 1)
    dist.all_reduce(ones)
    assert ones[0].item() == world * (world + 1) / 2
dist.barrier()
group = dist.new_group([0, 1])
if rank < 2:
    dist.barrier(group=group)
dist.monitored_barrier()
names = [None] * world
dist.all_gather_object(names, f"rank {rank}")
assert names == [f"rank {r}" for r in range(world)]
dist.destroy_process_group()
'''


class ProcessGroups(unittest.TestCase):
    def run_ranks(self, server, method, world):
        ranks = []
        for rank in range(world):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                       MASTER_ADDR=server.host, MASTER_PORT=str(server.port),
                       TORCHELASTIC_USE_AGENT_STORE='True', GLOO_SOCKET_IFNAME='lo')
            ranks.append(subprocess.Popen(
                [sys.executable, '-c', RANK, method, str(rank), str(world)], env=env,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for rank in ranks:
            output, _ = rank.communicate()
            self.assertEqual(rank.returncode, 0, output)

    def test_env(self):
        with Ours() as server:
            for generation in range(2):
                self.run_ranks(server, 'env://', 3)
                server.new_generation(f'g{generation}/tcp/')

    def test_tcp(self):
        with Ours() as server:
            self.run_ranks(server, f'tcp://{server.host}:{server.port}', 3)


if __name__ == '__main__':
    print(f'PyTorch {torch.__version__}')
    unittest.main(verbosity=2)
