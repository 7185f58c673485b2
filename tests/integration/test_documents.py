#!/usr/bin/env python3
"""test_documents.py - what README.md and docs/*.md tell a reader to compile and to type, word for word.

Commands find the programs of this build by PATH, and its libraries by the loader's path, as after "make install". Nodes
are network namespaces, which needs root. documents.txt lists what is not run here, and why.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, ROOT, wait_until
from ddprund_run import DdprundCase, has_ipv6
from documents import block
from nodes import DebianNames, NotPermitted

BIN = Path(DDPRUN).resolve().parent
BUILD = BIN.parent
STOPPED = 128 + signal.SIGTERM

# A rank that fails, at a time when all are there.
FAILING = '''#!/bin/sh
case $RANK in
0) echo 'step 100  loss 0.41' ;;
2) until [ -e here.0 ] && [ -e here.1 ] && [ -e here.3 ]; do sleep 0.01; done
   echo 'CUDA error: out of memory' >&2; exit 1 ;;
esac
touch here.$RANK
exec sleep 1000
'''
# Rank 1 is killed in the first of two attempts.
TRAINED = '''import os, signal
rank, attempt = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']
print(f'rank {rank} of {os.environ["WORLD_SIZE"]}', flush=True)
'''
KILLED = TRAINED.replace('print', '''if attempt == '0':
    if rank == '1':
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
print''')
WAITING = '#!/bin/sh\n[ $RANK = 2 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 7\nexec sleep 1000\n'
# The home of each node is HOMES/NODE.
AROUND = '''#include <ddprun/comm_requests.h>
#include <ddprun/ddp.h>
ddp_status train_step(ddp_comm *comm, struct ddp_error *err);
enum { BATCH = 8 };
void part(ddp_comm *comm, ddp_reducer *reducer, struct ddp_reducer_options options, ddp_tensors *tensors,
          ddp_tensor *handle, ddp_sampler *sampler, ddp_state *state, float *x, float *w, float *b,
          float *gradient, size_t n, size_t nw, size_t nb, uint64_t *items, uint64_t filled, unsigned rank, unsigned i,
          int step, int steps, uint64_t epochs)
{
    struct ddp_error err;
    ddp_status status;
    {
PART
    }
}
'''
SCP = '#!/bin/sh\nnode=${1%%:*}\nexec cp -p "$HOMES/$node/${1#*:}" "$2"\n'
KUBECTL = '#!/bin/sh\nif [ "$1 $2" = "apply -f" ]; then exec cat >>"$HOME/applied"; fi\necho "$@" >>"$HOME/asked"\n'


def typed(text, prompt=''):
    """The commands of a block: what stands behind the prompt, or every line where no line has one."""
    lines = text.replace('\\\n', ' ').splitlines()
    if not any(re.match(r'\w*\$ ', line) for line in lines):
        return lines
    return [line.removeprefix(f'{prompt}$ ') for line in lines if line.startswith(f'{prompt}$ ')]


def shown(text):
    """The lines of a block that a command prints, with what differs from run to run made alike."""
    lines = [line for line in text.splitlines() if line.strip() and not re.match(r'\w*\$ ', line)]
    return [re.sub(r'\d+\.?\d*( us| ms| s)?\b', 'N', re.sub(r'\bhost [^)]+', 'host H', ' '.join(line.split())))
            for line in lines]


class Reader(DdprundCase):
    """Types what a document says, in a folder with the programs that the document names."""

    def setUp(self):
        super().setUp()
        self.env.update(
            HOMES=str(self.folder), PATH=f'{self.folder}/tools:{BIN}:{self.env["PATH"]}',
            LD_LIBRARY_PATH=f'{BUILD}/worker:{BUILD}/rendezvous', PKG_CONFIG_PATH=f'{BUILD}/meson-uninstalled',
            PYTHONPATH=str(ROOT / 'python'), DDPRUN_LIBRARY_PATH=f'{BUILD}/worker:{BUILD}/rendezvous')
        (self.folder / 'tools').mkdir()
        for name, text in (('scp', SCP), ('kubectl', KUBECTL), ('dcgmi', '#!/bin/sh\n')):
            self.write(f'tools/{name}', text)

    def succeed(self, *lines):
        """The lines that they print, sorted."""
        job = self.run_job('-ec', '\n'.join(lines), program='sh')
        self.assert_succeeded(job)
        return sorted(job.out.splitlines())


class OneMachine(Reader):
    def test_a_rank_that_fails(self):
        self.write('worker', FAILING)
        text = block('README.md', '$ ddprun --nproc-per-node=4 ./worker')
        job = self.start('-c', '\n'.join(typed(text)), program='sh')
        job.wait()
        printed = shown(job.out + job.err)
        self.assertEqual([line for line in shown(text) if line not in printed], [], job.out + job.err)

    def test_programs_in_c(self):
        for name, program, commands, printed in (
                ('program.c', block('README.md', '#include <ddprun/store.h>'), block('README.md', 'cc program.c'),
                 [f'[default{rank}]:number N has arrived' for rank in range(4)]),
                ('train.c', block('README.md', '#include <ddprun/ddp.h>'), block('README.md', 'cc train.c'),
                 [f'[default{rank}]:rank N: y = N x + N' for rank in range(4)]),
                ('worker.c', block('docs/collectives.md', '#include <ddprun/comm.h>'),
                 block('docs/collectives.md', 'cc worker.c'), [f'[default{rank}]:rank N of N: N' for rank in range(4)])):
            with self.subTest(program=name):
                self.write(name, program)
                lines = self.succeed(*typed(commands))
                self.assertEqual([re.sub(r'(?<=[ :])\d[\d.]*', 'N', line) for line in lines], printed)

    def test_readme_shows_the_example(self):
        example = (ROOT / 'examples/train.c').read_text()
        self.assertEqual(block('README.md', '#include <ddprun/ddp.h>'), example[example.index('#include'):])

    def test_programs_of_manual_pages(self):
        for library in ('ddpcomm', 'ddpstore'):
            page = (ROOT / f'docs/man/lib{library}.3.in').read_text()
            program = page.partition('.SH EXAMPLE\n.nf\n')[2].partition('.fi\n')[0]
            self.write(f'{library}.c', program.replace(r'\e', '\\'))
            self.succeed(f'cc -Wall -Werror {library}.c $(pkg-config --cflags --libs {library}) -o {library}')

    def test_programs_in_python(self):
        for program, printed in ((block('docs/python.md', 'import array, ddprun'), 'rank {}: the average is 1.5'),
                                 (block('docs/python.md', 'from datetime'), 'number {} reads node1:5000')):
            self.write('train.py', program)
            lines = self.succeed('ddprun --nproc-per-node=4 --no-prefix python3 train.py')
            first = 0 if printed.startswith('rank') else 1
            self.assertEqual(lines, [printed.format(number) for number in range(first, first + 4)])

    def test_parts_of_programs(self):
        """They compile, in a function that has what they do not declare."""
        for number, part in enumerate((block('docs/training.md', 'ddp_reducer_create'),
                                       block('docs/training.md', 'struct ddp_loss_scaler'),
                                       block('docs/training.md', 'struct ddp_tensor_op'),
                                       block('docs/training.md', 'struct ddp_sampler_options'),
                                       block('docs/training.md', 'status = ddp_state_sync'),
                                       block('docs/collectives.md', 'struct ddp_operation'),
                                       block('docs/collectives.md', 'struct ddp_buffer'))):
            self.write(f'part{number}.c', AROUND.replace('PART', part))
        self.succeed('for part in part*.c; do cc -Werror=implicit-function-declaration -Wno-unused-result -fsyntax-only '
                     '$(pkg-config --cflags ddpcomm) $part; done')

    def test_one_node(self):
        self.write('train.py', 'import os; print(os.environ["RANK"])\n')
        lines = self.succeed(*typed(block('docs/from-torchrun.md', 'ddprun --nproc-per-node=4')))
        self.assertEqual(lines, [f'[default{rank}]:{rank}' for rank in range(4)])

    def test_kubernetes(self):
        self.succeed(*typed(block('docs/migration.md', 'ddpctl template kubernetes')))
        self.succeed(*typed(block('docs/from-torchrun.md', 'ddpctl token make')))
        manifests, asked = ((self.home / name).read_text() for name in ('applied', 'asked'))
        self.assertEqual(manifests.count('kind: Job'), 2)
        self.assertEqual(asked, 'create secret generic ddprun-token --from-file=token='
                         f'{self.home}/.config/ddprun/token\n')
        self.assertIn('secretName: ddprun-token', manifests)


class Nodes(Reader):
    """Each with a home of its own, below the folder of the case."""

    NAMES = ('node1', 'node2', 'node10')

    class Wires(DebianNames):
        NETWORK = '10.0.0'

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix='ddprun_hosts_')
        cls.addClassCleanup(folder.cleanup)
        try:
            cls.wires = cls.Wires(cls.NAMES, Path(folder.name))
        except NotPermitted as fault:
            raise unittest.SkipTest(str(fault)) from None
        cls.addClassCleanup(cls.wires.close)

    def setUp(self):
        super().setUp()
        for name in self.NAMES:
            (self.folder / name).mkdir()

    def on(self, node, *lines):
        words = self.wires.enter(node, ['sh', '-ec', '\n'.join(lines)])
        return self.start(*words[1:], program=words[0], env={'HOME': str(self.folder / node)})

    def service(self, node, line, says=1):
        """It prints so many lines at its start, and is ended by a signal."""
        job = self.on(node, f'exec {line}')
        job.collect_until(lambda: job.out.count('\n') == says, 'what it says')
        return job

    def done_on(self, node, *lines):
        job = self.on(node, *lines)
        self.assertEqual(job.wait(), 0, job.out + job.err)
        return job.out

    def end(self, job, by=signal.SIGTERM, code=0):
        job.signal(by)
        self.assertEqual(job.wait(), code, job.err)

    def await_token(self):
        wait_until((self.folder / 'node1/.config/ddprun/token').exists, 'the token')

    def test_two_nodes(self):
        restarting = {block('README.md', 'node1$ ddprun --nnodes=2:4 --nproc'),
                      block('docs/elastic.md', 'node1$ ddprun --nnodes=2:4 --nproc')}  # which are the same
        for text, ranks, program in ((block('docs/from-torchrun.md', 'node1$ ddprun'), 8, TRAINED),
                                     *((text, 16, KILLED) for text in restarting)):
            self.write('train.py', program)
            first = self.on('node1', *typed(text, 'node1'))
            self.await_token()
            second = self.on('node2', *typed(text, 'node2'))
            for job in (second, first):
                self.assertEqual(job.wait(), 0, first.err + second.err)
            self.assertEqual((first.out + second.out).count(f' of {ranks}'), ranks, first.out + second.out)
            (self.folder / 'node2/.config/ddprun/token').unlink()

    def test_a_check_of_each_node(self):
        self.write('train.py', 'print("trained")\n')
        text = block('docs/elastic.md', 'ddprun --nnodes=2:4 --node-check')
        jobs = [self.on(node, 'export HOME=$HOMES/node1', *typed(text)) for node in ('node1', 'node2')]
        for job in jobs:
            self.assertEqual((job.wait(), job.out), (0, '[default0]:trained\n'), job.err)

    def test_a_job_is_changed(self):
        text = block('docs/elastic.md', '$ export DDPRUN_STORE')
        self.write('train', WAITING)
        nodes = {}
        for node in ('node1', 'node2', 'node10'):
            nodes[node] = self.on(node, 'export HOME=$HOMES/node1',
                                  'exec ddprun --nnodes=1:2 --nproc-per-node=2 --rdzv-id=train --max-restarts=3 --settle=10m '
                                  '--lease=60s --rdzv-endpoint=10.0.0.1:29400 ./train')
            if node == 'node1':
                self.await_token()
            else:
                nodes[node].read_until({'node2': 'generation 1:', 'node10': 'spare'}[node])
        for node in ('node1', 'node2'):
            nodes[node].read_until('generation 2')
        look, *change = typed(text, '')[1:]
        self.home = self.folder / 'node1'
        export = typed(text)[0]
        said = lambda: self.done_on('node1', export, look)
        wait_until(lambda: 'spare  -' in (seen := said()) and seen.count('running,') == 2, 'all nodes')
        self.assertEqual(shown(said()), shown(text))
        out = self.done_on('node1', export, *change)
        self.assertIn('node2', out)
        for node, code in (('node1', STOPPED), ('node2', 0), ('node10', STOPPED)):
            self.assertEqual(nodes[node].wait(), code, nodes[node].err)

    @unittest.skipUnless(has_ipv6(), 'this machine has no IPv6')
    def test_a_store(self):
        text = block('docs/store.md', '$ ddprund --listen=127.0.0.1:29400')
        service = self.service('node1', *typed(text), says=2)
        self.assertEqual(shown(service.out), shown(text))
        text = block('docs/store.md', '$ export DDPRUN_STORE')
        export, *actions = typed(text)
        watch = actions.pop()
        self.done_on('node1', export, *(f'ddpctl store set {key} here' for key in ('ready/0', 'ready/1', 'address', 'members/a')))
        out = self.done_on('node1', export, *actions)
        self.assertTrue(set(shown(text)) <= set(shown(out)), out)
        watcher = self.on('node1', export, f'exec {watch}')
        watcher.read_until('members/a')
        self.end(watcher, signal.SIGINT)
        self.end(service)

    def test_a_store_for_other_machines(self):
        text = block('docs/store.md', 'node1$ ddprund --listen=10.0.0.1:29400  ')
        service = self.service('node1', *typed(text, 'node1'))
        self.done_on('node2', *typed(text, 'node2'))
        self.end(service)

    def test_ports_for_a_job(self):
        text = block('docs/store.md', '$ ddprund --data-port')
        start, port = typed(text)
        service, opened = self.service('node1', start, says=2), self.service('node1', port)
        self.assertRegex(opened.out, r'^\d+\n$')
        self.end(opened, signal.SIGINT)
        self.end(service)


if __name__ == '__main__':
    unittest.main()
