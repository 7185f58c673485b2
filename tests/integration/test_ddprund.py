#!/usr/bin/env python3
"""test_ddprund.py - ddprund as a process: where it listens, its limits, its log, how it ends, and
service managers."""

import os
import re
import resource
import select
import signal
import socket
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import wait_until
from ddprund_run import (CONFIG, DDPRUND, UNREACHABLE, USAGE, DdprundCase, connect, has_ipv6)
from nodes import free_port

LIMIT = 1


class Listening(DdprundCase):
    def test_on_several_addresses(self):
        listen = ['127.0.0.1:0', '127.0.0.2:0'] + (['[::1]:0'] if has_ipv6() else [])
        job = self.serve('--listen', listen[-1], listen=','.join(listen[:-1]), listeners=len(listen))
        for given, endpoint in zip(listen, job.endpoints):
            self.assertRegex(endpoint, r'\A' + given[:-1].replace('[', r'\[') + r'[1-9]\d*\Z')
            self.done(endpoint, 'add', 'count')
        self.assertEqual(self.done(job.endpoints[0], 'get', 'count'), b'%d' % len(listen))
        self.stop(job)

    def test_the_environment_sets_defaults(self):
        job = self.serve(listen=None, listeners=2,
                         env={'DDPRUND_LISTEN': '127.0.0.1:0,127.0.0.1:0', 'DDPRUND_MAX_KEYS': 1})
        self.done(job.endpoints[0], 'set', 'a', '1')
        self.assertEqual(self.ctl(job.endpoints[1], 'set', 'b', '1')[0], LIMIT)
        self.stop(job)

    def refused(self, code, texts, *words, **options):
        with self.subTest(words, **options):
            job = self.daemon(*words, **options)
            job.wait()
            self.assert_sentence(job, code, *texts, program='ddprund')

    def test_a_port_in_use(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            endpoint = '127.0.0.1:%d' % taken.getsockname()[1]
            self.refused(CONFIG, [endpoint, 'choose another port'], f'--listen=127.0.0.1:0,{endpoint}')

    def test_what_others_could_reach(self):
        for host in ('0.0.0.0', '[::]', '192.0.2.1'):
            self.refused(CONFIG, ['--token-file'], f'--listen={host}:0', env={'HOME': ''})
        self.refused(CONFIG, ['--token-file'], env={'HOME': '', 'DDPRUND_LISTEN': '0.0.0.0:0'})
        self.refused(CONFIG, ['192.0.2.1', 'no such address'], '--listen=192.0.2.1:0', '--no-auth')

    def test_a_home_that_is_not_there(self):
        """The service of this machine needs no token; that of others does, and no home is made for it."""
        home = self.folder / 'nobody'
        job = self.serve('--log-level=info', env={'HOME': str(home)})
        job.read_until('this is the store')
        self.stop(job)
        self.assertNotIn('the token is in', job.err)
        self.refused(CONFIG, [f"'{home}/.config/ddprun/token'", 'make them'], '--listen=0.0.0.0:0', env={'HOME': str(home)})
        self.assertFalse(home.exists())

    def test_a_state_that_is_empty(self):
        """It may have been emptied; a new file is nothing to warn of."""
        for content, warned in ((b'', True), (None, False)):
            state = self.folder / f'state-{warned}'
            if content is not None:
                state.write_bytes(content)
            job = self.serve(f'--state={state}')
            job.read_until('holds 0 keys')
            self.assertEqual(f'the state {state} was an empty file' in job.err, warned, job.err)
            self.stop(job)
        (self.folder / 'byte').write_bytes(b'x')
        self.refused(CONFIG, [str(self.folder / 'byte'), 'is damaged'], '--listen=127.0.0.1:0', f'--state={self.folder}/byte')

    def test_no_auth_is_said(self):
        job = self.serve('--no-auth', listen='0.0.0.0:0')
        self.assertRegex(job.endpoints[0], r'\A0\.0\.0\.0:\d+\Z')
        job.read_until('not authenticated (--no-auth)')
        self.done(job.endpoints[0].replace('0.0.0.0', '127.0.0.1'), 'add', 'count')
        self.stop(job)

    def test_bad_words(self):
        for word, *texts in (('--listen=localhost', "'localhost'", 'port 0'), ('--listen=a:x', "'x'"),
                             ('--max-keys=0', "'0'"), ('--max-value=17M', '--max-value', "'17M'"),
                             ('--output-timeout=soon', "'soon'"), ('--log-level=x', 'warning'),
                             ('worker', "'worker'"), ('-x', "'-x'")):
            self.refused(USAGE, texts, word)
        self.refused(USAGE, ['DDPRUND_MAX_KEYS', "'many'"], env={'DDPRUND_MAX_KEYS': 'many'})

    def test_hosts_and_files_that_do_not_exist(self):
        self.refused(CONFIG, ["'no.such.host.invalid'"], '--listen=no.such.host.invalid:0')
        self.refused(CONFIG, ["'/no/such/log'"], '--log-file=/no/such/log')

    def test_hardly_any_files(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))
        self.refused(CONFIG, ['the limit on open files, 5,', 'LimitNOFILE='], '--listen=127.0.0.1:0',
                     preexec_fn=limit)

    def test_help_and_version(self):
        for words, text in ((['--help'], '--drain-timeout'), (['-h'], '--help'),
                            (['--version'], 'ddprund 0.')):
            for env in ({}, {'DDPRUND_MAX_KEYS': 'many'}):  # which is nobody's question
                job = self.daemon(*words, env=env)
                self.assertEqual((job.wait(), job.err), (0, ''))
                self.assertIn(text, job.out)
        with open('/dev/full', 'w') as full:
            self.assertEqual(self.daemon('--help', stdout=full).wait(), 1)

    def test_the_limit_on_files_is_raised(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        job = self.serve(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)))
        soft, now_hard = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
        self.assertEqual((soft, now_hard), (hard, hard))
        self.stop(job)

    def test_standard_output_that_cannot_be_written(self):
        with open('/dev/full', 'w') as full:
            job = self.daemon('--listen=127.0.0.1:0', stdout=full)
            job.read_until('standard output cannot be written')
        self.stop(job)


