#!/usr/bin/env python3
"""test_ddprun_horovod.py - the rendezvous of Horovod's programs, asked as Horovod 0.28 asks: over HTTP, in three
scopes, a new connection for each request. tests/interop/test_horovod.py has the real one.
"""

import http.client
import os
import socket
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, wait_until
from nodes import free_port
from strangers import as_stranger, needs_strangers

HAS_HTTP = os.environ.get('DDPRUN_HAS_HTTP', '1') == '1'
needs_http = unittest.skipUnless(HAS_HTTP, 'this build has no HTTP: libmicrohttpd was missing (Debian package '
                                             'libmicrohttpd-dev)')

# Each rank tells its address in each scope and asks for those of the others; then it says that it has done.
CLIENT = '''
import http.client, os, sys
number = {name: int(os.environ['HOROVOD_' + name]) for name in
          ('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE', 'CROSS_RANK', 'CROSS_SIZE', 'GLOO_RENDEZVOUS_PORT')}
attempt = os.environ['TORCHELASTIC_RESTART_COUNT']
assert os.environ['HOROVOD_CONTROLLER'] == os.environ['HOROVOD_CPU_OPERATIONS'] == 'gloo'

def ask(method, path, body=None):
    server = http.client.HTTPConnection(os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR'], number['GLOO_RENDEZVOUS_PORT'])
    server.request(method, path, body)
    answer = server.getresponse()
    value = answer.read()
    server.close()
    return answer.status, value

def put(path, value):
    assert ask('PUT', path, value) == (200, b'')

def wait(path):
    while True:
        status, value = ask('GET', path)
        if status == 200:
            return value
        assert status == 404, status

def address(scope, rank, of):
    return f'{scope}: {rank} of attempt {of}'.encode() + bytes(range(256))

def meet(scope, rank, size):
    put(f'/{scope}/rank_{rank}', b'host')
    for other in range(rank):
        assert ask('GET', f'/{scope}/rank_{other}') in ((200, b'host'), (404, b''))
    put(f'/{scope}/{rank}', address(scope, rank, attempt))
    for other in range(size):
        assert wait(f'/{scope}/{other}') == address(scope, other, attempt)
    put(f'/all_of_{scope}/{os.environ["RANK"]}', b'')
    assert ask('GET', f'/{scope}/{rank}') == (200, address(scope, rank, attempt))

for again in range(2):
    scopes = [('global', number['RANK'], number['SIZE']),
              ('local_' + os.environ['HOROVOD_HOSTNAME'], number['LOCAL_RANK'], number['LOCAL_SIZE']),
              (f'cross_{number["LOCAL_RANK"]}', number['CROSS_RANK'], number['CROSS_SIZE'])]
    if number['CROSS_SIZE'] == 1:
        scopes[2] = (f'alone_{number["RANK"]}', 0, 1) # each writes the same key, which nobody else reads
    for scope, rank, size in scopes:
        meet(scope, rank, size)
    for other in range(number['SIZE']):
        put(f'/met_{again}_{other}/{number["RANK"]}', b'')
        wait(f'/met_{again}_{number["RANK"]}/{other}')
    for scope, rank, size in scopes:
        assert ask('DELETE', f'/{scope}/{rank}') == (200, b'')
        assert ask('DELETE', f'/{scope}/{rank}') == (200, b'')
    for other in range(number['SIZE']):
        put(f'/left_{again}_{other}/{number["RANK"]}', b'')
        wait(f'/left_{again}_{number["RANK"]}/{other}')
    assert ask('GET', f'/global/{number["RANK"]}') == (404, b'')
print(number['RANK'], number['LOCAL_RANK'], number['CROSS_RANK'], os.environ['HOROVOD_GLOO_IFACE'], attempt, flush=True)
if attempt == '0' and number['RANK'] == 1 and 'fail' in sys.argv:
    sys.exit(3)
sys.stdin.read()
wait(f'/never/0') if 'wait' in sys.argv else None
'''

