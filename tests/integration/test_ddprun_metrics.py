#!/usr/bin/env python3
"""test_ddprun_metrics.py - a job seen over HTTP: who may see what, in which phase, and what strangers and bad
scrapers can do to it. tests/interop/test_metrics_page.py asks promtool and a browser.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sys
import threading
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, DdprunCase, wait_until
from ddprund_run import DDPRUND
from nodes import free_port
from strangers import as_stranger, can_become_one, needs_strangers

USAGE, CONFIG = 2, 78
HAS_HTTP = os.environ.get('DDPRUN_HAS_HTTP', '1') == '1'
WORKER = 'echo "up $RANK" >&2; until [ -e end ]; do sleep 0.02; done'


LISTENS = '0A'  # a state in /proc/net/tcp

# What a client may have sent when it does nothing more, or only a byte now and then.
HELD = (b'GET', b'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1024\r\n\r\n',
        b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n' * 500)  # and reads none of the answers


def answer_to(port, text):
    """The status of the answer to @text, with which the connection ends."""
    with socket.create_connection(('127.0.0.1', port)) as sock:
        sock.sendall(text.encode())
        answer = b''
        while data := sock.recv(65536):
            answer += data
        return int(answer.split()[1])


def connections_of(port):
    """How many a process has open that listens there. The kernel keeps others for a while, of no process."""
    rows = [line.split() for line in Path('/proc/net/tcp').read_text().splitlines()[1:]]
    return sum(row[1].endswith(f':{port:04X}') and row[3] != LISTENS and row[9] != '0' for row in rows)


def documented_table():
    """The rows of the table 'Who may see it': paths, then a cell for each kind of reader."""
    text = (ROOT / 'docs/observing.md').read_text().partition('## Who may see it')[2].partition('\n## ')[0]
    rows = [[cell.strip() for cell in line.strip('|').split('|')] for line in text.splitlines() if line.startswith('| `')]
    return [[[path.replace('RANK', '0') for path in re.findall('`(.*?)`', row[0])], *row[1:]] for row in rows]


def own_address():
    """An address of this machine that is not of loopback; None: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(('192.0.2.1', 9))  # nothing is sent
        except OSError:
            return None
        return sock.getsockname()[0]


def head_of(port, path, method='GET', **headers):
    """The headers of the answer."""
    server = http.client.HTTPConnection('127.0.0.1', port)
    try:
        server.request(method, path, headers=headers)
        return server.getresponse().headers
    finally:
        server.close()


def ask(port, path, host='127.0.0.1', method='GET', **headers):
    """Status and body."""
    server = http.client.HTTPConnection(host, port)
    try:
        server.request(method, path, headers=headers)
        answer = server.getresponse()
        return answer.status, answer.read().decode()
    finally:
        server.close()


def value_of(metrics, name):
    """Of the series @name."""
    found = re.search(rf'^{re.escape(name)} (\S+)$', metrics, re.M)
    return float(found[1]) if found else None


@unittest.skipUnless(HAS_HTTP, 'this build has no HTTP: libmicrohttpd was missing (Debian package libmicrohttpd-dev)')
class MetricsCase(DdprunCase):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.env['XDG_CONFIG_HOME'] = str(self.folder / 'config')

    def job(self, *words, listen=None, worker=WORKER):
        job = self.start('--nproc-per-node=2', '--rdzv-id=train', f'--metrics-listen={listen or self.port}', *words,
                         'sh', '-c', worker)
        self.addCleanup((self.folder / 'end').touch)
        return job

    def started(self, *words, **options):
        job = self.job(*words, **options)
        job.read_until('up 0')
        job.read_until('up 1')
        return job

    def end(self, job, code=0):
        (self.folder / 'end').touch()
        self.assertEqual(job.wait(), code, job.err)

    def status(self, condition=lambda status: True, port=None):
        def there():
            try:
                code, text = ask(port or self.port, '/status.json')
            except ConnectionRefusedError:  # it is starting
                return None
            self.assertEqual(code, 200, text)
            status = json.loads(text)
            return status if condition(status) else None
        return wait_until(there, 'the status')


