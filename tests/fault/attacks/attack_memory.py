"""attack_memory.py - what other processes of the same user, workers above all, try with those that hold the token."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'lib'))
import token_spy
from ddprun_run import DDPRUN, MARK, DdprunCase, children, describe, wait_until
from ddprund_run import DDPRUND, DdprundCase
from strangers import STRANGER, as_stranger, needs_strangers, reachable


@needs_strangers
class Memory(DdprundCase):
    """Another process of the same user, unless that is root, does not get the token."""

    def test_that_holds_the_token_is_not_to_be_read(self):
        token = self.folder / 'token'
        token.write_bytes(Path(self.token('make')).read_bytes())
        token.chmod(0o600)
        os.chown(token, STRANGER, STRANGER)
        for place in (self.folder, self.home, self.tmp):
            place.chmod(0o1777)

        ddprun, ddprund = reachable(self, DDPRUN), reachable(self, DDPRUND)

        def attack():
            env = dict(self.env, TMPDIR=str(self.tmp), **{MARK: 'memory'})
            proof = f'--token-file={token}'
            with subprocess.Popen([ddprund, '--listen=127.0.0.1:0', proof], env=env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as store:
                endpoint = store.stdout.readline().split()[-1]
                with subprocess.Popen([ddprun, '--nnodes=2', '--rdzv-id=train', proof,
                                       f'--rdzv-endpoint={endpoint}', 'true'], env=env,
                                      stderr=subprocess.DEVNULL) as job:
                    agent = wait_until(lambda: children(job.pid), 'the agent')[0]
                    wait_until(lambda: not token_spy.may_read(agent), 'an agent that hides')
                    open_to_all = token_spy.may_read(store.pid)
                    job.terminate()
                store.terminate()
            return open_to_all
        self.assertFalse(as_stranger(attack))


# The remote shells stay between a launcher and its agents.
SHELL = '#!/bin/sh\nsh -c "$2"\nexit\n'

# Rank 0 spies when rank 1 is there; both wait for their end. The tests' own python3 may be in root's home.
WORKER = ('if [ $RANK = 1 ]; then : >{there}; else until [ -e {there} ]; do sleep 0.01; done; '
          'PATH=/usr/local/bin:/usr/bin:/bin {spy} {token}; fi; echo up; exec sleep 1000')


@needs_strangers
class Hosts(DdprunCase):
    """A job on hosts where nothing but the agents has the token."""

    def setUp(self):
        super().setUp()
        for place in (self.folder, self.tmp):
            place.chmod(0o1777)
        self.env['XDG_CONFIG_HOME'] = str(self.folder / 'config')
        self.token = self.folder / 'config/ddprun/token'
        shell = self.write('shell', SHELL)
        worker = WORKER.format(spy=reachable(self, token_spy.__file__), token=self.token, there=self.folder / 'there')
        self.ddprun = reachable(self, DDPRUN)
        self.job = self.start('--launcher', shell, '--local-addr=127.0.0.1', '-H', 'a,b', '--auth=always', '--no-prefix',
                              'sh', '-c', worker, program=self.ddprun, user=STRANGER, group=STRANGER, extra_groups=[])
        self.job.read_until('up', 2)
        self.addCleanup(self.end)

    def end(self):
        self.job.signal(signal.SIGTERM)
        self.job.wait()

    def what_shows(self, seen):
        """Those processes of the job in which the token was seen; all were looked at."""
        running = self.job.running()
        self.assertLessEqual(set(running), set(seen))
        return {describe(pid): seen[pid] for pid in running if seen[pid]}

    def test_a_worker_finds_no_token(self):
        line = next(line for line in self.job.out.splitlines() if line.startswith('spy'))
        _, spy, found = line.split(' ', 2)
        seen = {int(pid): places for pid, places in json.loads(found).items()}
        self.assertIn('memory', seen[int(spy)])
        self.assertEqual(self.what_shows(seen), {})

    def test_another_process_of_the_user_finds_no_token(self):
        seen = as_stranger(lambda: token_spy.spy(self.token))
        self.assertEqual(self.what_shows({int(pid): places for pid, places in seen.items()}), {})

    def ddpruns(self):
        """The processes of ddprun, and those of them that are guards: each has an agent, or the head, as its child."""
        ours = [pid for pid in self.job.running() if os.readlink(f'/proc/{pid}/exe') == self.ddprun]
        guards = [pid for pid in ours if set(children(pid)) & set(ours)]
        self.assertEqual((len(ours), len(guards)), (6, 3))
        return ours, guards

    def test_no_process_of_ddprun_may_be_read(self):
        ours, _ = self.ddpruns()
        self.assertEqual(as_stranger(lambda: [pid for pid in ours if token_spy.may_read(pid)]), [])

    def test_the_guards_have_no_token(self):
        """Root, who may read them, finds none."""
        token = self.token.read_text().strip()
        ours, guards = self.ddpruns()
        has_it = {pid for pid in ours if token_spy.places(pid, token)}
        self.assertEqual(has_it, set(ours) - set(guards))
