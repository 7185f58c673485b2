#!/usr/bin/env python3
"""test_ddpctl_job.py - ddpctl status, stop, drain, admit and scale on jobs of several nodes, which are
agents on this machine that take it for machines of other names."""

import ctypes
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import wait_until
from ddprund_run import DDPCTL, DENIED, TIMEOUT, UNREACHABLE, USAGE, DdprundCase, kept
from nodes import free_port

FAILED = 1
STOPPED = 143
CLONE_NEWUTS, CLONE_NEWUSER = 0x04000000, 0x10000000


def become(name):
    """Have this process, and those it starts, live on a machine called @name."""
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWUTS) != 0 and libc.unshare(CLONE_NEWUTS | CLONE_NEWUSER) != 0:
        os._exit(99)
    socket.sethostname(name)


def can_become():
    pid = os.fork()
    if pid == 0:
        try:
            become('other')
            os._exit(0 if socket.gethostname() == 'other' else 1)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


needs_names = unittest.skipUnless(can_become(), 'a process may not have a host name of its own here: that takes root '
                                  'or user namespaces')

# Ends when it is told to, or fails when there is a file "fail-RANK".
WORKER = 'until rm "fail-$RANK" 2>/dev/null; do sleep 0.02; done; echo it hurts >&2; exit 7'

# Of a field: its types, or the same of what is in it.
NUMBER, TEXT, MAYBE_NUMBER, MAYBE_TEXT = (int,), (str,), (int, type(None)), (str, type(None))
WORKER_SCHEMA = {'local_rank': NUMBER, 'rank': NUMBER, 'pid': NUMBER, 'state': TEXT,
                 'exit_code': MAYBE_NUMBER, 'signal': MAYBE_TEXT}
NODE_SCHEMA = {'id': NUMBER, 'name': MAYBE_TEXT, 'address': MAYBE_TEXT, 'nproc': MAYBE_NUMBER,
               'phase': MAYBE_TEXT, 'phase_generation': MAYBE_NUMBER, 'leaving': (bool,), 'checking': (bool,),
               'failure': (dict, type(None)), 'order': MAYBE_TEXT, 'order_text': MAYBE_TEXT,
               'node_rank': MAYBE_NUMBER, 'first_rank': MAYBE_NUMBER, 'spare': (bool,),
               'drained': (bool,), 'left_out': MAYBE_TEXT, 'workers': [WORKER_SCHEMA]}
JOB_SCHEMA = {'job': TEXT, 'state': TEXT, 'generation': NUMBER, 'members': NUMBER,
              'seated': NUMBER, 'min_nodes': NUMBER, 'max_nodes': NUMBER, 'world_size': NUMBER,
              'restarts': NUMBER, 'max_restarts': NUMBER, 'reason': TEXT,
              'exit_code': MAYBE_NUMBER,
              'recovery': {'idle_ms': MAYBE_NUMBER, 'seated_ms': MAYBE_NUMBER,
                           'running_ms': MAYBE_NUMBER},
              'wanted': {'stop': (bool,), 'size': MAYBE_TEXT, 'drain': [TEXT]},
              'left_out': NUMBER, 'quarantine': NUMBER,
              'blamed': [{'node': TEXT, 'failures': NUMBER, 'left_out': (bool,), 'last': TEXT}],
              'nodes': [NODE_SCHEMA]}
STATUS_SCHEMA = {'schema': NUMBER, 'jobs': [JOB_SCHEMA]}


def fits(value, schema, where='$'):
    """What is wrong with @value; '' if nothing is."""
    if isinstance(schema, dict):
        if not isinstance(value, dict) or value.keys() != schema.keys():
            return f'{where}: {value} has not the fields {sorted(schema)}'
        return ''.join(fits(value[name], schema[name], f'{where}.{name}') for name in schema)
    if isinstance(schema, list):
        return ''.join(fits(item, schema[0], f'{where}[{i}]') for i, item in enumerate(value))
    right = isinstance(value, schema) and (bool in schema or not isinstance(value, bool))
    return '' if right else f'{where}: {value!r}; '


