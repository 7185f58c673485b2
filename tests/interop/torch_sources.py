"""torch_sources.py FOLDER FILE [ARGUMENT...] - run a file of PyTorch's own tests of its back end gloo, such as test_c10d_gloo.py,
on the back end "ddp", which takes gloo's place under its name. FOLDER is test/distributed of PyTorch's sources; its wheel
lacks these files. The arguments are unittest's. scripts/torch-tests runs it.

What a test makes with gloo's class is a back end of ours. Children are forked, as one that is spawned would have gloo again.
Where a test expects an error with a sentence of gloo, any error will do: ours has its own sentence, and may be a ValueError.
"""

import datetime
import os
import runpy
import sys
import unittest
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed

import ddprun.torch  # registers the back end

GLOO = dist.ProcessGroupGloo


class InGloosPlace:
    """A raw back end, which gloo's class makes of a store, a rank, the number of ranks, and options or a timeout."""
    _Options, create_device, create_default_device = GLOO._Options, GLOO.create_device, GLOO.create_default_device

    def __new__(cls, store, rank, size, options=None, timeout=None):
        timeout = timeout or (options._timeout if options is not None else datetime.timedelta(minutes=30))
        if isinstance(timeout, float):
            timeout = datetime.timedelta(seconds=timeout)
        of_store = SimpleNamespace(store=store, group_rank=rank, group_size=size, group_id='', timeout=timeout,
                                   global_ranks_in_group=[])
        return dist.Backend._plugins['DDP'].creator_fn(of_store, None)


def raises_regex(self, kind, pattern, *words, **options):
    """Under the name of assertRaisesRegex()."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return self.assertRaises((*kinds, ValueError), *words, **options)


def fork(self):
    self._start_processes(torch.multiprocessing.get_context('fork').Process)


def main(folder, file, *arguments):
    dist.Backend._plugins['GLOO'] = dist.Backend._plugins['DDP']
    dist.ProcessGroupGloo = dist.distributed_c10d.ProcessGroupGloo = torch._C._distributed_c10d.ProcessGroupGloo = InGloosPlace
    torch._C._distributed_c10d.Backend.create_device = GLOO.create_device  # tests ask for a device of the back end
    common_distributed.MultiProcessTestCase._spawn_processes = fork
    unittest.TestCase.assertRaisesRegex = raises_regex
    sys.path.insert(0, folder)
    sys.argv = [os.path.join(folder, file), *arguments]
    runpy.run_path(sys.argv[0], run_name='__main__')


if __name__ == '__main__':
    main(*sys.argv[1:])
