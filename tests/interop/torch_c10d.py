"""torch_c10d.py [--as-gloo] [--ranks=N] TEST - run one of PyTorch's own tests of torch.distributed, which come with it, on the back end
"ddp". The list of those that are run, and why the others are not, is in torch_c10d.txt.

Many tests ask for the name of the back end. Those that any back end with process groups on CPUs passes run under our
name. With --as-gloo our back end takes gloo's place under its name, for tests that are gloo's alone; what they say of
gloo's events in a profile is left out, and of its sentences only what they say of ranks is asked of ours.
"""

import os
import re
import sys
import tempfile
import unittest

AS_GLOO = '--as-gloo' in sys.argv
RANKS = next((word.partition('=')[2] for word in sys.argv if word.startswith('--ranks=')), '2')
FOLDER = tempfile.TemporaryDirectory()
os.environ.setdefault('TEMP_DIR', FOLDER.name)
os.environ.update(BACKEND='gloo' if AS_GLOO else 'ddp', WORLD_SIZE=RANKS)
os.environ.setdefault('INIT_METHOD', f'file://{os.environ["TEMP_DIR"]}/meeting')
for name in ('barrier', 'test_dir', 'init_dir'):
    os.makedirs(os.path.join(os.environ['TEMP_DIR'], name), exist_ok=True)

import torch.distributed as dist
from torch.testing._internal.common_distributed import DistTestCases

import ddprun.torch  # registers the back end

for feature in ('ddp', 'subgroup'):
    DistTestCases.backend_feature[feature].add('ddp')

from torch.testing._internal.distributed import distributed_test

if AS_GLOO:
    dist.Backend._plugins['GLOO'] = dist.Backend._plugins['DDP']
    distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()


# What gloo says in errors, and what we say.
SENTENCES = {
    r'Rank (\d+) failed to pass monitoredBarrier': r'rank 0 has waited .* for rank \1 ',
    r'Ranks ([\d, ]+), (\d+) failed to pass monitoredBarrier': r'rank 0 has waited .* for ranks \1 and \2,',
    r'Rank (\d+) successfully reached monitoredBarrier.*': r'rank 0 has waited ',
    r'Rank (\d+) timed out in monitoredBarrier': r'rank \1 (has waited|noticed) ',
    r'Rank (\d+)': r'rank \1',
    r' \(Timed out\|closed\|timeout\) ': r' \(timeout\)'}


def in_our_words(pattern):
    for theirs, ours in SENTENCES.items():
        if AS_GLOO and re.fullmatch(theirs, pattern):
            return re.sub(theirs, ours.replace('\\(', '\\\\('), pattern)
    return pattern


class OwnTests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def assertRaisesRegex(self, kind, pattern, *words, **options):
        return super().assertRaisesRegex(kind, in_our_words(pattern), *words, **options)

    @property
    def init_method(self):
        return f'file://{self.file_name}'


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], '--verbose', *('OwnTests.' + name for name in sys.argv[1:] if name[0] != '-')])