# Tells the port, then waits to be ended.
WAITER = 'echo port $HOROVOD_GLOO_RENDEZVOUS_PORT.; cat'


def ask(port, method, path, body=None, host=None):
    server = http.client.HTTPConnection('127.0.0.1', port)
    try:
        server.request(method, path, body, headers={'Host': host} if host else {})
        return server.getresponse().status
    finally:
        server.close()


@needs_http
class Rendezvous(DdprunCase):
    def setUp(self):
        super().setUp()
        self.client = self.write('client.py', CLIENT)

    def test_one_node(self):
        job = self.run_job('--nproc-per-node=3', '--no-prefix', self.client)
        self.assertEqual((job.code, job.err), (0, ''))
        self.assertEqual(sorted(job.out.splitlines()), [f'{rank} {rank} 0 lo 0' for rank in range(3)])

    def test_after_a_restart_no_key_is_left(self):
        job = self.run_job('--nproc-per-node=2', '--no-prefix', '--max-restarts=1', self.client, 'fail')
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(set(job.out.splitlines()) - {'0 0 0 lo 0'}), ['0 0 0 lo 1', '1 1 0 lo 0', '1 1 0 lo 1'])

    def test_two_nodes_of_one_name_and_a_restart(self):
        """Both have the same host name, and so the same scope for the workers of a node."""
        endpoint = f'127.0.0.1:{free_port()}'
        nodes = [self.start('--nnodes=2', f'--node-rank={node}', '--nproc-per-node=2', f'--rdzv-endpoint={endpoint}',
                            '--rdzv-id=hvd', '--lease=10m', '--no-prefix', '--max-restarts=1', self.client, 'fail')
                 for node in range(2)]
        for node in nodes:
            self.assertEqual(node.wait(), 0, node.err)
        for at, node in enumerate(nodes):
            lines = [line for line in node.out.splitlines() if line.endswith(' 1')]
            self.assertEqual(sorted(lines), [f'{2 * at + local} {local} {at} lo 1' for local in range(2)])

    def test_nodes_of_different_sizes(self):
        """Also where the size of one is the mean of all. Each worker is alone in its scope across nodes."""
        endpoint = f'127.0.0.1:{free_port()}'
        sizes = (2, 1, 3)
        nodes = [self.start('--nnodes=3', f'--node-rank={node}', f'--nproc-per-node={size}',
                            f'--rdzv-endpoint={endpoint}', '--rdzv-id=hvd', '--lease=10m', '--no-prefix', self.client)
                 for node, size in enumerate(sizes)]
        for node, size, first in zip(nodes, sizes, (0, 2, 3)):
            self.assertEqual(node.wait(), 0, node.err)
            self.assertEqual(sorted(node.out.splitlines()), [f'{first + local} {local} 0 lo 0' for local in range(size)])

    def test_a_job_that_ends_while_workers_wait(self):
        job = self.start('--nproc-per-node=2', self.client, 'wait')
        job.read_until(' lo 0', count=2)
        job.signal(15)
        self.assertNotEqual(job.wait(), 0)
        job.wait_gone()