class Limits(DdprundCase):
    def greeted(self, job):
        """A connection of a native client that has been admitted."""
        client = connect(job.endpoints[0])
        client.sendall(b'DDPS\3\0\3\0' + (4).to_bytes(4, 'little') + bytes([1]) + bytes(11) + bytes(4))
        self.assertEqual(client.recv(4), b'DDPS')
        return client

    def test_connections(self):
        job = self.serve('--max-connections=2')
        with self.greeted(job), self.greeted(job):
            code, _, err = self.ctl(job.endpoints[0], '--timeout=1s', 'stats')
            self.assertEqual(code, LIMIT)
            self.assertIn('as many connections as it may have', err)
        job.read_until('warning: refused a connection')
        wait_until(lambda: self.ctl(job.endpoints[0], 'stats')[0] == 0, 'room for a connection')
        self.assertGreaterEqual(self.stats(job.endpoints[0])['refused'], 1)
        self.stop(job)
        self.assertRegex(job.err, r'info: stopped .* refused [1-9]\d* connections')

    def test_keys_and_values(self):
        job = self.serve('--max-keys=1', '--max-value=1K', '--max-bytes=4K', '--max-job-bytes=4K')
        endpoint = job.endpoints[0]
        self.done(endpoint, 'set', 'a', 'x' * 1024)
        for words, text in ((['set', 'b', ''], '1 of at most 1 keys'),
                            (['set', 'a', 'x' * 1025], 'at most 1024'),
                            (['wait', *(f'{"k" * 400}{n}' for n in range(20))], 'bytes')):
            code, _, err = self.ctl(endpoint, *words)
            self.assertEqual(code, LIMIT, err)
            self.assertIn(text, err)
        self.assertEqual(self.stats(endpoint)['limited'], 3)
        job.read_until('warning: refused a set: the store is full: it holds 1 of at most 1 keys')
        self.stop(job)

    def test_waits_of_a_connection(self):
        job = self.serve('--max-waits=1', '--listen=127.0.0.1:0', listeners=2)
        waiting = self.ctl_start(job.endpoints[0], 'wait', 'never')
        self.await_stat(job.endpoints[1], 'waits', 1)
        self.assertEqual(self.done(job.endpoints[0], 'add', 'a'), b'1\n')  # others have their own
        waiting.kill()
        self.await_stat(job.endpoints[1], 'waits', 0)
        self.stop(job)

    def test_a_greeting_that_does_not_come(self):
        job = self.serve('--greeting-timeout=300ms')
        with connect(job.endpoints[0]) as silent:
            self.assertEqual(silent.recv(1), b'')
        job.read_until('its greeting was not complete in time')
        self.stop(job)  # ddpctl might greet too late as well
        self.assertRegex(job.err, r'info: stopped .* dismissed 1\b')

    def test_the_oldest_half_open_gives_way(self):
        job = self.serve('--max-half-open=2')
        with connect(job.endpoints[0]) as first, connect(job.endpoints[0]):
            self.done(job.endpoints[0], 'add', 'a')
            self.assertEqual(first.recv(1), b'')
            self.assertEqual(self.stats(job.endpoints[0])['displaced'], 1)
        job.read_until('closed to make room for a newer one')
        self.stop(job)
        self.assertRegex(job.err, r'info: stopped .* displaced 1,')

    def test_it_hears_what_is_full(self):
        for limit, text in (('--max-half-open=1', b'too many connections are not authenticated yet'),
                            ('--max-connections=1', b'as many connections as it may have')):
            job = self.serve(limit)
            with connect(job.endpoints[0]) as first:
                first.sendall(b'DDPS\3\0\3\0')
                self.assertEqual(len(first.recv(8, socket.MSG_WAITALL)), 8)
                with connect(job.endpoints[0]):
                    self.assertIn(text, b''.join(iter(lambda: first.recv(4096), b'')))
            self.stop(job)

    def test_a_client_waits_until_there_is_room(self):
        job = self.serve('--max-connections=1')
        with self.greeted(job):
            client = self.ctl_start(job.endpoints[0], '--timeout=1h', 'add', 'a')
            job.read_until('warning: refused a connection')
        out, err = client.communicate()
        self.assertEqual((client.returncode, out, err), (0, b'1\n', b''))
        self.stop(job)

    def test_tcpstore_keys_have_their_prefix(self):
        job = self.serve('--tcpstore-prefix=torch/', '--tcpstore-max-value=4')

        def string(data):
            return len(data).to_bytes(8, 'little') + data

        hello = bytes([0]) + (0x3C85F7CE).to_bytes(4, 'little')
        with connect(job.endpoints[0]) as client:
            client.sendall(hello + bytes([1]) + string(b'key') + string(b'1234'))
            wait_until(lambda: self.ctl(job.endpoints[0], 'get', 'torch/key')[1] == b'1234', 'the key')
            client.sendall(bytes([1]) + string(b'key') + string(b'12345'))
            self.assertEqual(client.recv(1), b'')
        self.stop(job)


