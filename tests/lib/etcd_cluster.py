"""etcd_cluster.py - a real etcd of one member or more on loopback, and servers that only look like one."""

import http.server
import json
import os
import shutil
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import urllib.request
from base64 import b64decode, b64encode

from ddprun_run import wait_until
from nodes import free_ports

ETCD = shutil.which('etcd', path=os.environ.get('PATH', '') + ':/usr/bin:/usr/local/bin')


class Member:
    def __init__(self, folder, name, words, port):
        self.folder, self.name, self.words, self.port = folder, name, words, port
        self.process = None

    def start(self, *more):
        log = open(self.folder / f'{self.name}.log', 'ab')
        self.process = subprocess.Popen([ETCD, *self.words, *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def post(self, path, body, token=None):
        """The answer to a request to the gateway, of the user with @token, or None."""
        headers = {'Authorization': token} if token else {}
        request = urllib.request.Request(f'http://127.0.0.1:{self.port}{path}', json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except OSError:
            return None


class Cluster:
    """Close it in the end."""

    def __init__(self, folder, count=1, *more, tls=False):
        ports = free_ports(2 * count)
        scheme = 'https' if tls else 'http'
        peers = ','.join(f'm{i}=http://127.0.0.1:{ports[2 * i]}' for i in range(count))
        self.members = []
        for i in range(count):
            client, peer = f'{scheme}://127.0.0.1:{ports[2 * i + 1]}', f'http://127.0.0.1:{ports[2 * i]}'
            words = [f'--name=m{i}', f'--data-dir={folder}/m{i}', f'--listen-client-urls={client}',
                     f'--advertise-client-urls={client}', f'--listen-peer-urls={peer}',
                     f'--initial-advertise-peer-urls={peer}', f'--initial-cluster={peers}', *more]
            self.members.append(Member(folder, f'm{i}', words, ports[2 * i + 1]))
        for member in self.members:
            member.start()
        if not tls:
            wait_until(self.works, 'etcd')

    def address(self, prefix='/jobs', scheme='etcd'):
        return f'{scheme}://' + ','.join(f'127.0.0.1:{member.port}' for member in self.members) + prefix

    def works(self):
        return any(member.post('/v3/kv/range', {'key': 'YQ=='}) for member in self.members)

    def leader(self):
        """The member that leads."""
        for member in self.members:
            status = member.post('/v3/maintenance/status', {}) if member.process.poll() is None else None
            if status and status.get('leader') == status['header']['member_id']:
                return member
        return None

    def keys(self, prefix):
        begin, end = prefix + '/', prefix + '0'
        answer = self.members[0].post('/v3/kv/range', {'key': b64encode(begin.encode()).decode(),
                                                       'range_end': b64encode(end.encode()).decode()})
        return {b64decode(kv['key']): b64decode(kv.get('value', '')) for kv in answer.get('kvs', [])}

    def put(self, key, value):
        self.members[0].post('/v3/kv/put', {'key': b64encode(key.encode()).decode(),
                                            'value': b64encode(value).decode()})

    def compact(self):
        status = self.members[0].post('/v3/kv/range', {'key': 'YQ=='})
        self.members[0].post('/v3/kv/compaction', {'revision': status['header']['revision'], 'physical': True})

    def close(self):
        for member in self.members:
            member.kill()


class FakeEtcd(socketserver.ThreadingTCPServer):
    """Answers each request by answer(path, body): bytes as they are to be sent, after which it closes; None resets the
    connection."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, answer):
        outer = self
        self.requests = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def respond(self):
                outer.requests += 1
                length = int(self.headers.get('Content-Length') or 0)
                reply = answer(self.path, self.rfile.read(length))
                try:
                    self.wfile.write(reply) if reply is not None else self.reset()
                except OSError:
                    pass
                self.close_connection = True

            do_GET = do_POST = respond

            def reset(self):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
                os.close(self.connection.detach())

            def log_message(self, *_):
                pass

        super().__init__(('127.0.0.1', 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def address(self):
        return f'etcd://127.0.0.1:{self.server_address[1]}/jobs'

    def close(self):
        self.shutdown()
        self.server_close()


def http_answer(body, status='200 OK'):
    body = body if isinstance(body, bytes) else body.encode()
    return f'HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n'.encode() + body


VERSION = '{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}'