class OneNode(MetricsCase):
    def test_the_last_lines_of_both_streams(self):
        """Also those that the console does not show; those that go to a file alone are there."""
        script = 'echo first; echo second >&2; echo third; echo "up $RANK" >&2; until [ -e end ]; do sleep 0.02; done'
        job = self.job('--local-ranks-filter=0', worker=script)
        job.read_until('up 0')
        for rank in (0, 1):
            wait_until(lambda: sorted(ask(self.port, f'/tail/{rank}')[1].split('\n')) ==  # two pipes are two orders
                       sorted(['first', 'second', 'third', f'up {rank}', '']), f'all lines of rank {rank}')
        self.end(job)

    def test_where_the_lines_of_a_file_are(self):
        job = self.job('--redirects=3', '--log-dir=logs', worker='touch up$RANK; ' + WORKER)
        wait_until(lambda: all((self.folder / f'up{rank}').exists() for rank in (0, 1)), 'the workers')
        self.assertRegex(ask(self.port, '/tail/1')[1], r'\A\(its output goes to logs/train_.{6}/attempt_0/1/stdout\.log\)\n\Z')
        self.end(job)

    def test_what_is_shown(self):
        job = self.started('--max-restarts=1')
        status = self.status(lambda status: status['job'].get('state') == 'running' and
                             [len(node['workers']) for node in status['job']['nodes']] == [2])
        self.assertEqual((status['schema'], status['phase'], status['local_ranks'], status['job']['job']),
                         (1, 'running', 2, 'train'))
        self.assertEqual([event['generation'] for event in status['timeline']], [1])
        self.assertEqual(ask(self.port, '/healthz'), (200, 'ok running\n'))
        self.assertEqual(ask(self.port, '/tail/1'), (200, 'up 1\n'))  # of stderr
        code, page = ask(self.port, '/')
        self.assertEqual(code, 200)
        self.assertIn('<title>ddprun</title>', page)
        self.assertNotRegex(page, r'(src|href)=|https?://|@import|url\(')
        code, metrics = ask(self.port, '/metrics')
        self.assertEqual(code, 200)
        for name, value in (('ddprun_generation', 1), ('ddprun_world_size', 2), ('ddprun_members', 1),
                            ('ddprun_max_restarts', 1), ('ddprun_workers{state="running"}', 2), ('ddprun_store_up', 1),
                            ('ddprun_job_state{job="train",state="running"}', 1)):
            self.assertEqual(value_of(metrics, name), value, name)
        os.kill(status['job']['nodes'][0]['workers'][1]['pid'], signal.SIGKILL)
        status = self.status(lambda status: status['job'].get('generation') == 2 and status['timeline'][0]['running_ms'])
        self.assertIn('rank 1', status['timeline'][0]['reason'])
        metrics = ask(self.port, '/metrics')[1]
        self.assertEqual(value_of(metrics, 'ddprun_restarts_total{reason="failure"}'), 1)
        self.assertEqual(value_of(metrics, 'ddprun_recovery_seconds_count{phase="running"}'), 1)
        self.end(job)

    def test_a_job_whose_id_is_no_name(self):
        """Only the store of several nodes needs one; here any id goes, and is shown as a name."""
        given = 'exp/1 "' + 70 * 'x'
        job = self.started(f'--rdzv-id={given}')
        status = self.status(lambda status: status['job'].get('state') == 'running' and
                             [len(node['workers']) for node in status['job']['nodes']] == [2])
        self.assertEqual(status['job']['job'], 'exp_1__' + 57 * 'x')
        self.assertEqual(value_of(ask(self.port, '/metrics')[1], 'ddprun_workers{state="running"}'), 2)
        self.end(job)

    def test_it_says_where_it_is_shown(self):
        job = self.started(listen='0')
        port = int(re.search(r'the job is shown at http://127\.0\.0\.1:(\d+)/', job.err)[1])
        self.assertEqual(ask(port, '/healthz')[0], 200)
        self.end(job)

    def test_a_launch_pays_a_socket(self):
        """The HTTP library is loaded at the first connection."""
        job = self.started()
        maps = Path(f'/proc/{job.agent()}/maps')
        self.assertNotIn('libmicrohttpd', maps.read_text())
        self.assertEqual(ask(self.port, '/healthz')[0], 200)
        self.assertIn('libmicrohttpd', maps.read_text())
        self.end(job)

    def test_requests_that_have_no_answer(self):
        job = self.started()
        for path in ('/nosuch', '/tail/2', '/tail/-1', '/tail/', '/tail/1/../0', '/tail', '/metrics/', '//', '/status.json%0a', '/' + 'x' * 20000):
            self.assertEqual(ask(self.port, path)[0], 404, path)
        for method in ('POST', 'PUT', 'DELETE', 'OPTIONS'):
            self.assertEqual(ask(self.port, '/metrics', method=method)[0], 405)
        self.assertEqual(ask(self.port, '/metrics', Host='evil.example')[0], 403)
        self.assertEqual(head_of(self.port, '/metrics', 'POST')['Allow'], 'GET, HEAD')
        self.assertEqual(head_of(self.port, '/tail/0')['X-Content-Type-Options'], 'nosniff')
        self.assertEqual(ask(self.port, '/healthz')[0], 200)
        self.end(job)

    def test_strangers_bytes(self):
        job = self.started()
        for data in (b'\0' * 4096, b'GET / HTTP/9.9\r\n\r\n', b'GET /metrics', b'\r\n' * 1000,
                     b'GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n',
                     b'GET / HTTP/1.1\r\n' + b'X: y\r\n' * 20000):
            with socket.create_connection(('127.0.0.1', self.port)) as sock:
                sock.sendall(data)
                self.assertEqual(ask(self.port, '/healthz')[0], 200)
        self.end(job)

    def test_scrapers_that_never_read(self):
        """More of them than there are connections; the job neither waits for them nor grows."""
        job = self.started()
        idle = [socket.create_connection(('127.0.0.1', self.port)) for _ in range(40)]
        for sock in idle:
            sock.sendall(b'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n' * 20)
        self.assertEqual(ask(self.port, '/healthz')[0], 200)
        self.end(job)
        for sock in idle:
            sock.close()

    def test_a_client_that_never_stops(self):
        """The agent looks at its workers between two requests."""
        job = self.started()
        over = threading.Event()

        def flood():
            with socket.create_connection(('127.0.0.1', self.port)) as sock, contextlib.suppress(OSError):
                while not over.is_set():
                    sock.sendall(b'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n' * 50)
                    sock.recv(1 << 20)
        clients = [threading.Thread(target=flood) for _ in range(3)]
        for client in clients:
            client.start()
        try:
            self.assertEqual(ask(self.port, '/healthz')[0], 200)
            self.end(job)  # not after the clients have had enough
        finally:
            over.set()
            for client in clients:
                client.join()

    def hold(self, begin):
        """A connection whose request or answer never ends."""
        sock = socket.socket()
        self.addCleanup(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(('127.0.0.1', self.port))
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.send(begin)
        return sock

    def test_clients_that_hold_all_connections(self):
        """The one that has taken longest makes room, whatever it is at."""
        job = self.started()
        for begin in HELD:
            held = [self.hold(begin) for _ in range(80)]
            for _ in range(3):
                self.assertEqual(ask(self.port, '/healthz')[0], 200, begin)
            for sock in held:
                sock.close()
        self.end(job)

    def test_clients_that_take_too_long(self):
        """A byte now and then gets nobody more time."""
        job = self.started()
        held = [self.hold(begin) for begin in HELD]
        wait_until(lambda: connections_of(self.port) == len(held), 'the clients')

        def gone():
            for sock in held:
                with contextlib.suppress(OSError):
                    sock.send(b'x')
            return connections_of(self.port) == 0
        wait_until(gone, 'their end')
        self.end(job)

    def test_bodies_are_refused_by_their_heads(self):
        job = self.started()
        for method in ('GET', 'HEAD', 'POST'):
            # libmicrohttpd 1.0 itself refuses two lengths, as a bad request.
            for header, statuses in (('Content-Length: 1025', [413]), ('Content-Length: 9999999999', [413]),
                                     ('Transfer-Encoding: chunked', [411]),
                                     ('Content-Length: 1\r\nTransfer-Encoding: chunked', [411, 400])):
                head = f'{method} /healthz HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n'
                self.assertIn(answer_to(self.port, head), statuses, head)
        head = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1024\r\n\r\n'
        self.assertEqual(answer_to(self.port, head + 1024 * 'x'), 200)
        self.end(job)

    def test_hosts_that_mean_this_machine(self):
        job = self.started(listen=f'127.0.0.2:{self.port}')
        for host, status in (('127.0.0.2', 200), (f'127.0.0.2:{self.port}', 200), ('127.0.0.1', 200), ('LOCALHOST', 200),
                             ('[::1]', 200), ('127.0.0.2.evil.example', 403), ('127.evil', 403), ('10.0.0.1', 403),
                             ('localhost.evil.example', 403), ('', 403), ('[::1', 403)):
            self.assertEqual(ask(self.port, '/healthz', '127.0.0.2', Host=host)[0], status, host)
        self.end(job)

    def test_a_token_that_was_named(self):
        """A proxy of the same user may be at the other end."""
        token = self.folder / 'token'
        job = self.started(f'--metrics-token-file={token}')
        seen = [ask(self.port, path)[0] for path in ('/metrics', '/status.json', '/tail/0')]
        self.assertEqual(seen, [200, 401, 401])
        given = f'bearer {token.read_text().strip()}'
        self.assertEqual(ask(self.port, '/tail/0', Authorization=given), (200, 'up 0\n'))
        self.end(job)

    @needs_strangers
    def test_another_user_of_the_machine(self):
        """Numbers for their Prometheus, not what the workers print."""
        job = self.started()
        port = self.port
        seen = as_stranger(lambda: {path: ask(port, path)[0] for path in
                                    ('/', '/healthz', '/metrics', '/status.json', '/tail/0')})
        self.assertEqual(seen, {'/': 200, '/healthz': 200, '/metrics': 200, '/status.json': 401, '/tail/0': 401})
        self.end(job)

    def assert_as_documented(self, host, column, asked=ask):
        for paths, *cells in documented_table():
            for path in paths:
                expected = 200 if cells[column].startswith('yes') else 401
                self.assertEqual(asked(self.port, path, host)[0], expected, (path, host, column))

    def test_the_table_of_the_documentation(self):
        for listen in (f'127.0.0.1:{self.port}', f'0.0.0.0:{self.port}'):
            job = self.started(listen=listen)
            self.assert_as_documented('127.0.0.1', 1)
            if can_become_one():
                self.assert_as_documented('127.0.0.1', 0, lambda *words: as_stranger(lambda: ask(*words)))
            if listen.startswith('0.0.0.0') and own_address():
                self.assert_as_documented(own_address(), 2)
            self.end(job)
            (self.folder / 'end').unlink()

    def test_a_page_of_another_name_beyond_loopback(self):
        """The user's browser shows it, and its name points to this machine."""
        job = self.started(listen=f'0.0.0.0:{self.port}')
        for path in ('/metrics', '/status.json', '/tail/0'):
            self.assertEqual(ask(self.port, path, Host='evil.example')[0], 401, path)
        self.end(job)

    def test_the_token_beyond_loopback(self):
        """It is asked of every request but those over loopback."""
        job = self.started(listen=f'0.0.0.0:{self.port}')
        token = (self.folder / 'config/ddprun/metrics-token').read_text().strip()
        self.assertRegex(token, r'\A[0-9a-f]{64}\Z')
        self.assertEqual((self.folder / 'config/ddprun/metrics-token').stat().st_mode & 0o777, 0o600)
        for path in ('/metrics', '/status.json', '/tail/0'):
            self.assertEqual(head_of(self.port, path, Host='node7.example')['WWW-Authenticate'], 'Bearer')
            for wrong in (f'Bearer {token[:-1]}', f'Bearer {token}0', f'Basic {token}', token, 'Bearer '):
                self.assertEqual(ask(self.port, path, Authorization=wrong, Host='node7.example')[0], 401, wrong)
            self.assertEqual(ask(self.port, path, Authorization=f'Bearer {token}', Host='node7.example')[0], 200, path)
        self.assertEqual([ask(self.port, path)[0] for path in ('/', '/healthz')], [200, 200])
        self.end(job)

    def test_addresses_that_do_not_go(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assert_sentence(self.run_job(f'--metrics-listen={port}', 'true'), CONFIG, '--metrics-listen', str(port))
        for text in ('localhost', 'a:b', '70000', '[::1', ':80', '-1'):
            self.assert_sentence(self.run_job(f'--metrics-listen={text}', 'true'), USAGE, '--metrics-listen')
        self.assert_sentence(self.run_job('--metrics-listen=0.0.0.0:0', '--metrics-token-file=/proc/none', 'true'), CONFIG,
                             '--metrics-listen', '/proc/none')

    def test_a_textfile(self):
        file = self.folder / 'job.prom'
        job = self.run_job('--rdzv-id=train', f'--metrics-textfile={file}', 'true')
        self.assert_succeeded(job)
        self.assertIn('ddprun_build_info', file.read_text())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir() if 'prom' in path.name), ['job.prom'])
        os.mkfifo(self.folder / 'fifo')
        for other in ('/dev/null', self.folder / 'fifo', self.folder):
            self.assert_sentence(self.run_job(f'--metrics-textfile={other}', 'true'), USAGE, '--metrics-textfile', str(other))
        self.assertTrue((self.folder / 'fifo').is_fifo())
        job = self.run_job(f'--metrics-textfile={self.folder}/no/such', 'true')
        self.assert_succeeded(job)
        self.assertIn('--metrics-textfile: ', job.err)