class Ending(DdprundCase):
    def waiting(self, job):
        client = self.ctl_start(job.endpoints[0], 'wait', '--timeout=1m', 'late')
        self.await_stat(job.endpoints[0], 'waits', 1)
        return client

    def test_those_who_wait_are_answered(self):
        job = self.serve('--drain-timeout=1h')
        client = self.waiting(job)
        with connect(job.endpoints[0]) as helper:
            job.signal(signal.SIGTERM)
            job.read_until('no new connections; 1 waiting requests')
            self.assertEqual(self.ctl(job.endpoints[0], 'stats', '--timeout=0')[0], UNREACHABLE)
            # As a native client: preamble, HELLO without authentication, set late.
            payload = (4).to_bytes(4, 'little') + b'late' + (0).to_bytes(4, 'little')
            frame = len(payload).to_bytes(4, 'little') + bytes([16]) + bytes(11)
            helper.sendall(b'DDPS\3\0\3\0' + (4).to_bytes(4, 'little') + bytes([1]) + bytes(11) +
                           bytes(4) + frame + payload)
            self.assertEqual(client.wait(), 0)
            self.assertEqual(job.wait(), 0)
        self.assertIn('info: stopped', job.err)

    def test_but_not_for_ever(self):
        job = self.serve('--drain-timeout=100ms')
        client = self.waiting(job)
        self.stop(job)
        self.assertEqual(client.wait(), UNREACHABLE)
        self.assertIn(b'shutting down', client.stderr.read())
        self.assertIn('requests still wait after 100 ms', job.err)

    def test_a_second_signal_does_not_wait(self):
        job = self.serve('--drain-timeout=1h')
        client = self.waiting(job)
        job.signal(signal.SIGINT)
        job.read_until('no new connections')
        self.stop(job)
        self.assertEqual(client.wait(), UNREACHABLE)

    def test_idle_clients_put_nothing_off(self):
        job = self.serve('--drain-timeout=1h')
        with connect(job.endpoints[0]), connect(job.endpoints[0]):
            self.await_stat(job.endpoints[0], 'connections', 3)
            self.stop(job)

    def test_signals_that_the_caller_blocked(self):
        job = self.serve(preexec_fn=lambda: signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP}))
        self.stop(job)

    def test_the_port_is_free_afterwards(self):
        job = self.serve(listen=f'127.0.0.1:{free_port()}')
        with connect(job.endpoints[0]):
            self.stop(job)
        self.stop(self.serve(listen=job.endpoints[0]))