class JobCase(DdprundCase):
    def setUp(self):
        super().setUp()
        self.service = self.serve()
        self.addCleanup(self.stop, self.service)
        self.store = self.service.endpoints[0]

    def node(self, name, *words, nnodes='1:3', nproc=2, job='train', worker=WORKER):
        node = self.start(f'--nnodes={nnodes}', f'--nproc-per-node={nproc}', f'--rdzv-id={job}',
                          f'--rdzv-endpoint={self.store}', '--settle=0.2', '--shutdown-timeout=60', '--lease=10m',
                          *words, '--no-python', 'sh', '-c', worker,
                          preexec_fn=lambda: become(name))
        self.addCleanup(self.kill, node)
        return node

    @staticmethod
    def kill(node):
        if node.process.poll() is None:
            node.signal(signal.SIGKILL)
        node.wait_gone()

    def json(self, *words, verb='status', **options):
        return json.loads(self.done(self.store, '--json', *words, verb=verb, **options))

    def job(self, name='train'):
        return self.json(name)['jobs'][0]

    def version(self, key):
        return json.loads(self.done(self.store, 'get', '--json', key))['version']

    def text(self, *words, verb='status'):
        return self.done(self.store, *words, verb=verb).decode()

    def await_job(self, what, condition, name='train'):
        """The job, when it is there and so."""
        def there():
            jobs = [job for job in self.json()['jobs'] if job['job'] == name]
            return jobs[0] if jobs and condition(jobs[0]) else None
        return wait_until(there, what)

    def await_runs(self, nodes, generation=None, members=None):
        return self.await_job(
            f'{nodes} nodes to run', lambda job: job['state'] == 'running' and
            job['seated'] == nodes and (generation is None or job['generation'] == generation) and
            (members is None or job['members'] == members) and
            all(node['phase'] == 'running' and len(node['workers']) == node['nproc'] and
                {worker['state'] for worker in node['workers']} == {'running'}
                for node in job['nodes'] if node['order'] == 'run'))

    def fails(self, code, text, verb, *words, store=None):
        got, out, err = self.ctl(store or self.store, *words, verb=verb)
        self.assertEqual((got, out), (code, b''), err)
        self.assertRegex(err, r'\Addpctl: [^\n]+\n\Z')
        self.assertIn(text, err)


