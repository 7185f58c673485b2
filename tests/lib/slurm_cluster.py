"""slurm_cluster.py - a cluster of Slurm on this machine: slurmctld, a slurmd for each node on a port of its
own, and munged, all below one folder. Their names resolve in a mount namespace with an /etc/hosts of its own,
which the whole test enters before it starts (enter_namespace()).
"""

import os
import shutil
import signal
import socket
import subprocess
import sys

from ddprun_run import wait_until
from nodes import free_ports, may_unshare

SERVERS = ('munged', 'slurmctld', 'slurmd')
NODES = 3
ENTERED = 'DDPRUN_TEST_NAMESPACE'


def missing():
    """Why there can be no cluster here; None: there can."""
    path = '/usr/sbin:/usr/bin:' + os.environ.get('PATH', '')
    absent = [name for name in (*SERVERS, 'srun', 'sbatch', 'scontrol') if shutil.which(name, path=path) is None]
    if absent:
        return f'these programs of Slurm are missing: {", ".join(absent)} (Debian package slurm-wlm)'
    if os.geteuid() != 0:
        return 'this is not root, and slurmd runs as root only'
    return None if may_unshare('--mount') else 'a namespace of mounts may not be made here'


def enter_namespace():
    """Begin again in a mount namespace in which n1, n2, ... are this machine."""
    if os.environ.get(ENTERED) == '1':
        return
    names = ' '.join(f'n{number + 1}' for number in range(NODES))
    script = ('set -e; hosts=$(mktemp); cat /etc/hosts >"$hosts"; '
              f'echo "127.0.0.1 {socket.gethostname()} {names}" >>"$hosts"; '
              'mount --bind "$hosts" /etc/hosts; rm "$hosts"; exec "$@"')
    os.environ[ENTERED] = '1'
    os.execvp('unshare', ['unshare', '--mount', 'sh', '-c', script, 'sh', sys.executable, *sys.argv])


class SlurmCluster:
    def __init__(self, folder):
        self.folder = folder
        self.processes = {}
        for name in ('munge', 'state', 'log'):
            (folder / name).mkdir()
        folder.chmod(0o755)
        (folder / 'munge').chmod(0o711)
        (folder / 'munge/key').write_bytes(os.urandom(128))
        (folder / 'munge/key').chmod(0o400)
        self.ports = free_ports(NODES + 1)
        self.conf = folder / 'slurm.conf'
        self.conf.write_text(self._configuration())
        self.env = dict(os.environ, SLURM_CONF=str(self.conf))

    def _configuration(self):
        host = socket.gethostname()
        lines = [f'NodeName=n{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=100 State=UNKNOWN'
                 for i, port in enumerate(self.ports[1:])]
        return '\n'.join([
            'ClusterName=test', f'SlurmctldHost={host}(127.0.0.1)', f'SlurmctldPort={self.ports[0]}',
            'AuthType=auth/munge', f'AuthInfo=socket={self.folder}/munge/socket', 'CredType=cred/munge',
            'SlurmUser=root', 'SlurmdUser=root', f'StateSaveLocation={self.folder}/state',
            f'SlurmdSpoolDir={self.folder}/spool-%n', f'SlurmctldPidFile={self.folder}/slurmctld.pid',
            f'SlurmdPidFile={self.folder}/%n.pid', 'ProctrackType=proctrack/linuxproc', 'TaskPlugin=task/none',
            'SelectType=select/cons_tres', 'SelectTypeParameters=CR_Core', 'MpiDefault=none', 'ReturnToService=2',
            'JobRequeue=1', 'RequeueExit=75', 'KillWait=5', 'SlurmdTimeout=300', 'InactiveLimit=0', 'OverTimeLimit=1',
            'SlurmdParameters=config_overrides', 'SchedulerParameters=sched_interval=1,batch_sched_delay=1',
            *lines, 'PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP']) + '\n'

    def _start(self, name, *words):
        with open(self.folder / 'log' / name, 'wb') as log:
            self.processes[name] = subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_slurmd(self, node):
        (self.folder / f'spool-{node}').mkdir(exist_ok=True)
        self._start(node, '/usr/sbin/slurmd', '-D', '-N', node)

    def start(self):
        munge = self.folder / 'munge'
        self._start('munged', '/usr/sbin/munged', '-F', f'--key-file={munge}/key', f'--socket={munge}/socket',
                    f'--pid-file={munge}/pid', f'--log-file={munge}/log', f'--seed-file={munge}/seed')
        wait_until((munge / 'socket').exists, 'munged')
        self._start('slurmctld', '/usr/sbin/slurmctld', '-D', '-c')
        for number in range(NODES):
            self.start_slurmd(f'n{number + 1}')
        wait_until(lambda: self.run('sinfo', '-h', '-t', 'idle', '-o', '%D', check=False).strip() == str(NODES),
                   f'{NODES} idle nodes')

    def run(self, *words, check=True):
        done = subprocess.run(words, env=self.env, cwd=self.folder, check=False, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f'{words}: {done.stderr}')
        return done.stdout

    def submit(self, script, *words):
        """The number of a job of @script."""
        file = self.folder / 'job.sh'
        file.write_text(f'#!/bin/bash\n{script}\n')
        return self.run('sbatch', '--parsable', f'--output={self.folder}/out-%j', *words, str(file)).strip()

    def output(self, job):
        path = self.folder / f'out-{job}'
        return path.read_text() if path.exists() else ''

    def field(self, job, name):
        text = self.run('scontrol', '-o', 'show', 'job', job)
        return next((word.partition('=')[2] for word in text.split() if word.startswith(f'{name}=')), '')

    def kill_slurmd(self, node):
        process = self.processes.pop(node)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self):
        self.run('scancel', '--user=root', check=False)
        for name, process in reversed(self.processes.items()):
            process.kill()
            process.wait()
