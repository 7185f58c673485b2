#!/usr/bin/env python3
"""test_ddprun_gpus.py - what ddprun reads from NVML: the number of GPUs, their users and faults, and
whether their memory is free before a restart. NVML is the one of tests/nvml."""

import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, DdprunCase, in_order, wait_until

NVML = os.environ.get('DDPRUN_NVML', str(ROOT / 'build' / 'tests' / 'nvml' / 'libnvidia-ml.so.1'))
BARE_NVML = os.environ.get('DDPRUN_BARE_NVML',
                           str(ROOT / 'build' / 'tests' / 'nvml' / 'libbare_nvml.so'))
UUIDS = [f'GPU-{n}a56a4bc-d184-a047-2620-be19f0f2a00{n}' for n in range(8)]
GIB = 1 << 30
XID, DOUBLE, SINGLE = 8, 2, 1


class GpuCase(DdprunCase):
    """Four GPUs; a job finds them with env=self.gpus."""

    def setUp(self):
        super().setUp()
        self.nvml = self.folder / 'nvml'
        self.nvml.mkdir()
        self.say('gpus', *(f'{uuid} NVIDIA T9' for uuid in UUIDS[:4]))
        self.say('calls')
        self.use_library(NVML)

    def use_library(self, path):
        lib = self.folder / 'lib'
        lib.mkdir(exist_ok=True)
        link = lib / 'libnvidia-ml.so.1'
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        self.gpus = {'LD_LIBRARY_PATH': lib, 'DDP_TEST_NVML': self.nvml}

    def say(self, name, *lines):
        (self.nvml / name).write_text(''.join(f'{line}\n' for line in lines))

    def add(self, name, line):
        with open(self.nvml / name, 'a') as file:
            file.write(f'{line}\n')

    def calls(self, function):
        return (self.nvml / 'calls').read_text().split().count(function)

    def await_calls(self, function, count=1):
        wait_until(lambda: self.calls(function) >= count, f'{count} calls of {function}')

    def await_look(self):
        """Until all four GPUs were looked at since: the look that is under way may have begun before."""
        self.await_calls('nvmlDeviceGetMemoryInfo_v2', self.calls('nvmlDeviceGetMemoryInfo_v2') + 2 * 4)

    def run_on_gpus(self, *words, **env):
        return self.run_job(*words, env=dict(self.gpus, **env))

    def start_on_gpus(self, *words, **env):
        return self.start(*words, env=dict(self.gpus, **env))


# A worker that takes 1 GiB of its GPU ($$ is one '$' to ddprun), and goes on when its file is there.
TAKE = 'echo "$LOCAL_RANK $$$$ 1073741824" >> $DDP_TEST_NVML/processes; '
UNTIL = 'while [ ! -e go$RANK ]; do sleep 0.01; done; '


class Count(GpuCase):
    def workers(self, what='gpu', **env):
        job = self.run_on_gpus(f'--nproc-per-node={what}', '--no-prefix', 'sh', '-c',
                               'echo $WORLD_SIZE', **env)
        self.assertEqual(job.code, 0, job.err)
        return len(job.out.split())

    def test_is_that_of_nvml(self):
        self.assertEqual(self.workers(), 4)
        self.assertEqual(self.workers('auto'), 4)

    def test_obeys_the_list_of_visible_devices(self):
        for visible, count in (('0', 1), ('3,1', 2), ('0,9,1', 1), ('GPU-2a,GPU-3', 2),
                               (f'{UUIDS[1]},0', 1)):
            self.assertEqual(self.workers(CUDA_VISIBLE_DEVICES=visible), count, visible)

    def test_of_instances_is_one(self):
        self.say('instances', '1 MIG-1', '1 MIG-2')
        self.assertEqual(self.workers(), 1)
        self.assertEqual(self.workers(CUDA_VISIBLE_DEVICES='0,2'), 2)
        self.assertEqual(self.workers(CUDA_VISIBLE_DEVICES='MIG-2,MIG-1'), 1)

    def test_needs_no_more_than_an_old_library_has(self):
        self.use_library(BARE_NVML)
        self.assertEqual(self.workers(), 4)

    def refused(self, *texts, what='gpu', env=None):
        job = self.run_job(f'--nproc-per-node={what}', 'true', env=env or self.gpus)
        self.assert_sentence(job, 78, '--nproc-per-node (or PET_NPROC_PER_NODE): ', *texts)
        return job

    def test_without_nvml_is_refused(self):
        self.refused("'gpu' needs an NVIDIA GPU", "; 'cpu' starts", env={'LD_LIBRARY_PATH': ''})

    def test_without_gpus_is_refused(self):
        self.say('gpus')
        self.refused("'gpu' needs an NVIDIA GPU", 'NVML lists no GPU')

    def test_with_all_hidden_is_refused(self):
        self.refused('4 GPUs', "CUDA_VISIBLE_DEVICES=''",
                     env=dict(self.gpus, CUDA_VISIBLE_DEVICES=''))

    def test_without_a_driver_is_that_of_cpus_for_auto(self):
        self.say('results', 'nvmlInit_v2 9')
        self.refused('no driver is loaded')
        self.assertEqual(self.workers('auto'), len(os.sched_getaffinity(0)))

    def test_of_a_broken_driver_is_never_guessed(self):
        self.say('results', 'nvmlInit_v2 18')
        for what in ('gpu', 'auto'):
            self.refused('An error of the test (18)', 'reboot', what=what)
        self.say('results', 'nvmlDeviceGetCount_v2 999')
        self.refused('error 999', 'nvidia-smi', what='auto')


