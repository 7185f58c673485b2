#!/usr/bin/env python3
"""test_ddprun_keys.py - the token of a job of several nodes, and what its workers prove themselves with instead.

A store beyond loopback is in a network namespace of its own, where such an address reaches nobody;
skipped where that may not be made. On loopback nobody is asked, unless a token is named.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN
from ddprund_run import DdprundCase, DDPCTL
from nodes import free_port

ADDRESS = '192.0.2.1'
STORE = f'{ADDRESS}:29400'
INSIDE = ['unshare', '--map-root-user', '--net', 'sh', '-c',
          f'ip link set lo up && ip addr add {ADDRESS}/32 dev lo && exec "$@"', 'sh']
ALLREDUCE = Path(DDPRUN).resolve().parents[1] / 'examples' / 'allreduce'
# Two nodes in one namespace; the second is the one that is looked at.
BOTH = (f'"$0" {{0}} {ALLREDUCE} & "$0" {{0}} sh -c "$1"; code=$?; wait; exit $code')


def permitted():
    try:
        return subprocess.run([*INSIDE, 'true'], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


@unittest.skipUnless(permitted(), 'network namespaces may not be made here: that takes root or user namespaces, '
                                  'and the program ip (Debian package iproute2)')
class WorkerKeys(DdprundCase):
    def two_nodes(self, script, *options):
        words = ' '.join(['--nnodes=2', '--lease=10m', '--rdzv-id=train', f'--rdzv-endpoint={STORE}', '--no-prefix',
                          *options])
        program, *rest = INSIDE
        job = self.start(*rest, 'sh', '-c', BOTH.format(words), DDPRUN, script, program=program)
        job.wait()
        job.wait_gone()
        return job

    def test_libddpcomm_passes_it_on(self):
        job = self.two_nodes(f'exec {ALLREDUCE}')
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(job.out.splitlines()),
                         ['rank 0 of 2: the sum is 3', 'rank 1 of 2: the sum is 3'])

    def test_what_a_worker_can_do_with_it(self):
        look = (f'exec {ALLREDUCE} & '
                'echo "prefix $DDPRUN_STORE_PREFIX fd $DDPRUN_TOKEN_FD"; '
                'key=/proc/self/fd/3; cut -d" " -f1-5 <$key; '
                f'store() {{ DDPRUN_TOKEN_FILE=$KEY HOME=/nowhere {DDPCTL} store "$@"; }}; '
                'umask 077; KEY=key; cat $key >$KEY; '
                'store set ${DDPRUN_STORE_PREFIX}mine yes && echo "$(store get ${DDPRUN_STORE_PREFIX}mine)"; '
                'store set --prefix= g2/theirs no || echo "g2 $?"; '
                'store fence train 99 || echo "fence $?"; wait')
        job = self.two_nodes(look)
        self.assertEqual(job.code, 0, job.err)
        for text in ('prefix g1/ fd 3', 'ddprun-key 2 worker train 1', 'yes', 'g2 77', 'fence 77'):
            self.assertIn(text, job.out.splitlines(), job.out + job.err)
        token = (self.home / '.config/ddprun/token').read_text().strip()
        self.assertNotIn(token, (self.folder / 'key').read_text())

    def test_without_authentication_there_is_none(self):
        job = self.two_nodes(f'echo "$DDPRUN_STORE_PREFIX ${{DDPRUN_TOKEN_FD-none}}"; exec {ALLREDUCE}',
                             '--no-auth')
        self.assertEqual(job.code, 0, job.err)
        self.assertIn('job/train/g1/ none', job.out.splitlines())


class OnLoopback(DdprundCase):
    LOOK = 'echo "$DDPRUN_STORE_PREFIX ${DDPRUN_TOKEN_FD-none}"'

    def setUp(self):
        super().setUp()
        self.named = self.folder / 'token'
        self.token('make', f'--token-file={self.named}')

    def lone_node(self, store, *options, **env):
        job = self.start('--nnodes=1:2', '--settle=50ms', '--rdzv-id=train', f'--rdzv-endpoint={store}',
                         '--no-prefix', *options, 'sh', '-c', self.LOOK, env=env)
        job.wait()
        return job

    def test_a_store_that_asks_for_it(self):
        daemon = self.serve('--auth=always', f'--token-file={self.named}')
        self.addCleanup(self.stop, daemon)
        job = self.lone_node(daemon.endpoints[0], f'--token-file={self.named}')
        self.assertEqual((job.code, job.out), (0, 'g1/ 3\n'), job.err)
        self.token('make', f'--token-file={self.folder}/other')
        job = self.lone_node(daemon.endpoints[0], f'--token-file={self.folder}/other')
        self.assertEqual(job.code, 77, job.err)
        self.assertIn(f'{daemon.endpoints[0]} refuses this node', job.err)
        self.assertIn(f'{self.folder}/other', job.err)

    def test_a_node_without_one_hears_where_it_is(self):
        """In one sentence, however long the path."""
        home = '/'.join([str(self.folder), *('x' * 200 for _ in range(4))])
        daemon = self.serve('--auth=always', f'--token-file={self.named}')
        self.addCleanup(self.stop, daemon)
        job = self.lone_node(daemon.endpoints[0], '--rdzv-conf=is_host=0', XDG_CONFIG_HOME=home)
        self.assertEqual(job.code, 77, job.err)
        self.assertEqual(job.err, f'ddprun: nodes need a token for the store at {daemon.endpoints[0]}, and this one has '
                                  "none: copy the file that 'ddpctl token show-path' names on the store's node to "
                                  f'{home}/ddprun/token here\n')

    def test_what_is_no_store_is_not_about_the_token(self):
        """As a web server answers."""
        with socket.create_server(('127.0.0.1', 0)) as server:
            server.settimeout(60)  # ddprun may not come

            def answer():
                client, _ = server.accept()
                with client:
                    client.recv(1)
                    client.sendall(b'HTTP/1.1 400 Bad Request\r\n\r\n')
            thread = threading.Thread(target=answer)
            thread.start()
            address = f'127.0.0.1:{server.getsockname()[1]}'
            job = self.lone_node(address)
            thread.join()
        self.assertEqual((job.code, job.err), (77, f'ddprun: the program at {address} is no store that this ddprun can '
                                                   'use: the server is not a ddprun store; give another '
                                                   '--rdzv-endpoint, or another port to that program\n'))

    def test_a_store_that_is_not_there(self):
        store = f'127.0.0.1:{free_port()}'
        job = self.lone_node(store, '--rdzv-conf=is_host=0', '--join-timeout=2s')
        why = f'{store}: Connection refused'
        self.assertEqual(job.code, 69, job.err)
        self.assertRegex(job.err, rf"\Addprun: job 'train' waits for its store at {store}, at most 2 s \(--join-timeout\): "
                                  rf"{why}\nddprun: the store could not be reached for \d+ s \(--join-timeout\): {why} "
                                  rf"\(job 'train' at {store}\)\n\Z")

    def test_two_nodes_with_different_tokens(self):
        """Both say so, and which file to copy where; all else that the one without the token hears is "denied"."""
        store = f'127.0.0.1:{free_port()}'
        words = ['--nnodes=2', '--rdzv-id=train', f'--rdzv-endpoint={store}', '--no-prefix']
        other = self.folder / 'other'
        self.token('make', f'--token-file={other}')
        host = self.start(*words, f'--token-file={self.named}', 'true')
        host.read_until('waiting for 1 more node')
        guest = self.start(*words, '--rdzv-conf=is_host=0', f'--token-file={other}', 'true')
        self.assertEqual(guest.wait(), 77, guest.err)
        self.assertRegex(guest.err, rf"\Addprun: the store at {store} refuses this node: most likely its token differs "
                                    rf"from {other}; copy [^\n]*'ddpctl token show-path'[^\n]*\n\Z")
        host.read_until('its token differs from that of this server')
        host.signal(signal.SIGTERM)
        host.wait()
        self.assertRegex(host.err, r"denied: [^\n]* its token differs from that of this server[^\n]*'ddpctl token show-path'")

    def test_the_node_that_has_the_store_asks_for_it(self):
        """Also by way of the environment, where it may be meant for other programs."""
        for options, env in (((f'--token-file={self.named}',), {}), ((), {'DDPRUN_TOKEN_FILE': str(self.named)})):
            job = self.lone_node(f'127.0.0.1:{free_port()}', *options, **env)
            self.assertEqual((job.code, job.out), (0, 'g1/ 3\n'), job.err)

    def test_one_node_that_asks_all(self):
        """The user's own token is made; workers get keys, and PyTorch's clients are vouched for."""
        ping = ("import os, socket; host, port = os.environ['DDPRUN_STORE'].split(':'); "
                "s = socket.create_connection((host, int(port))); s.sendall(bytes.fromhex('00cef7853c0d') + b'ping'); "
                "print('ping', s.recv(4) == b'ping')")
        script = f'{self.LOOK}; {sys.executable} -c "{ping}"; {DDPCTL} store --no-auth get k; echo "open $?"; {ALLREDUCE}'
        for options, env in ((('--auth=always',), {}), ((), {'DDPRUN_AUTH': 'always'})):
            job = self.start('--nproc-per-node=2', '--no-prefix', *options, 'sh', '-c', script, env=env)
            job.wait()
            self.assertEqual(job.code, 0, job.err)
            lines = sorted(job.out.splitlines())
            self.assertEqual(lines, sorted(2 * ['g1/ 3', 'ping True', 'open 77'] +
                                           [f'rank {rank} of 2: the sum is 3' for rank in (0, 1)]))
        self.assertTrue((self.home / '.config/ddprun/token').exists())

    def test_auth_is_one_of_three_words(self):
        job = self.start('--auth=sometimes', 'true')
        job.wait()
        self.assertEqual(job.code, 2)
        self.assertIn("'sometimes' is not default|always|never", job.err)

    def test_the_users_own_is_made_and_used(self):
        job = self.lone_node(f'127.0.0.1:{free_port()}')
        self.assertEqual((job.code, job.out), (0, 'g1/ 3\n'), job.err)

    def test_nobody_asks_for_one_that_cannot_be(self):
        job = self.lone_node(f'127.0.0.1:{free_port()}', HOME='')
        self.assertEqual((job.code, job.out), (0, 'job/train/g1/ none\n'), job.err)


if __name__ == '__main__':
    unittest.main()
