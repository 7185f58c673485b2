#!/usr/bin/env python3
"""test_ddprun_refusals.py - what cannot be done is refused in one sentence, before anything runs.

Each sentence names what was wrong as it was written, and what to do instead.
"""

import resource
import socket
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase

USAGE, CONFIG = 2, 78


class Refusals(DdprunCase):
    def refused(self, code, texts, *words, **options):
        with self.subTest(words, **options):
            self.assert_sentence(self.run_job(*words, **options), code, *texts)

    def test_options_that_do_not_exist(self):
        for word, near in (('--max-restart5=3', '--max-restarts'), ('--nproc-per-nod3=3', '--nproc-per-node'),
                           ('--standalonee', '--standalone'), ('--rdzvid=3', '--rdzv-id'),
                           ('--log_dri=x', '--log-dir'), ('--ridirects', '--redirects')):
            self.refused(USAGE, [f"'{word.split('=')[0]}'", near], word, 'true')
        self.refused(USAGE, ["'--zzzzzzzzzzzz'", '--help'], '--zzzzzzzzzzzz', 'true')
        self.refused(USAGE, ["'-z'", '--help'], '-z', 'true')
        for words in (['--lr', '0.1'], ['--epochs'], ['--config=x'], ['-z']):
            word = words[0].partition('=')[0]
            self.refused(USAGE, [f"there is no option '{word}'; options of the program go after it ('ddprun --help'"],
                         *words, 'train.py')
        self.refused(USAGE, ["'--no'", '--no', 'write more'], '--no', 'true')

    def test_what_other_launchers_call_otherwise(self):
        for text, *words in (('--nproc-per-node=N', '-n4'), ('use --hosts=a,b,c', '-host', 'a,b'),
                             ('inherit the whole environment', '-genv', 'NAME'), ('--nnodes=N', '-N2'),
                             ('--numa-binding=exclusive', '--bind-to', 'core'), ('--numa-binding=exclusive', '--bind_to=core'),
                             ('--nproc-per-node=N', '--ntasks=4'), ('--nproc-per-node=N', '--num_gpus', '4'),
                             ('--nnodes=N', '--num_nodes=2'), ('leave it out', '--mca', 'a', 'b')):
            self.refused(USAGE, ["there is no option '" + words[0][:2], text], *words, 'true')

    def test_process_counts(self):
        for text in ('0', '-3', '4x', '99999999999', '18446744073709551617', '', ' 2', '1e3', '0x2',
                     '4097', 'gpus', '2.0'):
            self.refused(USAGE, [f"'{text}'", '1 to 4096', 'cpu'], f'--nproc-per-node={text}', 'true')

    def test_values(self):
        for word, *texts in (
                ('--max-restarts=-1', "'-1'", '0 to'), ('--max-restarts=two', "'two'"),
                ('--shutdown-timeout=soon', "'soon'", '30'), ('--shutdown-timeout=-1', "'-1'"),
                ('--master-port=65536', "'65536'", '65535'), ('--master-port=', "''"),
                ('--redirects=4', "'4'", '3 (both)'), ('--tee=0:3,1', "'1'", 'LOCAL_RANK'),
                ('--tee=0:9', "'9'", '3 (both)'), ('--redirects=1:3', "'1'"),
                ('--redirects=x:3', "'x'"), ('--local-ranks-filter=1', "'1'"),
                ('--signals-to-handle=SIGFOO', "'SIGFOO'", 'SIGTERM'),
                ('--signals-to-handle=SIGKILL', "'SIGKILL'", 'leave it out'),
                ('--forward-signals=USR1,nope', "'nope'"),
                ('--nnodes=3:1', "'3:1'"),
                ('--nnodes=0', "'0'"), ('--nnodes=:', "':'"),
                ('--rdzv-backend=etcd-v2', "'etcd-v2'", 'c10d'),
                ('--rdzv-endpoint=localhost:99999', '99999'),
                ('--rdzv-conf=join_timeout=5,', "''", 'KEY=VALUE', 'no comma'),
                ('--rdzv-conf=keep_alive_interval=7200', "'keep_alive_interval' (7200 s)", '3600000 ms'),
                ('--rdzv-conf=store_type=file', "'store_type'", "'file'"),
                ('--start-method=fork', "'fork'", 'spawn'),
                ('--event-log-handler=wandb', "'wandb'", 'console or null'),
                ('--standalone=1', "'1'", '--standalone')):
            self.refused(USAGE, [word.split('=')[0], *texts], word, 'true')

    def test_a_value_that_is_missing(self):
        for word in ('--role', '-r', '--nproc-per-node'):
            self.refused(USAGE, [word, 'needs a value'], word)

    def test_what_torchrun_has_and_this_has_not(self):
        for word in ('--run-path', '--logs-specs=x'):
            self.refused(USAGE, [word.split('=')[0]], word, 'true')

    def test_malformed_environment_defaults(self):
        for name, value in (('PET_NPROC_PER_NODE', 'four'), ('PET_STANDALONE', 'maybe'),
                            ('PET_STANDALONE', ''), ('PET_MAX_RESTARTS', 'x'), ('PET_MODULE', '2'),
                            ('PET_TEE', '5'), ('PET_NNODES', '3:1'), ('PET_SHUTDOWN_TIMEOUT', 'x'),
                            ('TORCH_ELASTIC_SHUTDOWN_TIMEOUT', 'x'), ('PET_SIGNALS_TO_HANDLE', 'x')):
            self.refused(USAGE, [f"'{value}'"], 'true', env={name: value})

    def test_programs(self):
        self.write('plain.txt', 'text\n', 0o644)
        (self.folder / 'directory.py').mkdir()
        for words, *texts in (
                (['no-such-program'], "'no-such-program'", './no-such-program'),
                (['./missing'], "'./missing'", 'does not exist'),
                (['./plain.txt'], "'./plain.txt'", 'chmod +x'),
                ([str(self.tmp)], f"'{self.tmp}'", 'directory'),
                (['directory.py'], "'directory.py'", 'directory'),
                (['missing.py'], "'missing.py'"),
                (['/dev/null'], "'/dev/null'"),
                (['plain.txt/x'], "'plain.txt/x'"),
                ([''], "''")):
            self.refused(CONFIG, texts, *words)
        self.refused(CONFIG, ["'no-python'"], '-m', 'x', env={'PYTHON_EXEC': 'no-python'})

    def test_programs_that_the_kernel_refuses(self):
        self.write('garbage', 'no binary\n')
        self.write('interpreter', '#!/no/such/interpreter\n')
        self.refused(CONFIG, ['./garbage', '#!'], './garbage')
        self.refused(CONFIG, ['./interpreter', 'interpreter in its first line'], './interpreter')
        self.refused(CONFIG, ['./garbage'], '--nproc-per-node=8', './garbage')

    def test_log_directories(self):
        self.write('file', '')
        self.refused(CONFIG, ["'file/logs'"], '--log-dir=file/logs', 'true')
        self.refused(CONFIG, ["'/proc/logs'"], '--log-dir=/proc/logs', 'true')
        self.refused(CONFIG, ["'a/b'", '--rdzv-id'], f'--log-dir={self.folder}/l', '--rdzv-id=a/b', 'true')
        self.refused(CONFIG, ["'/nowhere'"], 'true', env={'TMPDIR': '/nowhere'})

    def with_files(self, soft, hard, *words):
        return self.run_job(*words, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (soft, hard)))

    def test_a_low_limit_on_open_files(self):
        """Either it is said, or it is enough for the largest use of so many workers."""
        script = 'echo "$RANK $(ulimit -Sn) $(ulimit -Hn)"'
        words = ['--nproc-per-node=3', '--no-prefix', '--tee=3', f'--log-dir={self.folder}/logs',
                 '--event-log=events', 'sh', '-c', script]
        codes = []
        for hard in range(5, 80):
            job = self.with_files(min(hard, 16), hard, *words)
            codes.append(job.code)
            if job.code != 0:
                self.assert_sentence(job, CONFIG, 'open')
                self.assertNotIn('guard', job.err)
                continue
            self.assertEqual(sorted(job.out.splitlines()), [f'{rank} 16 {hard}' for rank in range(3)])
        self.assertEqual(codes, sorted(codes, reverse=True))
        self.assertEqual({codes[0], codes[-1]}, {CONFIG, 0})
        self.assertIn('open', self.with_files(6, 6, 'true').err)
        self.assertIn('start fewer workers', self.with_files(99, 99, '--nproc-per-node=64', 'true').err)

    def test_ports_in_use(self):
        with socket.socket() as listener:
            listener.bind(('127.0.0.1', 0))
            listener.listen()
            port = listener.getsockname()[1]
            self.refused(CONFIG, [str(port), '--master-port'], f'--master-port={port}', 'true')
            self.refused(CONFIG, [f'127.0.0.1:{port}', '--rdzv-endpoint'], '--rdzv-backend=c10d',
                         f'--rdzv-endpoint=localhost:{port}', 'true')
            self.refused(CONFIG, [str(port), '--rdzv-endpoint'], f'--rdzv-endpoint=localhost:{port}', 'true')
            self.refused(CONFIG, [str(port), '--rdzv-endpoint'], '--rdzv-backend=c10d', 'true',
                         env={'PET_RDZV_ENDPOINT': f'127.0.0.1:{port}'})

    def test_several_nodes_without_what_they_need(self):
        self.refused(USAGE, ['--rdzv-endpoint=HOST'], '--nnodes=2', 'true')
        self.refused(USAGE, ['--standalone', '--nnodes'], '--standalone', '--nnodes=2', 'true')
        self.refused(USAGE, ['port 0'], '--nnodes=2', '--rdzv-endpoint=localhost:0', 'true')
        self.refused(USAGE, ['a,,b', 'empty'], '--nnodes=2', '--rdzv-endpoint=a,,b', 'true')
        self.refused(USAGE, ['several addresses', 'is_host'], '--nnodes=2', '--rdzv-endpoint=a,b',
                     '--rdzv-conf=is_host=true', 'true')
        self.refused(USAGE, ["'a b'", '--rdzv-id'], '--nnodes=2', '--rdzv-endpoint=localhost', '--rdzv-id=a b', 'true')

    def test_hostile_words(self):
        for word in ('--' + 'x' * 100000, '--role\xff', '--=', '--%n%s', '-\x01', '---'):
            job = self.run_job(word, 'true')
            self.assert_sentence(job, USAGE)
        job = self.run_job('--nproc-per-node=' + '9' * 100000, 'true')
        self.assert_sentence(job, USAGE, '99999')


if __name__ == '__main__':
    unittest.main()
