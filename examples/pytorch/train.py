"""train.py - Fashion-MNIST with PyTorch's DistributedDataParallel on the back end "ddp".

    ddprun --nproc-per-node=4 python train.py                   # --backend gloo: the same on gloo

See docs/pytorch.md. The data set: apt-get install dataset-fashion-mnist.
"""

import argparse
import gzip
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ddprun.torch  # makes the name "ddp" known


def read_idx(path, offset):
    """The bytes of an IDX file behind its head."""
    return torch.frombuffer(bytearray(gzip.decompress(path.read_bytes())[offset:]), dtype=torch.uint8)


def data_set(folder, name, limit):
    labels = read_idx(folder / f'{name}-labels-idx1-ubyte.gz', 8)[:limit]
    images = read_idx(folder / f'{name}-images-idx3-ubyte.gz', 16).view(-1, 784)[:limit]
    return TensorDataset(images.float() / 255, labels.long())


def mean(value, weight):
    """Over all ranks, each with its weight."""
    sums = torch.tensor([value * weight, weight], dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def train(model, loader, optimizer):
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return mean(total / len(loader), len(loader))


@torch.no_grad()
def accuracy(model, test):
    images, labels = (tensor[dist.get_rank()::dist.get_world_size()] for tensor in test.tensors)
    right = (model(images).argmax(1) == labels).float().mean().item()
    return mean(right, len(labels))


def main():
    parser = argparse.ArgumentParser(description='Fashion-MNIST with DistributedDataParallel')
    parser.add_argument('--backend', default='ddp', help='ddp, gloo or nccl (ddp)')
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--batch', type=int, default=64, help='images per rank and step (64)')
    parser.add_argument('--data', type=Path, default=Path('/usr/share/datasets/fashion-mnist'))
    parser.add_argument('--limit', type=int, help='use only the first N images')
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    torch.manual_seed(1)
    data = data_set(options.data, 'train', options.limit)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, options.batch, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        loss = train(model, loader, optimizer)
        if dist.get_rank() == 0:
            print(f'epoch {epoch + 1}/{options.epochs}  loss {loss:.4f}', flush=True)
    right = accuracy(model, data_set(options.data, 't10k', None))
    if dist.get_rank() == 0:
        print(f'test accuracy {100 * right:.2f} %', flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