class SeveralNodes(MetricsCase):
    def node(self, name, endpoint, port, *words, nnodes='2'):
        job = self.start(f'--nnodes={nnodes}', *words, '--nproc-per-node=1', '--rdzv-id=train', f'--rdzv-endpoint={endpoint}',
                         '--lease=10m', f'--metrics-listen={port}', '--node-rank', name, 'sh', '-c', WORKER)
        self.addCleanup((self.folder / 'end').touch)
        return job

    def test_every_agent_shows_the_whole_job(self):
        endpoint, ports = f'127.0.0.1:{free_port()}', [self.port, free_port()]
        first = self.node('0', endpoint, ports[0])
        first.read_until('waiting for 1 more node')
        self.assertEqual(ask(ports[0], '/healthz'), (200, 'ok waiting\n'))
        status = self.status(lambda status: status['job'].get('state') == 'forming')
        self.assertEqual(value_of(ask(ports[0], '/metrics')[1], 'ddprun_generation'), 0)
        second = self.node('1', endpoint, ports[1])
        for port in ports:
            status = self.status(lambda status: status['job'].get('generation') == 1 and
                                 len(status['job']['nodes']) == 2 and
                                 all(node['workers'] for node in status['job']['nodes']), port)
            self.assertEqual(sorted(worker['rank'] for node in status['job']['nodes'] for worker in node['workers']),
                             [0, 1])
            self.assertEqual(value_of(ask(port, '/metrics')[1], 'ddprun_members'), 2)
        (self.folder / 'end').touch()
        self.assertEqual((first.wait(), second.wait()), (0, 0))

    def test_a_store_that_starts_again_without_its_state(self):
        """It counts versions anew, and knows nothing of a node that was lost meanwhile."""
        port = free_port()
        endpoint = f'127.0.0.1:{port}'
        store = self.start(f'--listen={endpoint}', program=DDPRUND)
        store.read_until('listening')
        first, second = (self.start('--nnodes=1:2', '--nproc-per-node=1', '--rdzv-id=train', '--settle=10',
                                    f'--rdzv-endpoint={endpoint}', *words, '--rdzv-conf=is_host=false', 'sh', '-c', WORKER)
                         for words in ([f'--metrics-listen={self.port}'], []))
        self.addCleanup((self.folder / 'end').touch)
        self.status(lambda status: status['job'].get('seated') == 2)
        store.signal(signal.SIGKILL)
        store.wait()
        os.kill(second.agent(), signal.SIGKILL)
        second.wait()
        store = self.start(f'--listen={endpoint}', program=DDPRUND)
        self.status(lambda status: status['job'].get('state') == 'running' and status['job']['seated'] == 1 and
                    len(status['job']['nodes']) == 1 and status['job']['nodes'][0]['workers'])
        metrics = ask(self.port, '/metrics')[1]
        self.assertEqual([value_of(metrics, f'ddprun_{name}') for name in ('members', 'world_size')], [1, 1])
        (self.folder / 'end').touch()
        self.assertEqual(first.wait(), 0)
        store.signal(signal.SIGTERM)
        store.wait()

    def test_texts_that_are_no_utf8(self):
        endpoint = f'127.0.0.1:{free_port()}'
        first = self.node('0', endpoint, self.port, nnodes='1:2')
        check = r'[ ! -e bad ] || { printf "Gr\344te \377 kaputt"; exit 1; }'
        second = self.node('1', endpoint, free_port(), f'--node-check={check}', nnodes='1:2')
        self.status(lambda status: status['job'].get('seated') == 2)
        (self.folder / 'bad').touch()
        status = self.status(lambda status: len(status['job']['nodes']) == 2 and
                             all(node['workers'] for node in status['job']['nodes']))
        pids = [worker['pid'] for node in status['job']['nodes'] for worker in node['workers']]
        os.kill(pids[0], signal.SIGKILL)  # costs no restart, as the check that follows explains it
        self.status(lambda status: any(node['left_out'] for node in status['job']['nodes']))
        for job in (first, second):
            job.signal(signal.SIGTERM)
            job.wait()

    def test_the_store_is_away(self):
        """What was known is shown, and the store is told to be down."""
        port, other_port = free_port(), free_port()
        first = self.start('--nnodes=2', '--nproc-per-node=1', '--rdzv-id=train', f'--rdzv-endpoint=127.0.0.1:{port}',
                           '--lease=60', '--node-rank=0', 'sh', '-c', WORKER)
        first.read_until('waiting for 1 more node')
        other = self.start('--nnodes=2', '--nproc-per-node=1', '--rdzv-id=train', f'--rdzv-endpoint=127.0.0.1:{port}',
                           f'--metrics-listen={other_port}', '--lease=60', '--node-rank=1', 'sh', '-c', WORKER)
        self.addCleanup((self.folder / 'end').touch)
        self.status(lambda status: status['job'].get('generation') == 1, other_port)
        os.kill(first.agent(), signal.SIGKILL)  # with it goes the store
        metrics = wait_until(lambda: (text := ask(other_port, '/metrics')[1]) and
                             value_of(text, 'ddprun_store_up') == 0 and text, 'the store to be away')
        self.assertEqual(value_of(metrics, 'ddprun_generation'), 1)
        self.assertEqual(ask(other_port, '/healthz')[0], 200)
        other.signal(signal.SIGTERM)
        other.wait()


if __name__ == '__main__':
    unittest.main()