class Start(GpuCase):
    def test_does_not_wait_for_nvml(self):
        self.say('results', 'nvmlInit_v2 hang')
        job = self.run_on_gpus('sh', '-c', 'exit 3')
        self.assertEqual(job.code, 3)

    def test_again_does_not_wait_for_one_that_hangs(self):
        self.say('results', 'nvmlDeviceGetCount_v2 hang')
        job = self.run_on_gpus('--max-restarts=2', '--crash-loop=0', 'sh', '-c', 'exit 3')
        self.assertEqual(job.code, 3)

    def test_is_the_same_with_a_broken_one(self):
        self.say('results', 'nvmlInit_v2 999')
        job = self.start_on_gpus('sh', '-c', UNTIL + 'exit 3')
        self.await_calls('nvmlInit_v2')
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 3)
        self.assertIn('the GPUs were not watched: NVML: it does not start', job.err)

    def test_and_end_leave_no_trace_when_all_is_well(self):
        job = self.start_on_gpus('--nproc-per-node=2', 'sh', '-c', TAKE + UNTIL)
        self.await_calls('nvmlEventSetWait_v2')
        for rank in (0, 1):
            (self.folder / f'go{rank}').touch()
        self.assertEqual((job.wait(), job.out, job.err), (0, '', ''))


class Report(GpuCase):
    def fail(self, *words, before=lambda: None, script=TAKE + UNTIL + 'exit 5', looks=1, **env):
        """Rank 1 of two fails once both have been seen on their GPUs."""
        job = self.start_on_gpus('--nproc-per-node=2', *words, 'sh', '-c', script, **env)
        self.await_calls('nvmlEventSetWait_v2')
        if TAKE in script:
            wait_until(lambda: (self.nvml / 'processes').exists() and
                       (self.nvml / 'processes').read_text().count('\n') == 2, 'both workers')
        if looks:
            self.await_look()
        before()
        (self.folder / 'go1').touch()
        self.assertEqual(job.wait(), 5, job.err)
        return job.err

    def test_names_the_gpu_and_what_was_in_use(self):
        err = self.fail()
        self.assertRegex(err, r'rank 1 failed first: .*\n  its GPU: GPU 1 \(NVIDIA T9, GPU-1a56a4bc\), '
                              r'1\.0 GiB in use \d.* before\n')

    def test_finds_the_worker_behind_a_wrapper(self):
        inner = TAKE + UNTIL + 'exit 5'
        err = self.fail(script=f"sh -c '{inner}'; exit 5")
        self.assertIn('its GPU: GPU 1 (NVIDIA T9, GPU-1a56a4bc), 1.0 GiB in use', err)

    def test_has_nothing_of_an_earlier_generation(self):
        job = self.start_on_gpus('--max-restarts=1', '--gpu-memory-timeout=0', 'sh', '-c',
                                 '[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 6; ' + TAKE + UNTIL + 'exit 5')
        self.await_calls('nvmlEventSetWait_v2')
        wait_until((self.nvml / 'processes').exists, 'the worker')
        self.await_look()
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 6, job.err)
        first, second = job.err.split('failed first: exit code 6')
        self.assertIn('1.0 GiB in use', first)
        self.assertIn('by its local rank; it was not seen there', second)

    def test_falls_back_to_the_local_rank(self):
        err = self.fail(script=UNTIL + 'exit 5', CUDA_VISIBLE_DEVICES='3,2')
        self.assertIn('its GPU: GPU 2 (NVIDIA T9, GPU-2a56a4bc), by its local rank', err)

    def test_says_that_the_hardware_was_the_cause(self):
        job = self.start_on_gpus('--nproc-per-node=2', 'sh', '-c', TAKE + UNTIL + 'exit 5')
        self.await_calls('nvmlEventSetWait_v2')
        self.add('events', f'1 {XID} 79')
        job.read_until('ddprun: GPU 1 (NVIDIA T9, GPU-1a56a4bc): Xid 79 (the GPU has fallen off')
        (self.folder / 'go1').touch()
        self.assertEqual(job.wait(), 5)
        self.assertRegex(job.err, r'  Xid 79 \(the GPU has fallen off the bus\) on its GPU 1, '
                                  r"[0-9.]+ m?s before: the hardware's fault, not the program's; reboot")

    def fault(self, *events):
        def tell():
            seen = self.calls('nvmlEventSetWait_v2')
            for event in events:
                self.add('events', event)
            self.await_calls('nvmlEventSetWait_v2', seen + len(events))
        return self.fail(before=tell, looks=0)

    def test_says_that_the_program_was(self):
        err = self.fault(f'1 {XID} 31', f'1 {XID} 45')
        in_order(self, err, 'Xid 31 (a kernel used an address', 'on its GPU 1',
                 "the program's own fault, not the GPU's", 'Xid 45 (', 'it follows from something')
        self.assertNotRegex(err, r'(?m)^ddprun: GPU')

    def test_tells_faults_of_others_apart_and_counts(self):
        err = self.fault(f'2 {DOUBLE} 0', f'1 {SINGLE} 0', f'1 {SINGLE} 0')
        self.assertIn('ECC: double-bit memory error, which cannot be corrected on GPU 2, which is not '
                      'its own', err)
        self.assertIn('ECC: single-bit memory error, which was corrected, 2 times on its GPU 1', err)

    def test_of_an_old_library_is_as_without(self):
        self.use_library(BARE_NVML)
        job = self.start_on_gpus('sh', '-c', UNTIL + 'exit 5')
        self.await_calls('nvmlDeviceGetUUID', 4)
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 5)
        self.assertIn('rank 0 failed first: exit code 5', job.err)


