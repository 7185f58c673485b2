#!/usr/bin/env python3
"""test_kubernetes.py - what 'ddpctl template kubernetes' prints, against the schemas of Kubernetes that a package of
PyPI carries; and ddprun as a container runs it: as the first process, in a pod of an indexed job. Skipped (77) where
scripts/setup interop has not installed that package, unless DDPRUN_INTEROP=1 demands it.
"""

import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase
from nodes import may_unshare
from skip import skip_program

PYTHON = os.environ.get('INTEROP_PYTHON', sys.executable)
DDPCTL = os.environ['DDPCTL']

CHECK = '''
import sys, yaml, kubernetes_validate as kubernetes
version = kubernetes.latest_version()
for document in yaml.safe_load_all(sys.stdin):
    if document['kind'] == 'JobSet': # no part of Kubernetes itself, but the spec of its jobs is
        for job in document['spec']['replicatedJobs']:
            kubernetes.validate({'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': job['name']},
                                 'spec': job['template']['spec']}, version, strict=True)
    else:
        kubernetes.validate(document, version, strict=True)
    print(document['kind'])
'''

# In a user's words, as a pod has it: names in /etc/hosts, and the index of the pod.
POD = r'''
hostname "$0"
hosts=$(mktemp) && printf '127.0.0.1 localhost\n' >"$hosts"
for i in 0 1; do printf '127.0.0.%s train-%s.train.ns.svc.cluster.local train-%s\n' $((i + 1)) $i $i >>"$hosts"; done
mount --bind "$hosts" /etc/hosts && rm "$hosts"
exec "$@"
'''


class Template(DdprunCase):
    def template(self, *words):
        return subprocess.run([DDPCTL, 'template', *words], capture_output=True, text=True, check=False)

    def test_manifests_are_valid(self):
        for words, kinds in (([], ['Service', 'Job']), (['--kind=jobset'], ['JobSet']),
                             (['--kind=ddprund'], ['Service', 'Deployment']),
                             (['--replicate', '--nnodes=3'], ['Service', 'Job']),
                             (['--replicate', '--nnodes=4', '--kind=jobset'], ['JobSet']),
                             (['--name=a-1', '--image=reg.io:5000/x/y@sha256:ab', '--nnodes=4', '--nproc-per-node=8',
                               '--gpus=8', '--', '--max-restarts=3', 'train.py', '--text', 'a "b" \\ \n\u00e9'],
                              ['Service', 'Job'])):
            text = self.template('kubernetes', *words)
            self.assertEqual((text.returncode, text.stderr), (0, ''))
            checked = subprocess.run([PYTHON, '-c', CHECK], input=text.stdout, capture_output=True, text=True, check=False)
            self.assertEqual(checked.stdout.split(), kinds, checked.stderr)

    def test_what_it_refuses(self):
        for words, text in (([], 'what for?'), (['kubernetes', '--name=A'], "'A'"), (['kubernetes', '--name=-'], "'-'"),
                            (['kubernetes', '--image=a b'], "'a b'"), (['kubernetes', '--nnodes=0'], "'0'"),
                            (['kubernetes', '--replicate'], '--nnodes=3'),
                            (['kubernetes', '--replicate', '--nnodes=3', '--kind=ddprund'], '--kind=job'),
                            (['kubernetes', '--kind=pod'], "'pod'"), (['slurm'], 'what for?')):
            done = self.template(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ''))
            self.assertIn(text, done.stderr)


@unittest.skipUnless(may_unshare('--net', '--pid', '--fork', '--uts', '--mount'),
                     'namespaces may not be made here: that takes root')
class Pod(DdprunCase):
    def network(self):
        """A process in a network of its own, whose port of the store no other test has."""
        holder = self.start('--net', 'sh', '-c', 'ip link set lo up && echo up && exec sleep 1000',
                            program='/usr/bin/unshare')
        holder.read_until('up')
        return holder

    def pod(self, network, index, *words):
        """The pod of that index: its first process is what @words are."""
        return self.start(f'--net=/proc/{network.pid}/ns/net', 'unshare', '--fork', '--pid', '--uts', '--mount',
                          '--mount-proc', '--kill-child', 'sh', '-ec', POD, f'train-{index}', *words,
                          program='/usr/bin/nsenter',
                          env={'JOB_COMPLETION_INDEX': index, 'PET_NNODES': 2, 'XDG_CONFIG_HOME': self.folder / 'config'})

    def test_pods_of_an_indexed_job_meet(self):
        network = self.network()
        pods = [self.pod(network, index, DDPRUN, '--no-prefix', '--lease=10m', 'sh', '-c',
                         'echo $RANK of $WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RUN_ID') for index in (1, 0)]
        for pod in pods:
            self.assertEqual(pod.wait(), 0, pod.err)
        network.signal(signal.SIGKILL)
        network.wait()
        self.assertEqual(sorted(pod.out for pod in pods),
                         [f'{rank} of 2 train-0.train.ns.svc.cluster.local k8s-train\n' for rank in (0, 1)])

    def test_the_first_process_reaps(self):
        """Orphans of the worker become its children, and no zombie is left of them."""
        script = ('for i in 1 2 3; do sh -c "sleep 0 & exec true" & done; wait; '
                  'until ! grep -l "State:.Z" /proc/[0-9]*/status 2>/dev/null; do :; done; echo clean $(cat /proc/1/comm)')
        job = self.start('--fork', '--pid', '--mount-proc', '--kill-child', DDPRUN, '--no-prefix', 'sh', '-c', script,
                         program='/usr/bin/unshare')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('clean ddprun\n', job.out)


def missing():
    found = subprocess.run([PYTHON, '-c', 'import kubernetes_validate, yaml'], capture_output=True, check=False)
    return None if found.returncode == 0 else ("the Python package kubernetes-validate is missing; 'scripts/setup "
                                               "interop' installs it")


if __name__ == '__main__':
    why = missing()
    if why is not None:
        skip_program(why)
    unittest.main()