class Access(DdprunCase):
    def start_waiter(self, *options):
        job = self.start('--nproc-per-node=1', '--no-prefix', *options, 'sh', '-c', WAITER, stdin=-1)
        job.read_until('.')
        return job, int(job.out.split()[1].rstrip('.'))

    def end(self, job):
        job.process.stdin.close()
        job.process.stdin = None
        self.assertEqual(job.wait(), 0, job.err)

    @unittest.skipIf(HAS_HTTP, 'this build has HTTP, and the test is about one without')
    def test_a_build_without_http_says_so(self):
        job, port = self.start_waiter()
        with self.assertRaises((ConnectionError, http.client.HTTPException)):
            ask(port, 'GET', '/global/0')
        self.end(job)
        self.assertIn('built without HTTP', job.err)

    @needs_http
    def test_what_is_refused(self):
        job, port = self.start_waiter()
        for method, path, status in (('GET', '/global/0', 404), ('POST', '/global/0', 405), ('GET', '/', 400),
                                     ('GET', '/global', 400), ('PUT', '/a/b/c', 400), ('GET', '/a/%00', 400),
                                     ('PUT', '/a/%0a', 400), ('GET', '/' + 'x' * 256 + '/y', 400)):
            self.assertEqual(ask(port, method, path), status, (method, path))
        for host, status in (('evil.example', 403), (f'evil.example:{port}', 403), ('127.0.0.1.evil.example', 403),
                             (f'127.0.0.1:{port}', 404), ('localhost', 404)):
            self.assertEqual(ask(port, 'GET', '/global/0', host=host), status, host)
        self.assertEqual(ask(port, 'PUT', '/global/0', b'x' * (4 << 20)), 200)
        try:
            self.assertEqual(ask(port, 'PUT', '/global/0', b'x' * ((4 << 20) + 1)), 413)
        except ConnectionError:
            pass # it was closed before all had been written
        self.end(job)
        self.assertEqual(job.err, '')

    @needs_http
    def test_hostile_clients(self):
        """Whatever they do, the next worker is served, and the job ends as usual."""
        job, port = self.start_waiter()
        half = [socket.create_connection(('127.0.0.1', port)) for _ in range(64)]
        for at, one in enumerate(half):
            one.sendall([b'GET /a', b'PUT /a/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc', b'\r\n' * 10000,
                         b'PUT /a/b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab'][at % 4])
        for nonsense in (b'\xff' * 100000, b'GET ' + b'/' * 100000, b'GET / HTTP/9.9\r\n\r\n', b'\0\r\n\r\n',
                         b'PUT /a/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n',
                         b'PUT /a/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\nxx',
                         b'PUT /a/b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n',
                         b'GET /a/b HTTP/1.1\r\n' + b'X: y\r\n' * 20000 + b'\r\n',
                         b'GET /a/b HTTP/1.1\r\nHost: localhost\r\n\r\n' * 5):
            with socket.create_connection(('127.0.0.1', port)) as one:
                try:
                    one.sendall(nonsense)
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(65536):
                        pass
                except OSError:
                    pass
        self.assertEqual(ask(port, 'PUT', '/global/0', b'served'), 200)
        for one in half[::2]:
            one.close() # in the midst of a request
        self.assertEqual(ask(port, 'GET', '/global/0'), 200)
        self.end(job)
        for one in half[1::2]:
            one.close()
        self.assertEqual(job.err, '')

    @needs_http
    def test_more_connections_than_it_serves(self):
        job, port = self.start_waiter()
        many = [socket.create_connection(('127.0.0.1', port)) for _ in range(600)]
        closed = wait_until(lambda: [one for one in many if is_closed(one)], 'connections that are too many')
        self.assertLess(len(closed), 600)
        for one in many:
            one.close()
        wait_until(lambda: served(port), 'a place')
        self.end(job)

    @needs_http
    @needs_strangers
    def test_another_user(self):
        job, port = self.start_waiter()
        self.assertEqual(ask(port, 'PUT', '/global/0', b'secret'), 200)
        self.assertEqual(as_stranger(lambda: refused(port)), True)
        job.read_until('user 65534 of this machine is denied')
        self.end(job)
        job, port = self.start_waiter('--trust-local-users')
        self.assertEqual(as_stranger(lambda: ask(port, 'PUT', '/global/0', b'x')), 200)
        self.end(job)


def is_closed(one):
    try:
        return one.recv(1, socket.MSG_DONTWAIT) == b''
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def served(port):
    try:
        return ask(port, 'PUT', '/global/0', b'x') == 200
    except (ConnectionError, http.client.HTTPException):
        return False


def refused(port):
    try:
        ask(port, 'GET', '/global/0')
        return False
    except (ConnectionError, http.client.HTTPException):
        return True


if __name__ == '__main__':
    unittest.main()