# The first attempt ends with 5 and leaves memory behind; the second one says so, and is done.
LEAVE = ('if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then echo again; exit 0; fi; '
         'echo "0 $$$$ 13207024435" >> $DDP_TEST_NVML/kept; ' + UNTIL + 'exit 5')


class Memory(GpuCase):
    def leave(self, *words, script=LEAVE):
        job = self.start_on_gpus('--max-restarts=1', *words, 'sh', '-c', script)
        self.await_calls('nvmlEventSetWait_v2')
        wait_until(lambda: (self.nvml / 'kept').exists() and (self.nvml / 'kept').read_text(),
                   'the worker')
        return job

    def end_worker(self):
        looked = self.calls('nvmlDeviceGetMemoryInfo_v2')
        (self.folder / 'go0').touch()
        self.await_calls('nvmlDeviceGetMemoryInfo_v2', looked + 3)

    def test_is_waited_for(self):
        job = self.leave('--gpu-memory-timeout=1h')
        self.end_worker()
        self.assertNotIn('again', job.out)
        self.say('kept')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('again', job.out)
        self.assertNotIn('still has', job.err)

    def test_that_does_not_come_back_is_named(self):
        job = self.leave('--gpu-memory-timeout=200ms')
        pid = (self.nvml / 'kept').read_text().split()[1]
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn(f'ddprun: GPU 0 (NVIDIA T9, GPU-0a56a4bc) still has 12.3 GiB of pid {pid}, a '
                      'worker of ours that has ended', job.err)

    def stranger(self):
        process = subprocess.Popen(['sleep', '1000'])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.say('processes', f'0 {process.pid} {2 * GIB}')
        return process.pid

    def test_of_strangers_is_named(self):
        pid = self.stranger()
        job = self.leave('--gpu-memory-timeout=200ms')
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn(f'still has 2.0 GiB of pid {pid} (sleep 1000), not one of ours', job.err)

    def test_of_strangers_is_not_waited_for(self):
        self.stranger()
        job = self.leave('--gpu-memory-timeout=1h', script=LEAVE.replace('"0 ', '"9 '))
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertNotIn('still has', job.err)

    def test_of_nobody_is_said(self):
        job = self.leave('--gpu-memory-timeout=200ms')
        self.await_look()
        self.add('memory', f'0 {3 * GIB}')
        self.say('kept')
        self.say('coming')
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('GPU 0 (NVIDIA T9, GPU-0a56a4bc) has 3.0 GiB more in use than before the workers',
                      job.err)

    def test_of_nobody_is_not_that_of_a_process_which_came_at_the_first_look(self):
        self.say('coming', f'0 {os.getpid()} {12 * GIB}')
        self.test_of_nobody_is_said()

    def test_is_not_waited_for_at_zero(self):
        job = self.leave('--gpu-memory-timeout=0')
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertNotIn('still has', job.err)

    def test_does_not_hold_up_a_signal(self):
        job = self.leave('--gpu-memory-timeout=1h')
        self.end_worker()
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 130, job.err)

    def test_of_a_driver_that_hangs_is_not_known(self):
        job = self.leave('--gpu-memory-timeout=300ms')
        self.say('results', 'nvmlDeviceGetMemoryInfo_v2 hang')
        (self.folder / 'go0').touch()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('NVML has not answered for 0.8 s, so it is not known whether', job.err)


if __name__ == '__main__':
    unittest.main()