class Log(DdprundCase):
    def test_it_is_opened_again(self):
        path = self.folder / 'log'
        job = self.serve(f'--log-file={path}')
        self.assertIn('info: listening on ' + job.endpoints[0], path.read_text())
        path.rename(self.folder / 'log.1')
        job.signal(signal.SIGHUP)
        wait_until(lambda: path.exists() and 'opened again' in path.read_text(), 'the new log')
        self.assertNotIn('opened again', (self.folder / 'log.1').read_text())
        self.stop(job)
        self.assertIn('info: stopped', path.read_text())
        self.assertEqual(job.err, '')

    def test_the_old_one_stays_if_it_cannot(self):
        path = self.folder / 'log'
        job = self.serve(f'--log-file={path}')
        path.rename(self.folder / 'log.1')
        path.mkdir()
        job.signal(signal.SIGHUP)
        wait_until(lambda: 'error: cannot write' in (self.folder / 'log.1').read_text(), 'the error')
        self.stop(job)
        self.assertIn('info: stopped', (self.folder / 'log.1').read_text())

    def test_hangup_without_a_file_is_harmless(self):
        job = self.serve()
        job.signal(signal.SIGHUP)
        job.read_until('opened again')
        self.done(job.endpoints[0], 'add', 'a')
        self.stop(job)

    def test_a_flood_is_not_written_down(self):
        path = self.folder / 'log'
        job = self.serve(f'--log-file={path}')
        for _ in range(1000):
            with connect(job.endpoints[0]) as client:
                client.sendall(b'GET / HTTP/1.0\r\n\r\n')
                client.recv(1)  # who hangs up before he is looked at is nobody's process
        self.await_stat(job.endpoints[0], 'dismissed', 1000)
        self.stop(job)
        text = path.read_text()
        self.assertLess(text.count('\n'), 100)
        more = re.findall(r'warning: closed (\d+) more connections for what their peers did', text)
        self.assertGreater(sum(map(int, more)), 900)  # a few of every ten seconds have a line each

    def test_a_reader_that_does_not_read(self):
        job = self.serve('--log-level=debug')  # its stderr is a pipe, not read meanwhile
        os.set_blocking(job.err_fd, False)
        for _ in range(1500):
            connect(job.endpoints[0]).close()
        self.await_stat(job.endpoints[0], 'connections', 1)
        self.stop(job)

    def test_a_fifo_that_nobody_reads(self):
        fifo, log = self.folder / 'fifo', self.folder / 'log'
        os.mkfifo(fifo)
        job = self.serve(f'--log-file={fifo}')  # not even the beginning waits for a reader
        job.read_until(f"no process reads the FIFO '{fifo}'")
        job.signal(signal.SIGHUP)
        self.done(job.endpoints[0], 'add', 'a')
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        job.signal(signal.SIGHUP)
        select.select([reader], [], [])
        self.assertRegex(os.read(reader, 65536).decode(), r'warning: \d+ lines of the log were left out')
        self.stop(job)

        job = self.serve(f'--log-file={log}')
        log.unlink()
        os.mkfifo(log)
        job.signal(signal.SIGHUP)
        self.done(job.endpoints[0], 'add', 'a')
        self.stop(job)

    def test_levels(self):
        job = self.serve('--log-level=error')
        with connect(job.endpoints[0]) as client:
            client.sendall(b'GET')
        self.await_stat(job.endpoints[0], 'dismissed', 1)
        self.stop(job)
        self.assertEqual(job.err, '')


