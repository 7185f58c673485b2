"""reducer_buckets.py - buckets of a reducer beside those of PyTorch's _compute_bucket_assignment_by_size: random lists, and
the parameters of ResNet-50 and GPT-2, before and after the rebuild. One process."""

import random

import torch
from torch.distributed import _compute_bucket_assignment_by_size as assign

from ddp_library import FLOAT16, FLOAT32, FLOAT64, Communicator, Reducer

TYPES = {torch.float32: FLOAT32, torch.float64: FLOAT64, torch.float16: FLOAT16}
LIMITS = [1 << 20, 25 << 20]


def resnet50():
    """Elements of the parameters, in the order of module.parameters()."""
    sizes = [64 * 3 * 49, 64, 64]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            sizes += [width * before, width, width, width * width * 9, width, width, width * 4 * width, width * 4,
                      width * 4]
            if block == 0:
                sizes += [width * 4 * before, width * 4, width * 4]
            before = width * 4
    return sizes + [1000 * 2048, 1000]


def gpt2():
    """The small one: 12 layers, width 768, weights of the head tied."""
    wide = 768
    layer = [wide, wide, wide * 3 * wide, 3 * wide, wide * wide, wide, wide, wide, wide * 4 * wide, 4 * wide,
             4 * wide * wide, wide]
    return [50257 * wide, 1024 * wide] + layer * 12 + [wide, wide]


class Model:
    """Gradients in memory that is never written, so that it takes none."""

    def __init__(self, comm, shapes, limits, **options):
        sizes = [count * dtype.itemsize for count, dtype in shapes]
        self.memory = torch.empty(sum(sizes) + 16 * len(sizes), dtype=torch.uint8)
        address, parameters = (self.memory.data_ptr() + 15) // 16 * 16, []
        for (count, dtype), size in zip(shapes, sizes):
            parameters.append((None, address, count, 0, TYPES[dtype]))
            address += (size + 15) // 16 * 16
        self.reducer = Reducer(comm, parameters, limits, no_progress_thread=1, **options)

    def step(self, order):
        self.reducer.begin()
        for parameter in order:
            self.reducer.ready(parameter)
        self.reducer.finish()
        return self.reducer.buckets()


def theirs(shapes, limits, order=None):
    tensors = [torch.empty(count, dtype=dtype, device='meta') for count, dtype in shapes]
    if order is None:
        return list(reversed(assign(tensors, limits, [False] * len(tensors))[0]))
    return assign([tensors[i] for i in order], limits, [False] * len(tensors), order)[0]


def compare(comm, shapes, limits, order, several_types):
    model = Model(comm, shapes, limits, find_unused=1)
    assert model.step(order) == theirs(shapes, limits), (shapes, limits)
    model.reducer.close()
    model = Model(comm, shapes, limits)
    first = model.step(order)
    assert len(first) == len({dtype for _, dtype in shapes})
    mine, other = model.step(order), theirs(shapes, limits, order)
    if several_types:  # PyTorch leaves the order of buckets that stay open to a hash table
        mine, other = sorted(mine), sorted(other)
    assert mine == other, (shapes, limits, order)
    model.reducer.close()


def main():
    comm, choice = Communicator(), random.Random(7)
    for name, sizes, count in (('ResNet-50', resnet50(), 161), ('GPT-2', gpt2(), 148)):
        assert len(sizes) == count, name
        shapes = [(size, torch.float32) for size in sizes]
        compare(comm, shapes, LIMITS, list(reversed(range(count))), False)
        order = list(range(count))
        choice.shuffle(order)
        compare(comm, shapes, LIMITS, order, False)
    for _ in range(300):
        types = [torch.float32, torch.float64, torch.float16][:choice.randint(1, 3)]
        shapes = [(choice.choice([1, 7, 100, 1000, choice.randint(1, 5000)]), choice.choice(types))
                  for _ in range(choice.randint(1, 40))]
        limits = [choice.choice([1, 100, 5000, choice.randint(1, 40000)]) for _ in range(choice.randint(1, 3))]
        order = list(range(len(shapes)))
        choice.shuffle(order)
        compare(comm, shapes, limits, order, len(types) > 1)
    comm.close()
    print('equal')


main()