@needs_names
class Status(JobCase):
    def test_no_jobs(self):
        self.assertEqual(self.text(), 'no jobs\n')
        self.assertEqual(self.json(), {'schema': 1, 'jobs': []})
        self.fails(FAILED, "no job 'train'", 'status', 'train')
        self.fails(FAILED, "no job '../x'", 'status', '../x')

    def test_a_store_on_three_machines(self):
        for text in ('', '{}', kept(3, 'member', 'member', 'member'), kept(0, 'member', 'member', '\x1b[2J')):
            self.done(self.store, 'set', 'store/keepers', text)
            self.assertEqual(self.text(), 'no jobs\n')
        self.done(self.store, 'set', 'store/keepers', kept(1, 'missing', 'member', 'joining'))
        self.assertEqual(self.text(), 'no jobs\n\nstore led by n1:29400\n'
                                      '  members     n1:29400 (n0:29400 is missing, n2:29400 is joining)\n'
                                      '  survives    no other loss until n0 and n2 are back\n')
        store = self.json()['store']
        self.assertEqual((store['leader'], [machine['state'] for machine in store['machines']], store['survives']),
                         ('n1:29400', ['missing', 'member', 'joining'], 'no other loss until n0 and n2 are back'))

    def test_what_waits(self):
        self.node('a', nnodes='2:3')
        self.await_job('a node', lambda job: job['nodes'])
        self.assertRegex(self.text(), r'\Ajob train is waiting for 1 more node: 1 of at least 2 is')
        self.assertEqual((self.job()['state'], self.job()['generation']), ('forming', 0))

    def test_what_runs(self):
        self.node('a', '--node-rank=0', '--max-restarts=3')
        self.node('b', '--node-rank=1', '--max-restarts=3')
        job = self.await_runs(2)
        self.assertEqual(fits(self.json(), STATUS_SCHEMA), '')
        self.assertEqual((job['world_size'], job['restarts'], job['max_restarts'],
                          job['min_nodes'], job['max_nodes']), (4, 0, 3, 1, 3))
        self.assertEqual([node['name'] for node in job['nodes']], ['a', 'b'])
        self.assertEqual([node['first_rank'] for node in job['nodes']], [0, 2])
        ranks = {}
        for node in job['nodes']:
            self.assertEqual((node['address'], node['order'], node['spare']),
                             ('127.0.0.1', 'run', False))
            for worker in node['workers']:
                env = Path(f'/proc/{worker["pid"]}/environ').read_bytes().split(b'\0')
                self.assertIn(b'RANK=%d' % worker['rank'], env)
                self.assertIn(b'LOCAL_RANK=%d' % worker['local_rank'], env)
                ranks[worker['rank']] = worker['pid']
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        generation = job['generation']
        lines = self.text('train').splitlines()
        self.assertEqual(lines[0], f'job train is running generation {generation}')
        self.assertRegex(lines[1], r'\A  nodes +2 \(1 to 3\)\Z')
        self.assertRegex(lines[-3], r'\A  NODE +NAME +ADDRESS +PHASE +ORDER +RANKS +WORKERS\Z')
        self.assertRegex(lines[-1], rf'\A  1 +b +127.0.0.1 +running {generation} +run +2-3 +'
                                    rf'{ranks[2]} running, {ranks[3]} running\Z')

    def test_a_job_of_one_node(self):
        """It has a store of its own, in which it is shown as jobs of many nodes are in theirs."""
        job = self.start('--nproc-per-node=2', '--max-restarts=1', '--rdzv-id=train', 'sh', '-c',
                         f'echo store=$DDPRUN_STORE; {WORKER}')
        job.read_until('store=')
        job.read_until('\n')
        self.store = job.out.split('store=')[1].split()[0]
        before = self.await_runs(1, 1)
        self.assertEqual(fits(self.json(), STATUS_SCHEMA), '')
        self.assertEqual((before['world_size'], before['max_restarts'], before['seated']), (2, 1, 1))
        (self.folder / 'fail-1').touch()
        after = self.await_runs(1, 2)
        self.assertEqual(after['restarts'], 1)
        self.assertIn('rank 1', after['reason'])
        self.assertEqual(after['nodes'][0]['failure']['exit_code'], 7)
        wait_until(lambda: {worker['pid'] for worker in self.job()['nodes'][0]['workers']} <= set(job.running()),
                   'the processes of the second generation')
        self.assertIn('is over, exit code 143: stopped by request', self.text('train', verb='stop'))
        self.assertEqual(job.wait(), STOPPED)

    def start_alone(self):
        """A job of one node, which has a store of its own."""
        job = self.start('--nproc-per-node=1', '--rdzv-id=train', 'sh', '-c', 'echo store=$DDPRUN_STORE; sleep 1000')
        job.read_until('store=')
        job.read_until('\n')
        self.store = job.out.split('store=')[1].split()[0]
        self.await_runs(1, 1)
        return job

    def test_the_only_node_is_drained_and_not_scaled(self):
        job = self.start_alone()
        name = socket.gethostname()
        before = self.json()
        for size in ('1:1', '2:3'):
            self.fails(FAILED, 'cannot be scaled', 'scale', 'train', size)
        self.assertEqual(self.json()['jobs'][0]['wanted'], before['jobs'][0]['wanted'])
        self.fails(FAILED, 'and end', 'drain', 'train', name)
        self.assertIn(f'node {name} is drained', self.text('--force', 'train', name, verb='drain'))
        self.assertEqual(job.wait(), 0)  # as of a node that others go on without

    def test_the_store_ends_with_the_job(self):
        """Before the command can ask it anything more: it has told the end of the job by then."""
        for verb, words, told in (('drain', ('--force', 'train', socket.gethostname()), 'is drained; job train is over'),
                                  ('stop', ('train',), 'job train is over')):
            with self.subTest(verb):
                job = self.start_alone()
                self.store = self.hear_only_until(b'want/' + verb.encode())
                self.assertIn(told, self.text(*words, verb=verb))
                job.wait()

    def hear_only_until(self, text):
        """An address that leads to the store, which hears of its client nothing that comes after the packet
        with @text. The address is gone when the store is."""
        listener = socket.create_server(('127.0.0.1', 0))
        host, port = self.store.rsplit(':', 1)

        def pass_on():
            client = listener.accept()[0]
            server = socket.create_connection((host, int(port)))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else its end may overtake the last packet
            hears = [client, server]
            while server in hears:
                for end in select.select(hears, [], [])[0]:
                    data = end.recv(65536)
                    (server if end is client else client).sendall(data)
                    if not data or (end is client and text in data):
                        hears.remove(end)
            for end in (listener, client, server):
                end.close()
        thread = threading.Thread(target=pass_on)
        thread.start()
        self.addCleanup(thread.join)
        return '127.0.0.1:%d' % listener.getsockname()[1]

    def test_top(self):
        """On a terminal it is drawn again when the job changes, and the terminal is as before at the end."""
        self.node('a', '--max-restarts=2', nnodes='2:2')
        self.await_job('a node', lambda job: job['nodes'])
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 60, 0, 0))
        before = termios.tcgetattr(terminal)
        top = subprocess.Popen([DDPCTL, 'top', 'train', f'--endpoint={self.store}'], stdin=terminal, stdout=terminal,
                               stderr=subprocess.PIPE, env=self.env)
        screen = bytearray()

        def shows(text):
            def there():
                if select.select([main], [], [], 0)[0]:
                    screen.extend(os.read(main, 65536))
                return text in screen
            wait_until(there, f'{text} on the screen')
        shows(b'job train is waiting for 1 more node')
        self.assertIn(b'\x1b[?1049h', screen)
        self.node('b', '--max-restarts=2', nnodes='2:2')
        shows(b'job train is running generation 1')
        shows(b' 2 running')
        self.assertTrue(all(len(line) <= 60 for line in re.findall(rb'\r\n([^\r\x1b]*)', bytes(screen))))
        os.write(main, b'q')
        shows(b'\x1b[?1049l')
        self.assertEqual((top.wait(), top.stderr.read()), (0, b''))
        self.assertEqual(termios.tcgetattr(terminal), before)
        os.close(main)
        os.close(terminal)
        self.fails(USAGE, 'top needs a terminal', 'top', 'train')

    def test_the_store_of_this_machine(self):
        """Verbs that only look find it; those that change something do not."""
        env = {**self.env, 'DDPRUN_STORE': ''}
        first = self.start('--nproc-per-node=1', '--rdzv-id=one', 'sh', '-c', 'echo up; exec sleep 1000')
        first.read_until('up')
        run = lambda *words: subprocess.run([DDPCTL, *words], env=env, capture_output=True, text=True, check=False)
        done = run('status', '--json')
        if done.returncode == 0:
            self.assertEqual([job['job'] for job in json.loads(done.stdout)['jobs']], ['one'])
        else:  # another test has a job now
            self.assertEqual(done.returncode, USAGE)
            self.assertIn('several stores', done.stderr)
        self.assertIn('no store address', run('stop').stderr)
        first.signal(signal.SIGTERM)
        first.wait()

    def test_a_worker_that_is_stopped(self):
        self.node('a', nproc=1)
        job = self.await_runs(1)
        pid = job['nodes'][0]['workers'][0]['pid']
        state_is = lambda state: lambda job: job['nodes'][0]['workers'][0]['state'] == state
        for sig, state in ((signal.SIGSTOP, 'stopped'), (signal.SIGCONT, 'running')):
            os.kill(pid, sig)
            self.await_job(f'a worker that is {state}', state_is(state))
            self.assertIn(f'{pid} {state}', self.text())

    def test_several_jobs(self):
        self.node('a', job='one')
        self.node('b', job='two')
        wait_until(lambda: [job['job'] for job in self.json()['jobs']] == ['one', 'two'], 'both')
        heads = [line.split()[1] for line in self.text().splitlines() if line.startswith('job ')]
        self.assertEqual(heads, ['one', 'two'])
        self.assertEqual([job['job'] for job in self.json('two')['jobs']], ['two'])
        self.fails(USAGE, 'more than one job', 'stop')

    def test_after_a_failure(self):
        self.node('a', '--max-restarts=2', nnodes='2:2')
        self.node('b', '--max-restarts=2', nnodes='2:2')
        before = self.await_runs(2)['generation']
        (self.folder / 'fail-2').touch()
        job = self.await_runs(2, before + 1)
        job = self.await_job('the recovery', lambda job: job['recovery']['running_ms'])
        self.assertEqual((job['restarts'], job['max_restarts']), (1, 2))
        self.assertIn('rank 2', job['reason'])
        phases = [job['recovery'][name] for name in ('idle_ms', 'seated_ms', 'running_ms')]
        self.assertEqual(phases, sorted(phases))
        self.assertEqual([node['failure']['exit_code'] for node in job['nodes']
                          if node['failure'] is not None], [7])
        text = self.text()
        self.assertRegex(text, r'\n  last stop +.*rank 2')
        self.assertRegex(text, r'\n  recovery +idle after \d+ ms, seated after \d+ ms, running ')

    def test_workers_that_have_ended(self):
        self.node('a', nproc=3, worker='case $RANK in 0) exit 0;; 1) kill -9 $$;; *) exec sleep 99;; esac')
        # Rank 1 ends the job, and all are told of until the node has gone.
        self.node('b', job='other', nproc=2,
                  worker='test $RANK = 0 && exit 0; exec sleep 99')
        job = self.await_job('a worker to end', lambda job: [
            (worker['state'], worker['exit_code']) for node in job['nodes']
            for worker in node['workers']] == [('exited', 0), ('running', None)], 'other')
        self.assertRegex(self.text('other'), r' \d+ exited 0, \d+ running\n\Z')
        self.assertEqual(job['state'], 'running')

    def test_a_spare(self):
        for name in 'abc':
            self.node(name, nnodes='1:2')
        self.await_runs(2, members=3)
        job = self.await_job('a spare', lambda job: any(node['spare'] for node in job['nodes']))
        spares = [node for node in job['nodes'] if node['spare']]
        self.assertEqual([(node['node_rank'], node['first_rank'], node['order'], node['workers'])
                          for node in spares], [(None, None, 'wait', [])])
        self.assertIn('spare', spares[0]['order_text'])
        text = self.text()
        self.assertIn('2 (1 to 2), 1 spare\n', text)
        self.assertRegex(text, rf'\n  - +{spares[0]["name"]} +127.0.0.1 +idle.* +spare +- +-\n')

    def test_hostile_keys(self):
        """What people or strangers have written there neither drives a terminal nor stops us."""
        self.node('a')
        self.await_runs(1)
        evil = '\x1b[31m\u009b2J\u20ac\\'
        member = self.done(self.store, 'get', next(
            key for key in self.done(self.store, 'list', 'round/train/member/').decode().split()))
        named = member.replace(b'name a\n', f'name b\u009b2J\u20ac\\\n'.encode(), 1)
        for key, value in ((f'round/{evil}/state', 'x'), ('round/bad/state', f'{evil}\n'),
                           (f'round/train/want/drain/{evil}', ''),
                           ('round/train/want/size', f'1:2{evil}'),
                           ('round/train/want/' + evil, evil),
                           ('round/train/node/777', f'0 0 1 running\n0 0 2 killed {evil}\n'),
                           ('round/train/member/777', named.decode()),
                           ('round/train/member/888', evil), ('round/train/member/x', evil),
                           ('round/train/seat/888', evil), ('round/train/member/0', ''),
                           ('round/train/' + evil, evil)):
            self.done(self.store, 'set', '--', key, value)
        text = self.text()
        for bad in ('\x1b', '\u009b'):
            self.assertNotIn(bad, text)
        self.assertIn('job bad exists, but', text)
        self.assertRegex(text, r'\n  wanted .*drain \\x1b\[31m\\xc2\\x9b2J\u20ac\\\\')
        self.assertIn(' b\\xc2\\x9b2J\u20ac\\\\ ', text)
        self.assertIn('(cannot be read)', text)
        self.assertIn(' 1 running\n', text)
        status = self.json()
        self.assertEqual([job['job'] for job in status['jobs']], ['bad', 'train'])
        self.assertEqual(fits(status['jobs'][1], JOB_SCHEMA), '')
        self.assertEqual(status['jobs'][0]['state'], 'unreadable')
        self.assertIn(evil, status['jobs'][1]['wanted']['drain'])
        code, out, err = self.ctl(self.store, 'train', evil, verb='drain')
        self.assertEqual((code, out), (FAILED, b''))
        self.assertNotIn('\x1b', err)

    def test_more_keys_than_are_read_at_once(self):
        self.node('a')
        self.await_runs(1)
        keys = self.done(self.store, 'list', 'round/train/member/').decode().split()
        member = self.done(self.store, 'get', keys[0]).decode()
        names = [f'n{number}' for number in range(150)]
        for number, name in enumerate(names, 1000):
            self.done(self.store, 'set', f'round/train/member/{number}',
                      member.replace('name a\n', f'name {name}\n', 1))
        self.assertEqual([node['name'] for node in self.job()['nodes']], ['a', *names])
        self.assertIn(' n149 ', self.text())

    def test_the_store_of_a_node(self):
        self.store = f'127.0.0.1:{free_port()}'
        job = self.node('a')
        job.read_until('generation 1')
        self.await_runs(1)
        self.assertIn('is over', self.text(verb='stop'))
        self.assertEqual(job.wait(), STOPPED)  # though we have been its client

    def test_an_observer_looks(self):
        token, key = self.home / 'token', self.home / 'observer.key'
        self.token('make', f'--token-file={token}')
        self.env['DDPRUN_TOKEN_FILE'] = str(token)
        service = self.serve(f'--token-file={token}')
        self.addCleanup(self.stop, service)
        self.store = service.endpoints[0]
        key.write_text(self.token('derive', '--role=observer', f'--endpoint={self.store}') + '\n')
        key.chmod(0o600)
        self.node('a')
        self.await_runs(1)
        self.env['DDPRUN_TOKEN_FILE'] = str(key)
        self.assertIn('job train is running', self.text())
        self.fails(DENIED, "'observer'", 'stop')
        self.env['DDPRUN_TOKEN_FILE'] = str(token)
        self.assertIn('is over', self.text(verb='stop'))

    def test_bad_words(self):
        for verb, *words in (('status', 'a', 'b'), ('drain',), ('scale',), ('drain', 'a', 'b', 'c'),
                             ('stop', 'a', 'b'), ('status', '--undo'), ('stop', '--force'),
                             ('status', '--no-wait'), ('scale', '1'), ('scale', '2:1'),
                             ('scale', '0:1'), ('scale', 'j', '1:x'), ('status', '--timeout=soon')):
            with self.subTest(verb=verb, words=words):
                got, out, err = self.ctl(self.store, *words, verb=verb)
                self.assertEqual((got, out), (USAGE, b''), err)
                self.assertRegex(err, r'\Addpctl: [^\n]+\n\Z')
        self.assertEqual(self.ctl(None, verb='stop')[0], USAGE)
        for verb, has, lacks in (('status', '--json', '--wait'), ('stop', '--wait', '--undo'), ('drain', '--undo', '--last'),
                                 ('scale', '--wait', '--force'), ('top', '--timeout', '--json'), ('dump', '--last', '--wait')):
            text = self.text('--help', verb=verb)
            self.assertIn(f'usage: ddpctl {verb} ', text)
            self.assertIn(f' {has}', text)
            self.assertNotIn(f' {lacks}', text.replace(lacks + '-timeout', ''))

    def test_a_store_that_is_not_there(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            gone = '127.0.0.1:%d' % taken.getsockname()[1]
            for verb, *words in (('status',), ('stop', 'x'), ('scale', '1:1')):
                self.fails(UNREACHABLE, gone, verb, *words, '--timeout=0.1', store=gone)


@needs_names
class Changes(JobCase):
    def test_stop(self):
        jobs = [self.node('a'), self.node('b')]
        generation = self.await_runs(2)['generation']
        self.assertEqual(self.text('train', verb='stop'),
                         f'job train is over, exit code {STOPPED}: stopped by request\n')
        for job in jobs:
            self.assertEqual(job.wait(), STOPPED, job.err)
        wait_until(lambda: self.json()['jobs'] == [], 'the job to go')
        self.assertEqual(self.done(self.store, 'list', 'round/'), b'')
        self.fails(FAILED, "no job 'train'", 'stop', 'train')
        self.fails(FAILED, 'no job', 'stop')
        # Nothing of that is left to end the next one.
        self.node('a')
        self.assertGreater(self.await_runs(1)['generation'], generation)

    def test_stop_as_json(self):
        self.node('a')
        self.await_runs(1)
        told = self.json(verb='stop')
        self.assertEqual((told['schema'], told['done']), (1, True))
        self.assertEqual((told['jobs'][0]['state'], told['jobs'][0]['exit_code']),
                         ('closed', STOPPED))

    def test_stop_what_waits_for_nodes(self):
        job = self.node('a', nnodes='2:3')
        self.await_job('a node', lambda job: job['nodes'])
        self.assertIn('stopped by request', self.text(verb='stop'))
        self.assertEqual(job.wait(), STOPPED)

    def test_a_stop_of_no_job(self):
        """Written by hand, before the job is there."""
        self.done(self.store, 'set', 'round/train/want/stop', '')
        self.node('a')
        self.await_runs(1)
        self.assertEqual(self.job()['wanted']['stop'], False)

    def test_workers_that_take_their_time(self):
        self.node('a', '--shutdown-timeout=1h',
                  worker='trap "" TERM; until test -e go; do sleep 0.02; done')
        self.await_runs(1)
        self.fails(TIMEOUT, 'job train is ending with generation', 'stop', '--timeout=8')
        out = self.text('--no-wait', verb='stop')
        self.assertRegex(out, r'\Ajob train is ending with generation \d+: stopped by request\n\Z')
        workers = self.job()['nodes'][0]['workers']
        self.assertEqual({worker['state'] for worker in workers}, {'stopping'})
        before = self.version('round/train/want/stop')
        stop = self.ctl_start(self.store, '--no-wait', '--wait', verb='stop')
        wait_until(lambda: self.version('round/train/want/stop') > before, 'it to be told again')
        (self.folder / 'go').touch()
        out, err = stop.communicate()
        self.assertEqual((stop.returncode, err), (0, b''))
        self.assertIn(b'is over', out)

    def test_drain(self):
        jobs = {name: self.node(name, nnodes='1:2') for name in 'abc'}
        job = self.await_runs(2, members=3)
        name = job['nodes'][0]['name']
        self.fails(FAILED, "no node 'x'", 'drain', 'train', 'x')
        self.fails(FAILED, "no request to drain node 'x'", 'drain', '--undo', 'train', 'x')
        self.assertRegex(self.text('train', name, verb='drain'), rf'\Anode {name} is drained; job ')
        self.assertEqual(jobs[name].wait(), 0, jobs[name].err)
        job = self.await_runs(2, job['generation'] + 1, members=2)
        self.assertNotIn(name, [node['name'] for node in job['nodes']])
        self.assertEqual(job['wanted']['drain'], [name])
        self.assertRegex(self.text(), rf'\n  wanted +drain {name}\n')
        again = self.node(name, nnodes='1:2')
        self.assertEqual(again.wait(), 0, again.err)
        self.assertIn('drained', again.err)
        self.assertIn('may join again', self.text(name, '--undo', verb='drain'))
        self.node(name, nnodes='1:2')
        self.await_runs(2, members=3)

    def test_drain_of_one_too_many(self):
        job = {name: self.node(name, nnodes='2:2') for name in 'ab'}
        self.await_runs(2)
        self.fails(FAILED, '1 of at least 2 nodes', 'drain', 'a')
        self.assertEqual(self.job()['wanted']['drain'], [])
        self.assertIn('node a is drained', self.text('a', '--force', verb='drain'))
        for name in 'ab':
            job[name].wait()
        wait_until(lambda: self.json()['jobs'] == [], 'the job to go')

    def test_scale(self):
        for name in 'abc':
            self.node(name, nnodes='1:2')
        generation = self.await_runs(2, members=3)['generation']
        self.assertEqual(self.text('train', '1:1', verb='scale'),
                         f'job train is running generation {generation + 1}\n')
        job = self.job()
        self.assertEqual((job['seated'], job['min_nodes'], job['max_nodes']), (1, 1, 1))
        self.assertEqual(sum(node['spare'] for node in job['nodes']), 2)
        told = self.json('3:3', verb='scale')
        self.assertEqual((told['done'], told['jobs'][0]['seated']), (True, 3))
        self.assertEqual(told['jobs'][0]['wanted']['size'], '3:3')
        self.fails(TIMEOUT, 'waiting for 1 more node: 3 of at least 4', 'scale', '4:4',
                   '--timeout=8')
        self.node('d', nnodes='1:2')
        self.await_runs(4)

    def test_a_job_that_ends_meanwhile(self):
        self.node('a', worker='until test -e go; do sleep 0.02; done')
        self.await_runs(1)
        scale = self.ctl_start(self.store, '3:3', verb='scale')
        self.await_job('the wish', lambda job: job['wanted']['size'] == '3:3')
        self.done(self.store, verb='stop')
        _, err = scale.communicate()
        self.assertEqual(scale.returncode, FAILED)
        self.assertIn(b'stopped by request', err)


@needs_names
class LeftOut(JobCase):
    """Node b is not fit while there is a file "sick"; its workers fail where one of theirs is told to."""

    CHECK = '--node-check=test $DDPRUN_NODE_NAME != b || { test ! -e sick || { echo no GPU; exit 3; }; }'

    def setUp(self):
        super().setUp()
        self.nodes = {}

    def begin(self, names, *words, nnodes):
        for name in names:
            self.nodes[name] = self.node(name, *words, f'--node-rank={"abcd".index(name)}', nnodes=nnodes)

    def serve_again(self, listen):
        """A store that remembers what was in the one before."""
        service = self.serve(f'--state={self.folder}/state', listen=listen)
        self.addCleanup(lambda: service.process.poll() is None and self.stop(service))
        self.store = service.endpoints[0]
        return service

    def await_left_out(self, name, seated):
        self.await_job(f'{name} to be left out', lambda job: name in [
            node['name'] for node in job['nodes'] if node['left_out']])
        job = self.await_runs(seated)
        self.assertEqual(self.job()['left_out'], 1)
        self.assertEqual(fits(self.json(), STATUS_SCHEMA), '')
        return job

    def test_a_sick_node_and_its_return(self):
        (self.folder / 'sick').touch()
        self.begin('abc', self.CHECK, '--event-log=events', nnodes='2:3')
        job = self.await_left_out('b', 2)
        why = 'node check failed (exit code 3): no GPU'
        self.assertRegex(self.text(), rf'\n  left out    b: {re.escape(why)}\n')
        self.assertRegex(self.text(), r'\n +- +b +127.0.0.1 +idle +left out +- +-\n')
        self.nodes['b'].read_until(f"this node is left out: {why}; 'ddpctl admit train b' lets it come back")
        self.assertEqual(self.nodes['b'].err.count('is left out'), 1)
        events = [json.loads(line) for line in (self.folder / 'events').read_text().splitlines()]
        self.assertEqual([(event['node'], event['reason']) for event in events if event['event'] == 'node_left_out'],
                         [('b', f'left out: {why}')])
        self.fails(FAILED, "does not leave out a node 'a'", 'admit', 'train', 'a')
        self.fails(FAILED, f"node 'b' is still left out: {why}", 'admit', 'train', 'b')
        self.nodes['b'].read_until('its last lines', count=2)
        (self.folder / 'sick').unlink()
        self.assertRegex(self.text('b', verb='admit'), r'\Anode b may come back; job train is ')
        job = self.await_runs(3, job['generation'] + 1)
        self.assertEqual((job['restarts'], job['left_out'], job['reason']), (0, 0, 'node b joins'))

    def test_a_node_that_becomes_sick_explains_the_failure(self):
        """In a job without restarts: the spare takes its place."""
        self.begin('ab', self.CHECK, nnodes='2:2')
        self.await_runs(2)
        self.begin('c', self.CHECK, nnodes='2:2')
        self.await_runs(2, members=3)
        (self.folder / 'sick').touch()
        (self.folder / 'fail-2').touch()
        job = self.await_left_out('b', 2)
        self.assertEqual((job['generation'], job['restarts']), (2, 0))
        self.assertEqual(job['reason'], 'node b is left out: node check failed (exit code 3): no GPU')

    def test_quarantine_outlives_the_store_and_the_node(self):
        service = self.serve_again(f'127.0.0.1:{free_port()}')
        self.begin('ab', '--quarantine=2', '--max-restarts=1', nnodes='2:2')
        self.await_runs(2)
        self.begin('c', '--quarantine=2', '--max-restarts=1', nnodes='2:2')
        for generation in (1, 2):
            self.await_runs(2, generation, members=3)
            (self.folder / 'fail-2').touch()
        job = self.await_left_out('b', 2)
        self.assertEqual((job['generation'], job['restarts']), (3, 1))
        self.assertRegex(self.text(), r'\n  left out    b: first cause of 2 failures in a row: rank 2 on b failed: '
                                      r'exit code 7\n')
        self.nodes['b'].signal(signal.SIGTERM)
        self.nodes['b'].wait()
        wait_until(lambda: self.job()['members'] == 2, 'b to leave')
        service.signal(signal.SIGKILL)
        service.wait()
        self.serve_again(self.store)
        self.assertRegex(self.text(), r'\n  left out    b \(not here\): first cause of 2 failures in a row: ')
        self.assertEqual([blamed['node'] for blamed in self.job()['blamed']], ['b'])
        self.assertIn('node b may come back; ', self.text('train', 'b', verb='admit'))
        self.assertEqual(self.job()['blamed'], [])
        self.begin('b', '--quarantine=2', '--max-restarts=1', nnodes='2:2')
        job = self.await_runs(2, members=3)
        self.assertEqual((job['generation'], job['left_out']), (3, 0))

    def test_who_goes_during_its_check_is_no_obstacle(self):
        for go in ('kill the agent', 'kill the guard', 'ask'):
            with self.subTest(go):
                self.begin('abc', '--node-check=test $DDPRUN_NODE_NAME != b || ! test -e armed || '
                           '{ touch hangs; sleep 1000; }', '--max-restarts=1', nnodes='2:3')
                before = self.await_runs(3)['generation']
                (self.folder / 'armed').touch()
                (self.folder / 'fail-0').touch()
                wait_until((self.folder / 'hangs').exists, 'the check to hang')
                if go == 'kill the agent':
                    os.kill(self.nodes['b'].agent(), signal.SIGKILL)
                else:
                    self.nodes['b'].signal(signal.SIGKILL if go == 'kill the guard' else signal.SIGTERM)
                self.nodes['b'].wait()
                self.nodes['b'].wait_gone()
                job = self.await_runs(2, before + 1)
                self.assertEqual((job['restarts'], job['left_out']), (1, 0))
                self.text(verb='stop')
                for name in 'ac':
                    self.nodes[name].wait()
                (self.folder / 'hangs').unlink()
                (self.folder / 'armed').unlink()

    def test_too_few_are_left(self):
        """All wait for others, as long as they may, and say who is left out."""
        self.begin('ab', '--quarantine=1', '--join-timeout=20s', nnodes='2:2')
        self.await_runs(2)
        (self.folder / 'fail-2').touch()
        for name, text in (('a', 'waiting for 1 more node: 1 of at least 2 is here; left out: node b (first cause of '
                            '1 failure in a row: '),
                           ('b', 'left out: first cause of 1 failure in a row: rank 2 on b failed: exit code 7')):
            self.assertEqual(self.nodes[name].wait(), TIMEOUT, self.nodes[name].err)
            self.assertRegex(self.nodes[name].err, rf'no seat in the job after \d+ s \(--join-timeout\): {re.escape(text)}')

    def test_a_check_that_hangs_holds_up_no_verdict_of_others(self):
        """A job that is stopped ends the check of its node."""
        self.begin('ab', '--node-check=test $DDPRUN_GENERATION = 0 || { touch hangs; sleep 1000; }',
                   '--max-restarts=1', nnodes='2:2')
        self.await_runs(2)
        (self.folder / 'fail-0').touch()
        wait_until((self.folder / 'hangs').exists, 'a check to hang')
        job = self.await_job('both to check', lambda job: all(node['checking'] for node in job['nodes']))
        self.assertEqual(job['state'], 'stopping')
        self.assertRegex(self.text(), r' checking, idle 1 ')
        self.assertIn('is over', self.text(verb='stop'))
        for name in 'ab':
            self.nodes[name].wait()


if __name__ == '__main__':
    unittest.main()
