"""preempted.py METHOD FOLDER - a training that saves when it is told to, by SIGUSR1 to go on and by SIGTERM to end.

Its DataLoader has two workers, started by METHOD of multiprocessing. It takes further batches before it saves, so that
it needs them. METHOD ignore is fork with workers that ignore the signal.
"""

import itertools
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset

BATCHES_TO_SAVE = 20


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(itertools.count())


def train(method, folder):
    told = []
    for sig in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(sig, lambda sig, frame: told.append(sig))
    init = None
    if method == 'ignore':
        from ddprun.torch import ignore_stop_signals as init
    if method == 'forkserver':
        multiprocessing.set_forkserver_preload(['torch'])
    loader = iter(DataLoader(Numbers(), batch_size=8, num_workers=2, worker_init_fn=init,
                             multiprocessing_context=init and 'fork' or method))
    total = torch.zeros(())
    for saved in itertools.count():
        for _ in range(BATCHES_TO_SAVE):  # of each worker some
            total += next(loader).sum()
        os.write(1, b'trains\n')
        while not told:
            total += next(loader).sum()
        for _ in range(BATCHES_TO_SAVE):
            total += next(loader).sum()
        torch.save({'total': total}, folder / 'new')
        (folder / 'new').rename(folder / f'checkpoint.{saved}')
        os.write(1, b'saved\n')
        if told.pop(0) == signal.SIGTERM:
            return


if __name__ == '__main__':
    train(sys.argv[1], Path(sys.argv[2]))
