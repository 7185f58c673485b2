#!/usr/bin/env python3
"""test_loss_scaler_torch.py - the loss scaler of libddpcomm beside PyTorch's torch.amp.GradScaler, which trains a
real parameter: after every step of a recorded sequence of overflows the same scale, the same number of good steps,
and the same decision whether the optimizer steps; also after both were saved and loaded in between.

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
import ctypes, random, struct, sys
import torch

class Scaler(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('scale', ctypes.c_float), ('min_scale', ctypes.c_float),
                ('max_scale', ctypes.c_float), ('is_static', ctypes.c_uint32), ('growth_factor', ctypes.c_double),
                ('backoff_factor', ctypes.c_double), ('growth_interval', ctypes.c_uint64),
                ('good_steps', ctypes.c_uint64)]

library = ctypes.CDLL(sys.argv[1])
library.ddp_loss_scaler_inverse.restype = ctypes.c_float
TORCH, STATE = 0, 56

def new_scaler():
    scaler = Scaler(size=ctypes.sizeof(Scaler))
    assert library.ddp_loss_scaler_init(ctypes.byref(scaler), TORCH, None) == 0
    return scaler

class Counting(torch.optim.SGD):
    steps = 0
    def step(self, *arguments, **options):
        self.steps += 1
        return super().step(*arguments, **options)

class Pair:
    """Both scalers, with the same settings."""
    def __init__(self, **settings):
        self.ours = new_scaler()
        names = {'init_scale': 'scale'}
        for name, value in settings.items():
            setattr(self.ours, names.get(name, name), value)
        assert library.ddp_loss_scaler_check(ctypes.byref(self.ours), None) == 0
        self.settings = settings
        self.theirs = torch.amp.GradScaler('cpu', **settings)
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.optimizer = Counting([self.weight], lr=0.0)

    def step(self, overflow):
        """An overflow is a gradient that is inf or NaN when it has been scaled."""
        self.optimizer.zero_grad()
        loss = (self.weight * torch.tensor([0.0, 1e-30, 0.0])).sum()
        self.theirs.scale(loss).backward()
        if overflow is not None:
            self.weight.grad[1] = overflow
        found = int(not torch.isfinite(self.weight.grad).all())
        before = self.optimizer.steps
        unscale = library.ddp_loss_scaler_inverse(ctypes.byref(self.ours))
        scaled = self.weight.grad.clone()
        self.theirs.unscale_(self.optimizer)
        if not found:
            expected, grad = scaled * torch.tensor(unscale), self.weight.grad
            assert ((expected == grad) | (expected.isnan() & grad.isnan())).all(), (scaled, unscale, grad)
        self.theirs.step(self.optimizer)
        self.theirs.update()
        stepped = self.optimizer.steps - before
        assert library.ddp_loss_scaler_update(ctypes.byref(self.ours), found) == stepped, 'decision'
        return found

    def same(self):
        state = self.theirs.state_dict()
        return (struct.pack('f', state['scale']) == struct.pack('f', self.ours.scale) and
                state['_growth_tracker'] == self.ours.good_steps)

    def save_and_load(self):
        state = ctypes.create_string_buffer(STATE)
        library.ddp_loss_scaler_save(ctypes.byref(self.ours), state)
        self.ours = new_scaler()
        assert library.ddp_loss_scaler_load(ctypes.byref(self.ours), state, STATE, None) == 0
        theirs = self.theirs.state_dict()
        self.theirs = torch.amp.GradScaler('cpu')
        self.theirs.load_state_dict(theirs)

def run(name, steps, overflow_of, **settings):
    pair, overflows = Pair(**settings), 0
    for step in range(steps):
        overflows += pair.step(overflow_of(step))
        assert pair.same(), (name, step, pair.ours.scale, pair.ours.good_steps, pair.theirs.state_dict())
        if step % 97 == 96:
            pair.save_and_load()
    print(f'{name}: {steps} steps, {overflows} overflows, scale {pair.ours.scale:g}', flush=True)

INF, NAN = float('inf'), float('nan')
pick = random.Random(15)
never = lambda step: None
# A training as it goes: overflows at the start, then after each growth.
START = {0, 1, 2, 3, 7, 8, 2009, 4100, 4101, 6500}

run('defaults', 6600, lambda step: INF if step in START else None)
run('grows until float32 ends', 200, never, init_scale=2.0**120, growth_interval=3)
run('a factor that float32 rounds', 400, lambda step: NAN if step % 29 == 5 else None, growth_factor=1.1,
    backoff_factor=0.3, growth_interval=4)
run('falls below 1', 40, lambda step: -INF, init_scale=8.0)
run('no growth in reach', 300, lambda step: INF if step % 10 == 9 else None, growth_interval=10)
run('growth at once', 300, lambda step: INF if step % 2 else None, growth_interval=1)
for number in range(40):
    rate = pick.choice((0.01, 0.05, 0.2, 0.5))
    run(f'random {number}', 150, lambda step: pick.choice((INF, -INF, NAN)) if pick.random() < rate else None,
        init_scale=2.0 ** pick.randint(-20, 100), growth_interval=pick.randint(1, 12),
        growth_factor=pick.choice((2.0, 1.5, 3.7)), backoff_factor=pick.choice((0.5, 0.25, 0.9)))
'''


def main():
    need_torch(PYTHON)
    return subprocess.run([PYTHON, '-W', 'ignore', '-c', COMPARE, os.environ['LIBDDPCOMM']]).returncode


if __name__ == '__main__':
    sys.exit(main())