class ServiceManagers(DdprundCase):
    def activated(self, socks, *words, pid='$$', count=None, listeners=None):
        """ddprund with @socks as descriptors 3, 4, ... Started by a shell, which knows the pid."""
        redirects = ' '.join(f'{3 + i}<&{sock.fileno()}' for i, sock in enumerate(socks))
        count = len(socks) if count is None else count
        script = f'export LISTEN_PID={pid} LISTEN_FDS={count}; exec "$0" "$@" {redirects}'
        options = {'program': '/bin/bash', 'pass_fds': [sock.fileno() for sock in socks]}
        words = ['-c', script, DDPRUND, *words]
        if listeners is None:
            job = self.daemon(*words, **options)
            job.wait()
            return job
        return self.serve(*words, listen=None, listeners=listeners, **options)

    def listening_socket(self, host='127.0.0.1'):
        sock = socket.create_server((host, 0))
        self.addCleanup(sock.close)
        # Out of the way of descriptors 3 and on.
        high = socket.socket(fileno=os.dup2(sock.fileno(), 50 + sock.fileno(), inheritable=False))
        self.addCleanup(high.close)
        return high

    def test_sockets_are_adopted(self):
        socks = [self.listening_socket(), self.listening_socket()]
        job = self.activated(socks, listeners=2)
        self.assertEqual(job.endpoints, ['%s:%d' % sock.getsockname() for sock in socks])
        self.done(job.endpoints[0], 'set', 'a', 'b')
        self.assertEqual(self.done(job.endpoints[1], 'get', 'a'), b'b')
        self.stop(job)

    def test_and_others_besides(self):
        job = self.activated([self.listening_socket()], '--listen=127.0.0.1:0', listeners=2)
        self.stop(job)

    def test_sockets_of_another_process(self):
        job = self.activated([self.listening_socket()], '--listen=127.0.0.1:0', pid=1, listeners=1)
        self.stop(job)

    def test_what_cannot_be_adopted(self):
        self.env['HOME'] = ''  # so there is no token
        with socket.socket() as mute, socket.socket(socket.AF_UNIX) as local:
            for socks, options, texts in (
                    ([mute], {}, ['LISTEN_FDS', 'descriptor 3']),
                    ([local], {}, ['LISTEN_FDS', 'descriptor 3']),
                    ([self.listening_socket()], {'count': 40}, ['LISTEN_FDS', 'descriptor']),
                    ([self.listening_socket('0.0.0.0')], {}, ['LISTEN_FDS', '--token-file'])):
                with self.subTest(texts=texts):
                    self.assert_sentence(self.activated(socks, **options), CONFIG, *texts,
                                         program='ddprund')
            for options in ({'count': 'x'}, {'count': 65}, {'pid': 'x'}, {'count': -1}):
                with self.subTest(**options):
                    job = self.activated([mute], **options)
                    self.assert_sentence(job, CONFIG, 'environment variable LISTEN_', program='ddprund')

    def received(self, sock):
        return sock.recv(4096).decode()

    def test_notifications(self):
        names = [str(self.folder / 'notify'), f'@ddprund-test-{os.getpid()}']
        for name in names:
            with self.subTest(name), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.bind(name.replace('@', '\0'))
                job = self.serve(env={'NOTIFY_SOCKET': name})
                self.assertEqual(self.received(manager), 'READY=1')
                job.signal(signal.SIGHUP)
                self.assertRegex(self.received(manager), r'\ARELOADING=1\nMONOTONIC_USEC=\d+\Z')
                self.assertEqual(self.received(manager), 'READY=1')
                job.signal(signal.SIGTERM)
                self.assertEqual(self.received(manager), 'STOPPING=1')
                self.assertEqual(job.wait(), 0)

    def test_a_manager_that_is_gone(self):
        job = self.serve(env={'NOTIFY_SOCKET': '/no/such/socket'})
        job.read_until("warning: NOTIFY_SOCKET: cannot write to '/no/such/socket'")
        self.stop(job)


if __name__ == '__main__':
    unittest.main()
