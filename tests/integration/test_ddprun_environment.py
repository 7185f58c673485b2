#!/usr/bin/env python3
"""test_ddprun_environment.py - what a worker inherits: variables, ports, and a clean state."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase, probe, wait_until
from ddprund_run import DDPCTL
from nodes import free_port

UUID = r'[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'
PRINT_ENV = 'env | while IFS= read -r line; do echo "$RANK|$line"; done'
# Variables of a shell's own.
SHELL_MADE = {'PWD', 'OLDPWD', 'SHLVL', '_'}


def environments(job):
    """rank -> the variables of that worker, from the output of PRINT_ENV."""
    found = {}
    for line in job.out.splitlines():
        rank, _, entry = line.partition('|')
        name, _, value = entry.partition('=')
        found.setdefault(int(rank), {})[name] = value
    return found


def usable_processors():
    """Those in the mask, and no more than the control group's quota, if it has one."""
    usable = len(os.sched_getaffinity(0))
    try:
        group = Path('/proc/self/cgroup').read_text(encoding='ascii').strip().rpartition('::')[2]
        quota, period = Path(f'/sys/fs/cgroup{group}/cpu.max').read_text(encoding='ascii').split()
        return max(1, min(usable, int(quota) // int(period)))
    except (OSError, ValueError):
        return usable


class Variables(DdprunCase):
    def workers(self, *words, **options):
        job = self.run_job(*words, '--no-prefix', 'sh', '-c', PRINT_ENV, **options)
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(job.err, '')
        return environments(job)

    def test_each_variable(self):
        found = self.workers('--nproc-per-node=3', '--role=trainer', '--rdzv-id=job7',
                             '--max-restarts=4', '--rdzv-backend=c10d')
        self.assertEqual(sorted(found), [0, 1, 2])
        for rank, env in found.items():
            expected = {
                'RANK': str(rank), 'LOCAL_RANK': str(rank), 'WORLD_SIZE': '3',
                'LOCAL_WORLD_SIZE': '3', 'GROUP_RANK': '0', 'GROUP_WORLD_SIZE': '1',
                'ROLE_NAME': 'trainer', 'ROLE_RANK': str(rank), 'ROLE_WORLD_SIZE': '3',
                'MASTER_ADDR': '127.0.0.1', 'TORCHELASTIC_RUN_ID': 'job7',
                'TORCHELASTIC_RESTART_COUNT': '0', 'TORCHELASTIC_MAX_RESTARTS': '4',
                'TORCHELASTIC_USE_AGENT_STORE': 'True',
                'TORCHELASTIC_SIGNALS_TO_HANDLE': 'SIGTERM,SIGINT,SIGHUP,SIGQUIT',
                'TORCH_NCCL_ASYNC_ERROR_HANDLING': '1', 'OMP_NUM_THREADS': '1',
                'DDPRUN_STORE_PREFIX': 'g1/',
            }
            self.assertEqual({name: env.get(name) for name in expected}, expected)
            self.assertEqual(env['DDPRUN_STORE'], f"127.0.0.1:{env['MASTER_PORT']}")
            self.assertRegex(env['DDPRUN_STORE'], r'\A127\.0\.0\.1:\d+\Z')
            self.assertRegex(env['TORCHELASTIC_ERROR_FILE'], r'\A/.+\.json\Z')
        for shared in ('MASTER_PORT', 'DDPRUN_STORE'):
            self.assertEqual(len({env[shared] for env in found.values()}), 1)
        self.assertEqual(len({env['TORCHELASTIC_ERROR_FILE'] for env in found.values()}), 3)

    def test_nothing_else_is_added_or_removed(self):
        env = self.workers('--nproc-per-node=2', env={'KEPT': 'a b=c', 'EMPTY': ''})[1]
        before = dict(self.jobs[0].env)
        added = set(env) - set(before) - SHELL_MADE
        self.assertEqual(added, {
            'RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'GROUP_RANK',
            'GROUP_WORLD_SIZE', 'ROLE_NAME', 'ROLE_RANK', 'ROLE_WORLD_SIZE', 'MASTER_ADDR',
            'MASTER_PORT', 'TORCHELASTIC_RUN_ID', 'TORCHELASTIC_RESTART_COUNT',
            'TORCHELASTIC_MAX_RESTARTS', 'TORCHELASTIC_ERROR_FILE', 'TORCHELASTIC_USE_AGENT_STORE',
            'TORCHELASTIC_SIGNALS_TO_HANDLE', 'TORCH_NCCL_ASYNC_ERROR_HANDLING',
            'DDPRUN_STORE', 'DDPRUN_STORE_PREFIX', 'DDPRUN_RANK_KEY_FD', 'DDPRUN_LIFE_FD', 'DDPRUN_LIFE_SLOT',
            'DDPRUN_FLIGHT_FD',
            'PMI_FD', 'PMI_RANK', 'PMI_SIZE', 'MPI_LOCALRANKID', 'MPI_LOCALNRANKS', 'MPIR_CVAR_PMI_VERSION',
            'PMIX_NAMESPACE', 'PMIX_RANK', 'PMIX_SERVER_URI2', 'PMIX_SERVER_URI21', 'PMIX_SERVER_URI3', 'PMIX_SERVER_URI4',
            'PMIX_SERVER_URI41', 'PMIX_SECURITY_MODE', 'PMIX_BFROP_BUFFER_TYPE', 'PMIX_GDS_MODULE', 'PMIX_HOSTNAME',
            'JSM_JSRUN_PORT',
            'HOROVOD_RANK', 'HOROVOD_SIZE', 'HOROVOD_LOCAL_RANK', 'HOROVOD_LOCAL_SIZE', 'HOROVOD_CROSS_RANK',
            'HOROVOD_CROSS_SIZE', 'HOROVOD_HOSTNAME', 'HOROVOD_CONTROLLER', 'HOROVOD_CPU_OPERATIONS',
            'HOROVOD_GLOO_RENDEZVOUS_ADDR', 'HOROVOD_GLOO_RENDEZVOUS_PORT', 'HOROVOD_GLOO_IFACE',
            'JAX_COORDINATOR_ADDRESS', 'JAX_COORDINATOR_BIND_ADDRESS', 'JAX_NUM_PROCESSES', 'JAX_PROCESS_ID'})
        for name, value in before.items():
            if name not in SHELL_MADE:
                self.assertEqual(env.get(name), value, name)

    def test_inherited_ranks_are_replaced(self):
        env = self.workers(env={'RANK': 5, 'WORLD_SIZE': 9, 'MASTER_PORT': 1,
                                'TORCHELASTIC_RUN_ID': 'outer'})[0]
        self.assertEqual((env['RANK'], env['WORLD_SIZE']), ('0', '1'))
        self.assertNotEqual(env['MASTER_PORT'], '1')
        self.assertRegex(env['TORCHELASTIC_RUN_ID'], rf'\A{UUID}\Z')

    def start_two_nodes(self, *words, script=PRINT_ENV, endpoint=None):
        """Of one worker and of two. The second hosts the store."""
        endpoint = endpoint or f'127.0.0.1:{free_port()}'
        return [self.start('--nnodes=2', f'--node-rank={node}', f'--nproc-per-node={node + 1}', '--lease=10m',
                           f'--rdzv-endpoint={endpoint}', f'--rdzv-conf=is_host={node}', '--rdzv-id=two', '--no-prefix',
                           *words, 'sh', '-c', script) for node in range(2)]

    def two_nodes(self, *words):
        jobs = self.start_two_nodes(*words)
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.err)
        return jobs

    def test_jax_has_a_coordinator_at_a_free_port(self):
        """Of rank 0's node, where its store does not listen."""
        found = {}
        for job in self.two_nodes():
            found.update(environments(job))
        address, = {env['JAX_COORDINATOR_ADDRESS'] for env in found.values()}
        self.assertNotIn(address.split(':')[1], {found[0]['MASTER_PORT'], found[0]['DDPRUN_STORE'].split(':')[1]})
        with socket.create_server(('127.0.0.1', int(address.split(':')[1]))):
            pass
        self.assertEqual([(env['JAX_NUM_PROCESSES'], env['JAX_PROCESS_ID']) for _, env in sorted(found.items())],
                         [('3', str(rank)) for rank in range(3)])
        self.assertNotIn('TF_CONFIG', found[0])

    def test_tensorflow_has_an_address_of_each_rank(self):
        """Also if a node whose workers have ended learns of the restart only when the others have begun again."""
        endpoint = f'127.0.0.1:{free_port()}'
        script = (f'{PRINT_ENV}; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 2 ] || exit 0; '
                  f'until [ -e {self.folder}/fail ]; do sleep 0.01; done; exit 1')
        first, second = jobs = self.start_two_nodes('--tf-config', '--max-restarts=1', script=script, endpoint=endpoint)

        def first_is_done():
            shown = subprocess.run([DDPCTL, 'status', f'--endpoint={endpoint}', '--json'], capture_output=True, check=False)
            nodes = [node for job in json.loads(shown.stdout or '{"jobs": []}')['jobs'] for node in job['nodes']]
            return any(node['nproc'] == 1 and node['phase'] == 'done' for node in nodes)
        wait_until(first_is_done, 'the worker of the first node has ended')
        os.kill(first.agent(), signal.SIGSTOP)
        self.write('fail', '')
        second.read_until('|TF_CONFIG=', count=4)
        os.kill(first.agent(), signal.SIGCONT)
        clusters = {}
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.err)
            for rank, text in re.findall(r'(?m)^(\d)\|TF_CONFIG=(.*)', job.out):
                config = json.loads(text)
                self.assertEqual(config['task'], {'type': 'worker', 'index': int(rank)})
                clusters.setdefault(int(rank), []).append(config['cluster']['worker'])
        self.assertEqual(sorted(clusters), [0, 1, 2])
        self.assertEqual(clusters[1], clusters[0])
        self.assertEqual(clusters[2], clusters[0])
        self.assertEqual([len(set(addresses)) for addresses in clusters[0]], [3, 3])

    def test_tensorflow_on_one_node_after_a_restart(self):
        job = self.run_job('--tf-config', '--nproc-per-node=2', '--max-restarts=1', '--no-prefix', 'sh', '-c',
                           PRINT_ENV + '; exit $((1 - TORCHELASTIC_RESTART_COUNT))')
        self.assertEqual(job.code, 0, job.err)
        clusters = [json.loads(text)['cluster']['worker'] for text in re.findall(r'TF_CONFIG=(.*)', job.out)]
        self.assertEqual({len(set(cluster)) for cluster in clusters}, {2})

    def test_tensorflow_on_some_nodes_only(self):
        """The node that comes later is refused before a worker starts, as with each term of the job."""
        for own, other in ('off', 'on'), ('on', 'off'):
            endpoint = f'127.0.0.1:{free_port()}'

            def start(option, is_host):
                return self.start('--nnodes=2', f'--rdzv-conf=is_host={is_host}', '--lease=10m', f'--rdzv-endpoint={endpoint}',
                                  '--rdzv-id=two', *['--tf-config'] * (option == 'on'), 'echo', 'started')
            first = start(own, 1)
            first.read_until('waiting for 1 more node')
            later = start(other, 0)
            self.assertEqual(later.wait(), 78, later.err)
            self.assertIn(f'--tf-config is {other} on this node and {own} in the job; start all nodes with the same settings',
                          later.err)
            first.read_until(f'came with --tf-config={other} and was refused; this job has --tf-config={own}')
            first.signal(signal.SIGTERM)
            first.wait()
            self.assertNotIn('started', first.out + later.out)

    def test_processors_of_workers(self):
        usable = os.sched_getaffinity(0)
        script = 'echo $RANK $(grep Cpus_allowed_list /proc/self/status)'
        job = self.run_job('--numa-binding=node', '--no-prefix', 'sh', '-c', script)
        self.assertEqual(job.code, 0, job.err)
        self.assertIn('--numa-binding: each worker is bound to', job.err)
        job = self.run_job('--numa-binding=exclusive', f'--nproc-per-node={len(usable) + 1}', 'true')
        self.assert_sentence(job, 2, '--numa-binding=exclusive', f'for {len(usable) + 1} workers')
        cpu = str(min(usable))
        self.assertEqual(self.run_job('-c', cpu, DDPRUN, '--numa-binding=exclusive', '--no-prefix', 'sh', '-c', script,
                                      program='/usr/bin/taskset').out, f'0 Cpus_allowed_list: {cpu}\n')

    def test_processors_without_hwloc(self):
        """It is loaded only then. Any other library is one that lacks its functions."""
        library = self.folder / 'libhwloc.so.15'
        for content, said in ((b'', 'cannot be loaded'), (Path(os.environ['DDPRUN_NVML']).read_bytes(), 'has no hwloc_')):
            library.write_bytes(content)
            job = self.run_job('--numa-binding=node', 'true', env={'LD_LIBRARY_PATH': self.folder})
            self.assert_sentence(job, 78, '--numa-binding needs', 'hwloc', said)
            self.assertEqual(self.run_job('true', env={'LD_LIBRARY_PATH': self.folder}).code, 0)

    def test_omp_num_threads(self):
        del self.env['OMP_NUM_THREADS']
        self.assertNotIn('OMP_NUM_THREADS', self.workers()[0])
        for nproc in (2, 64):
            threads = max(1, usable_processors() // nproc)
            words = [f'--nproc-per-node={nproc}', '--no-prefix', 'sh', '-c', 'echo $OMP_NUM_THREADS']
            job = self.run_job(*words)
            self.assertEqual((job.out.split(), job.err), ([str(threads)] * nproc, ''))
            self.assertRegex(self.run_job('--verbose', *words).err,
                             rf'\Addprun: \d+ processors for {nproc} workers: OMP_NUM_THREADS={threads} in each; ')
        for value in ('6', ''):
            found = self.workers('--nproc-per-node=2', env={'OMP_NUM_THREADS': value})
            self.assertEqual(found[1]['OMP_NUM_THREADS'], value)

    def test_nccl_error_handling_is_a_default_only(self):
        found = self.workers(env={'TORCH_NCCL_ASYNC_ERROR_HANDLING': '0'})
        self.assertEqual(found[0]['TORCH_NCCL_ASYNC_ERROR_HANDLING'], '0')

    def test_virtual_local_rank(self):
        def seen(**env):
            found = self.workers('--nproc-per-node=3', '--virtual-local-rank', env=env)
            self.assertEqual({env['LOCAL_RANK'] for env in found.values()}, {'0'})
            return [found[rank]['CUDA_VISIBLE_DEVICES'] for rank in range(3)]
        self.assertEqual(seen(), ['0', '1', '2'])
        self.assertEqual(seen(CUDA_VISIBLE_DEVICES='4, 6 ,9,1'), ['4', '6', '9'])
        long = [f'GPU-8a56a4bc-d184-a047-2620-be19f0f2a00{n}' for n in range(3)]
        self.assertEqual(seen(CUDA_VISIBLE_DEVICES=','.join(long)), long)

    def test_visible_devices_stay_without_it(self):
        env = self.workers('--nproc-per-node=2', env={'CUDA_VISIBLE_DEVICES': '3,5'})[1]
        self.assertEqual(env['CUDA_VISIBLE_DEVICES'], '3,5')

    def test_timeline(self):
        self.assertNotIn('DDP_TIMELINE', self.workers()[0])
        self.assertEqual(self.workers('--timeline-filename=/x y.json')[0]['DDP_TIMELINE'], '/x y.json')
        self.assertEqual(self.workers(env={'DDP_TIMELINE': '/z.json'})[0]['DDP_TIMELINE'], '/z.json')

    def test_job_id(self):
        def run_id(*words):
            return self.workers(*words)[0]['TORCHELASTIC_RUN_ID']
        self.assertRegex(run_id('--standalone', '--rdzv-id=x'), rf'\A{UUID}\Z')
        self.assertEqual(run_id('--master-port=0'), 'none')
        self.assertEqual(run_id('--rdzv-id=my job'), 'my job')
        self.assertNotEqual(run_id(), run_id())

    def test_master_address(self):
        def address(*words):
            return self.workers(*words)[0]['MASTER_ADDR']
        self.assertEqual(address('--master-addr=node7'), 'node7')
        self.assertEqual(address('--local-addr=10.0.0.9'), '10.0.0.9')

    def test_a_value_of_any_length_arrives(self):
        long = 'x' * 100000
        self.assertEqual(self.workers(env={'LONG': long})[0]['LONG'], long)
        self.assertEqual(self.workers('--rdzv-id=' + long)[0]['TORCHELASTIC_RUN_ID'], long)


    def test_the_store_is_the_master_where_it_can_be(self):
        for words, shared in (((), True), (('--master-addr=localhost',), True),
                              (('--master-addr=127.0.0.3',), True),
                              (('--rdzv-backend=c10d', '--rdzv-endpoint=localhost:0'), True),
                              (('--master-addr=node7',), False),
                              (('--local-addr=10.0.0.9',), False)):
            with self.subTest(words):
                env = self.workers('--nproc-per-node=2', *words)[0]
                self.assertEqual(env['TORCHELASTIC_USE_AGENT_STORE'], str(shared))
                same_port = env['DDPRUN_STORE'].endswith(':' + env['MASTER_PORT'])
                self.assertEqual(same_port, shared)
        env = self.workers('--nproc-per-node=2', env={'TORCH_DISABLE_SHARE_RDZV_TCP_STORE': 1})[0]
        self.assertEqual(env['TORCHELASTIC_USE_AGENT_STORE'], 'False')

    def test_the_only_worker_hosts_its_own(self):
        """What it starts may have another MASTER_ADDR and MASTER_PORT, where there is no store of ours."""
        for words in ((), ('--master-port=0',), ('--rdzv-backend=c10d', '--rdzv-endpoint=localhost:0'),
                      ('--standalone', '--nnodes=1:4')):
            with self.subTest(words):
                env = self.workers(*words, env={'TORCHELASTIC_USE_AGENT_STORE': 'True'})[0]
                self.assertEqual(env['TORCHELASTIC_USE_AGENT_STORE'], 'False')
                self.assertFalse(env['DDPRUN_STORE'].endswith(':' + env['MASTER_PORT']))


class Ports(DdprunCase):
    """A script that brings its own rendezvous: nothing but its rank 0 is at the master's port."""

    OWN = {'TORCH_DISABLE_SHARE_RDZV_TCP_STORE': 1}
    LISTEN = ('import os, socket\n'
              's = socket.socket(socket.{family})\n'
              's.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n'
              's.bind(("{host}", int(os.environ["MASTER_PORT"])))\n'
              's.listen()\n'
              'c = socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"])))\n'
              's.accept()[0].sendall(b"hello")\n'
              'print(os.environ["MASTER_PORT"], c.recv(5).decode())\n')

    def test_rank_0_can_listen_on_the_master_port(self):
        families = [('AF_INET', '127.0.0.1'), ('AF_INET', '')]
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as s:
            s.bind(('::1', 0))
            families.append(('AF_INET6', '::'))
        for family, host in families:
            self.write('listen.py', self.LISTEN.format(family=family, host=host))
            job = self.run_job('listen.py', env=self.OWN)
            self.assertEqual(job.code, 0, job.err)
            self.assertRegex(job.out, r'^\[default0\]:\d+ hello\n\Z')

    def test_a_given_port_is_used(self):
        port = free_port()
        self.write('listen.py', self.LISTEN.format(family='AF_INET', host=''))
        for words in ((f'--master-port={port}',), (f'--rdzv-endpoint=127.0.0.1:{port}',)):
            job = self.run_job(*words, 'listen.py', env=self.OWN)
            self.assertEqual(job.out, f'[default0]:{port} hello\n', job.err)

    def test_a_worker_can_listen_again_after_a_restart(self):
        self.write('again.py', self.LISTEN.format(family='AF_INET', host='') +
                   'raise SystemExit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")\n')
        job = self.run_job('--max-restarts=1', 'again.py', env=self.OWN)
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(len(set(job.out.splitlines())), 1)
        self.assertEqual(len(job.out.splitlines()), 2)

    def test_jobs_at_once_have_ports_of_their_own(self):
        jobs = [self.start('--no-prefix', 'sh', '-c',
                           'echo $MASTER_PORT; echo ${DDPRUN_STORE##*:}; read -r wait', stdin=-1,
                           env=self.OWN)
                for _ in range(6)]
        for job in jobs:
            job.read_until('\n', 2)
        ports = [port for job in jobs for port in job.out.split()]
        self.assertEqual(len(set(ports)), 12, ports)
        for job in jobs:
            job.process.stdin.close()
            job.wait()

    def test_the_store_is_reachable_by_loopback_only(self):
        job = self.start('--no-prefix', 'sh', '-c', 'echo $DDPRUN_STORE; read -r wait', stdin=-1)
        job.read_until('\n')
        host, port = job.out.strip().rsplit(':', 1)
        socket.create_connection((host, int(port))).close()
        listening = [line.split()[1] for path in ('/proc/net/tcp', '/proc/net/tcp6')
                     for line in Path(path).read_text().splitlines()[1:]
                     if line.split()[3] == '0A' and int(line.split()[1].split(':')[1], 16) == int(port)]
        self.assertEqual(listening, [f'0100007F:{int(port):04X}'])
        job.process.stdin.close()
        job.wait()


class Birth(DdprunCase):
    CLEAN = ['fds 0 1 2 3', 'own_session 1', 'own_group 1', 'death_signal 9', 'blocked', 'ignored']

    def test_a_worker_starts_clean(self):
        job = self.run_job('--no-prefix', probe('state'))
        self.assertEqual(job.out.splitlines(), self.CLEAN)

    def test_with_files_and_many_siblings_too(self):
        job = self.run_job('--nproc-per-node=20', '--tee=3', f'--log-dir={self.folder}/logs',
                           probe('state'))
        for rank in range(20):
            lines = [line.split(':', 1)[1] for line in job.out.splitlines()
                     if line.startswith(f'[default{rank}]:')]
            self.assertEqual(lines, self.CLEAN)

    def test_descriptors_of_the_caller_do_not_get_through(self):
        with open('/dev/null') as file:
            job = self.run_job('--no-prefix', probe('state'), pass_fds=[file.fileno()])
        self.assertEqual(job.out.splitlines(), self.CLEAN)

    def test_directory_and_standard_input_are_the_callers(self):
        (self.folder / 'input').write_text('from the caller\n')
        with open(self.folder / 'input') as file:
            job = self.run_job('--no-prefix', 'sh', '-c', 'pwd; cat', stdin=file)
        self.assertEqual(job.out, f'{self.folder}\nfrom the caller\n')

    def test_a_launcher_in_a_launcher(self):
        words = ['--nproc-per-node=2', '--no-prefix']
        job = self.run_job(*words, DDPRUN, *words, 'sh', '-c', 'echo $RANK/$WORLD_SIZE')
        self.assertEqual(sorted(job.out.splitlines()), ['0/2', '0/2', '1/2', '1/2'])



if __name__ == '__main__':
    unittest.main()
