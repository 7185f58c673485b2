#!/usr/bin/env python3
"""test_sampler_torch.py - the sampler of libddpcomm beside PyTorch's DistributedSampler: the same items in the same
order for all datasets of up to 40 items and worlds of up to 8 ranks, and for larger ones.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless DDPRUN_INTEROP=1 makes that
a failure. $LIBDDPCOMM is the library.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from skip import need_torch

PYTHON = os.environ.get('INTEROP_PYTHON', '')

COMPARE = r'''
import ctypes, itertools, sys
from torch.utils.data.distributed import DistributedSampler

class Options(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('count', ctypes.c_uint64), ('world_size', ctypes.c_uint32),
                ('rank', ctypes.c_uint32), ('seed', ctypes.c_uint64), ('shuffle', ctypes.c_uint32),
                ('drop_last', ctypes.c_uint32)]

library = ctypes.CDLL(sys.argv[1])
library.ddp_sampler_count.restype = library.ddp_sampler_fill.restype = ctypes.c_uint64
u64 = ctypes.c_uint64

def compare(count, world, rank, seed, epochs, shuffle, drop_last):
    theirs = DistributedSampler(range(count), world, rank, shuffle, seed, drop_last)
    options = Options(ctypes.sizeof(Options), count, world, rank, seed, shuffle, drop_last)
    ours = ctypes.c_void_p()
    assert library.ddp_sampler_create(ctypes.byref(options), ctypes.byref(ours), None) == 0
    for epoch in epochs:
        theirs.set_epoch(epoch)
        library.ddp_sampler_set_epoch(ours, u64(epoch))
        expected = list(theirs)
        assert library.ddp_sampler_count(ours) == len(theirs) == len(expected)
        items = (u64 * (len(expected) + 1))()
        assert library.ddp_sampler_fill(ours, u64(0), u64(len(items)), items) == len(expected)
        assert items[:len(expected)] == expected, (count, world, rank, seed, epoch, shuffle, drop_last)
    library.ddp_sampler_destroy(ours)

both = (False, True)
checked = 0
for count, world in itertools.product(range(41), range(1, 9)):
    for rank, shuffle, drop_last in itertools.product(range(world), both, both):
        for seed in (0, 15) if shuffle else (0,):
            compare(count, world, rank, seed, (0, 1, 7), shuffle, drop_last)
            checked += 3
print(checked, 'epochs of small datasets', flush=True)
for count, world, rank, seed, epoch in (
        (623, 4, 3, 1, 0), (624, 4, 3, 2, 1), (625, 4, 3, 3, 2), (10000, 7, 6, 2**32 - 1, 1), (10000, 7, 6, 2**40, 3),
        (60000, 8, 5, 0, 4), (60000, 64, 63, 9, 100), (1281167, 16, 15, 0, 89), (1281167, 1000, 999, 42, 5)):
    for drop_last in both:
        compare(count, world, rank, seed, (epoch,), True, drop_last)
print('and larger ones')
'''


def main():
    need_torch(PYTHON)
    return subprocess.run([PYTHON, '-W', 'ignore', '-c', COMPARE, os.environ['LIBDDPCOMM']]).returncode


if __name__ == '__main__':
    sys.exit(main())
