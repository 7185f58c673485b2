"""keepers.py - what the tests of `ddprund --cluster` share: three keepers at three addresses of loopback."""

import json
import os
import re
import signal
from pathlib import Path

from ddprun_run import children, growing, wait_until
from ddprund_run import DdprundCase
from nodes import free_ports
from proc_tree import all_processes


def name_of(pid):
    try:
        return os.readlink(f'/proc/{pid}/exe').rpartition('/')[2]
    except OSError:
        return ''


class KeeperCase(DdprundCase):
    lease = '5s'

    def setUp(self):
        super().setUp()
        port, self.peer_port = free_ports(2)
        self.endpoints = [f'127.0.0.{i}:{port}' for i in (1, 2, 3)]
        self.hosts = [endpoint.partition(':')[0] for endpoint in self.endpoints]
        self.list = ','.join(self.endpoints)
        self.lost = set() # the lives that were killed

    def keeper(self, which, *words, cluster=None, **options):
        job = self.daemon(f'--cluster={cluster or self.list}', f'--advertise={self.endpoints[which]}',
                          f'--state-lease={self.lease}', f'--peer-port={self.peer_port}', *words, **options)
        job.endpoint = self.endpoints[which]
        return job

    def three(self, *words):
        keepers = [self.keeper(i, *words) for i in range(3)]
        self.until_whole()
        return keepers

    def kept(self):
        """What ddpctl status says of the store; {} while there is none."""
        code, out, _ = self.ctl(self.list, '--json', '--timeout=5s', verb='status')
        return json.loads(out).get('store', {}) if code == 0 else {}

    def lives(self):
        return {machine['endpoint']: machine['life'] for machine in self.kept().get('machines', [])}

    def until_kept(self, survives):
        """What is said of the store, once it says that it @survives this."""
        seen = {}
        def look():
            seen.clear()
            seen.update(self.kept())
            members = {m['life'] for m in seen.get('machines', []) if m['state'] == 'member'}
            return seen.get('survives') == survives and not members & self.lost
        wait_until(look, lambda: f'{survives}; it is {seen}')
        return seen

    def until_whole(self):
        """All three are members, so any one of them may die."""
        return self.until_kept('any one of ' + ', '.join(self.hosts))

    def leader_of(self, keepers):
        """The keeper whose store serves, once one of them does."""
        patience = growing(1, 8)
        def look():
            seconds = next(patience)
            for job in keepers:
                code, out, _ = self.ctl(job.endpoint, f'--timeout={seconds}s', 'stats', '--json')
                if code == 0:
                    return job
            return None
        return wait_until(look, lambda: 'a leader:\n' + '\n'.join(job.collect(0) or job.err for job in keepers))

    def parts(self, job):
        """Its etcd and its ddprund, None where it has none."""
        found = {name_of(pid): pid for pid in children(job.pid)}
        return found.get('etcd'), found.get('ddprund')

    def etcd_of(self, job):
        return wait_until(lambda: self.parts(job)[0], 'an etcd')

    end_signal = signal.SIGTERM

    def end(self, *keepers):
        for job in keepers:
            job.signal(self.end_signal)
        for job in keepers:
            self.assertEqual(job.wait(), 0, job.err)

    def with_etcd(self, *lines):
        """An environment whose etcd is this script."""
        folder = self.folder / 'bin'
        folder.mkdir(exist_ok=True)
        program = folder / 'etcd'
        program.write_text('\n'.join(['#!/bin/sh', *lines, '']))
        program.chmod(0o755)
        return {'PATH': f'{folder}:{self.env["PATH"]}'}

    def etcd_that_says(self, version):
        return self.with_etcd(f'echo "etcd Version: {version}"')

    def kill(self, job):
        """The whole keeper, as when its machine dies: its processes die with it."""
        etcd = self.parts(job)[0]
        if etcd: # else it was no member
            words = Path(f'/proc/{etcd}/cmdline').read_text()
            self.lost.add(int(re.search('--data-dir=data-([0-9a-f]{16})', words)[1], 16) % (1 << 32))
        parts = [pid for pid in self.parts(job) if pid]
        job.signal(signal.SIGKILL)
        job.wait()
        wait_until(lambda: not any(process.pid in parts and name_of(process.pid) for process in all_processes()),
                   'the end of its processes')
