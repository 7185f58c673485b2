"""test_hostile_load.py - a client of PyTorch works while thousands of others mean harm (hostile.c).

What is asserted: each of its calls succeeds, newcomers are served, the server's memory stays within
its limits and comes back, counters and log tell of each kind of harm, and the log stays short.
Latencies are printed; with DDPRUN_BESIDE_PYTORCH set, beside those of PyTorch's own server under the
same load, as far as that understands what is said. Where there is no PyTorch, a client in Python takes its place, and
there is nothing to compare with.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

WANTED = os.environ.get('INTEROP_PYTHON', '')
if __name__ == '__main__' and os.access(WANTED, os.X_OK) and not os.environ.get('INTEROP_INSIDE'):
    os.environ['INTEROP_INSIDE'] = '1'
    os.environ['TORCH_CPP_LOG_LEVEL'] = 'FATAL'  # of PyTorch's server, about its guests
    os.execv(WANTED, [WANTED, '-X', 'faulthandler', *sys.argv])

import json  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
from datetime import timedelta  # noqa: E402

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import wait_until  # noqa: E402

try:
    import torch.distributed as dist
except ImportError:
    dist = None

DDPRUND, DDPCTL = os.environ['DDPRUND'], os.environ['DDPCTL']
HOSTILE = os.environ['HOSTILE']
SANITIZED = os.environ.get('DDPRUN_SANITIZED') == '1'
KEYS = 50_000 if SANITIZED else 1_000_000
SPARE = 1000  # keys that do not fit
SECONDS = 6  # the attack
CALM_S = 2  # before and after it
GIVE_UP_S = 30  # with PyTorch's server
MIB = 1 << 20
PEAK = 700 * MIB  # a million keys are half of it, eight queues that nobody reads most of the rest
# The history of changes, the slots of the table of keys, odd pages, and what the server keeps because less
# than half of what it held has gone since it last gave memory back.
MARGIN = 144 * MIB


class Client:
    """set and get of PyTorch's protocol, for those who have no PyTorch."""

    def __init__(self, port):
        self.sock = socket.create_connection(('127.0.0.1', port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(b'\x00' + struct.pack('<I', 0x3C85F7CE))

    @staticmethod
    def string(text):
        return struct.pack('<Q', len(text)) + text

    def receive(self, count):
        data = b''
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise ConnectionError('closed')
            data += part
        return data

    def set(self, key, value):
        self.sock.sendall(b'\x01' + self.string(key.encode()) + self.string(value))

    def get(self, key):
        self.sock.sendall(b'\x03' + self.string(key.encode()))
        return self.receive(*struct.unpack('<Q', self.receive(8)))

    def close(self):
        self.sock.close()


def connect(port):
    if dist is None:
        return Client(port)
    return dist.TCPStore('127.0.0.1', port, is_master=False, timeout=timedelta(seconds=60))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] * 1000


def rss(pid, name='VmRSS'):
    with open(f'/proc/{pid}/status') as file:
        return int(re.search(rf'^{name}:\s*(\d+) kB$', file.read(), re.MULTILINE)[1]) * 1024


class Work:
    """What the honest do, and how long each call and each newcomer took, in seconds."""

    def __init__(self, port, pid):
        self.port, self.pid = port, pid
        self.store = connect(port)
        self.number = 0

    def call(self):
        self.number += 1
        value = b'%d' % self.number
        self.store.set('honest', value)  # it has no answer
        begin = time.perf_counter()
        got = self.store.get('honest')
        took = time.perf_counter() - begin
        assert got == value, (got, value)
        return took

    def newcomer(self):
        begin = time.perf_counter()
        store = connect(self.port)
        store.set('newcomer', b'x')
        got = store.get('newcomer')
        took = time.perf_counter() - begin
        assert got == b'x'
        if dist is None:
            store.close()
        return took

    def until(self, over):
        """Both until over(); a newcomer every 100 ms."""
        calls, newcomers, memory, next_s = [], [], 0, time.monotonic() + 0.1
        while not over():
            calls.append(self.call())
            if time.monotonic() >= next_s:
                newcomers.append(self.newcomer())
                memory = max(memory, rss(self.pid))
                next_s = time.monotonic() + 0.1
            time.sleep(0.0003)
        return calls, newcomers, memory

    def for_s(self, seconds):
        end = time.monotonic() + seconds
        return self.until(lambda: time.monotonic() >= end)


def tell(name, phase, figures):
    calls, newcomers, memory = figures
    print(f'{name:8} {phase:7} {len(calls):6} calls, ms: p50 {percentile(calls, 0.5):.3f} '
          f'p99 {percentile(calls, 0.99):.3f} max {max(calls) * 1000:.2f}; '
          f'{len(newcomers)} newcomers, ms: p50 {percentile(newcomers, 0.5):.2f} '
          f'max {max(newcomers) * 1000:.2f}; RSS {memory / MIB:.1f} MiB', flush=True)
    return figures


def attacked(name, port, pid, *words):
    """Before, during and after; what hostile says of its kinds."""
    work = Work(port, pid)
    work.for_s(0.5)
    phases = {'before': tell(name, 'before', work.for_s(CALM_S))}
    with tempfile.TemporaryFile('w+') as said:
        hostile = subprocess.Popen([HOSTILE, str(port), str(SECONDS), str(KEYS), *words],
                                   stdout=said)
        try:
            phases['during'] = tell(name, 'during', work.until(lambda: hostile.poll() is not None))
            phases['after'] = tell(name, 'after', work.for_s(CALM_S))
        finally:
            hostile.kill()
            status = hostile.wait()
        said.seek(0)
        kinds = {words[0]: tuple(map(int, words[1:])) for words in map(str.split, said)}
    return phases, kinds, status


KINDS = {  # of harm, and how many connections of each; see hostile.c
    'noise': 400, 'tls': 400, 'http': 400, 'half-frame': 200, 'length-2^40': 300,
    'length-2^64-1': 300, 'wait-2^60': 300, 'unknown-op': 300, 'half-open': 10000,
    'byte-a-second': 100, 'unknown-native': 300, 'length-2^32-1': 300, 'deaf-watcher': 8,
    'wrong-token': 300, 'replay': 300}

# What the log says of each kind.
SAID = ['its first byte begins no protocol', 'SET with a key of 1099511627776 bytes',
        'GET with a key of 18446744073709551615 bytes', 'WAIT of 1152921504606846976 keys',
        'no operation has the type 200', 'closed to make room for a newer one', 'a frame of type 250',
        'a frame of type 16 with 4294967295 bytes', 'its token differs from that of this server',
        f'the store is full: it holds {KEYS - SPARE} of at most {KEYS - SPARE} keys',
        'more connections for what their peers did', 'more connections that were not authenticated yet',
        'warning: denied ']

THEIRS = '''
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
'''


class HostileLoad(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = os.path.join(self.folder.name, 'log')
        self.token = os.path.join(self.folder.name, 'token')
        fd = os.open(self.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, os.urandom(32).hex().encode() + b'\n')
        os.close(fd)

    def start(self, *words, **options):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options)

        def stop():
            process.terminate()
            process.wait()
            process.stdout.close()
        self.addCleanup(stop)
        return process, int(process.stdout.readline().rpartition(':')[2])

    def stats(self, port):
        done = subprocess.run([DDPCTL, 'store', 'stats', '--json', '--no-auth'], check=True,
                              env=dict(os.environ, DDPRUN_STORE=f'127.0.0.1:{port}'),
                              stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    def check_log(self):
        with open(self.log) as file:
            text = file.read()
        self.assertLess(text.count('\n'), 150)
        for said in SAID:
            self.assertIn(said, text)

    def check_counters(self, stats):
        self.assertEqual(stats['connections'], 1)
        for name in ('half_open', 'watches', 'waits'):
            self.assertEqual(stats[name], 0, name)
        self.assertLess(stats['keys'], 10)
        self.assertLess(stats['input'] + stats['output'], 65536)
        # What came last may have gone before it was answered.
        self.assertGreater(stats['denied'], 0.9 * (KINDS['wrong-token'] + KINDS['replay']))
        # All that speak and break a rule; slow ones and those that do not read may be among them.
        rude = sum(KINDS[kind] for kind in ('noise', 'tls', 'http', 'length-2^40', 'length-2^64-1',
                                            'wait-2^60', 'unknown-op', 'unknown-native',
                                            'length-2^32-1'))
        self.assertGreater(stats['dismissed'], 0.9 * rude)
        self.assertGreaterEqual(stats['displaced'], KINDS['half-open'] // 2)
        self.assertEqual(stats['limited'], 1)
        self.assertEqual((stats['refused'], stats['throttled']), (0, 0))

    def test_the_others_go_on(self):
        """Each call in attacked() succeeds, or raises."""
        daemon, port = self.start(
            DDPRUND, '--listen=127.0.0.1:0', f'--token-file={self.token}', '--request-timeout=5s',
            f'--log-file={self.log}', f'--max-keys={KEYS - SPARE}', f'--max-job-keys={KEYS}', stdin=subprocess.DEVNULL)
        before = rss(daemon.pid)
        phases, kinds, status = attacked('ddprun', port, daemon.pid, self.token)
        self.assertEqual(status, 0)
        for kind, count in KINDS.items():
            self.assertGreater(kinds[kind][0], count * 0.9, kind)
        self.assertGreater(len(phases['during'][1]), 3)
        peak = rss(daemon.pid, 'VmHWM')
        print(f'RSS, MiB: {before / MIB:.1f} before, {peak / MIB:.1f} at most, '
              f'{rss(daemon.pid) / MIB:.1f} after')
        if not SANITIZED:  # whose allocators keep what is freed
            self.assertLess(peak, PEAK)
            wait_until(lambda: rss(daemon.pid) < before + MARGIN, 'memory comes back')
        del phases
        wait_until(lambda: self.stats(port)['connections'] == 1, 'all connections are gone')
        self.check_counters(self.stats(port))
        daemon.terminate()
        self.assertEqual(daemon.wait(), 0)
        self.check_log()

    @unittest.skipIf(dist is None or SANITIZED, 'there is nothing to compare with: PyTorch is missing, or this build has '
                                                 'a sanitizer')
    @unittest.skipUnless(os.environ.get('DDPRUN_BESIDE_PYTORCH'), 'it asserts nothing, and DDPRUN_BESIDE_PYTORCH does not '
                                                                   'ask for its figures')
    def test_with_pytorch_s_own_server(self):
        """For the figures only: what becomes of it is printed."""
        theirs, port = self.start(sys.executable, '-c', THEIRS, stdin=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        # A client of PyTorch may wait for a server that has stopped answering without end.
        work = subprocess.Popen([sys.executable, __file__, 'theirs', str(port), str(theirs.pid)],
                                start_new_session=True, stderr=subprocess.DEVNULL)
        try:
            print(f'PyTorch: its client ended with {work.wait(GIVE_UP_S)}')
        except subprocess.TimeoutExpired:
            state = 'runs' if theirs.poll() is None else 'has ended'
            print(f'PyTorch: its client still waits after {GIVE_UP_S} s; its server {state}')
        finally:
            with contextlib.suppress(ProcessLookupError):  # all of them may have ended
                os.killpg(work.pid, signal.SIGKILL)
            work.wait()
        theirs.kill()
        theirs.stdin.close()


if __name__ == '__main__':
    if sys.argv[1:2] == ['theirs']:
        attacked('PyTorch', int(sys.argv[2]), int(sys.argv[3]))
        sys.exit(0)
    print('with PyTorch' if dist is not None else 'without PyTorch')
    unittest.main(verbosity=2)
