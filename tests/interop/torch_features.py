"""torch_features.py FORM... - what is built on torch.distributed: each case trains, or moves, something and returns tensors,
which must be the same on each form of the back end "ddp" as on gloo.

Run by test_torch_backend.py under ddprun, in one job, as starting a rank takes long.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch_version import VERSION

STEPS = 6
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Branches(nn.Module):
    """A network of which a step uses one branch."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.branches = nn.ModuleList([nn.Linear(32, 4), nn.Linear(32, 4)])
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x, branch=0):
        return self.branches[branch](torch.relu(self.norm(self.first(x))))


def batch(step, rank, rows=8):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, 16, generator=generator), torch.randn(rows, 4, generator=generator)


def loss_of(model, step, rank, *words):
    x, y = batch(step, rank)
    return ((model(x, *words) - y) ** 2).mean()


def train(model, optimizer, losses, steps=STEPS, branch=lambda step: 0):
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step, dist.get_rank(), branch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def ddp(branch=lambda step: 0, hook=None, state=None, **options):
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Branches(), **options)
    if hook is not None:
        model.register_comm_hook(state, hook)
    losses = train(model, torch.optim.SGD(model.parameters(), lr=0.1), [], branch=branch)
    return [torch.stack(losses), *(p.detach() for p in model.parameters())]


@case
def ddp_plain():
    return ddp(find_unused_parameters=True)


@case
def ddp_unused():
    return ddp(branch=lambda step: (step + dist.get_rank()) % 2, find_unused_parameters=True)


@case
def ddp_static_graph():
    return ddp(static_graph=True)


@case
def ddp_views():
    return ddp(find_unused_parameters=True, gradient_as_bucket_view=True, bucket_cap_mb=0.001)


@case
def ddp_no_sync():
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        with model.no_sync():
            loss_of(model, 2 * step, dist.get_rank()).backward()
        loss_of(model, 2 * step + 1, dist.get_rank()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


@case
def ddp_fp16_hook():
    return ddp(hook=default_hooks.fp16_compress_hook, static_graph=True)


@case
def ddp_power_sgd_hook():
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    return ddp(hook=powerSGD_hook.powerSGD_hook, state=state, static_graph=True)


@case
def ddp_join():
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for step in range(3 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            loss_of(model, step, dist.get_rank()).backward()
            optimizer.step()
    return [p.detach() for p in model.parameters()]


@case
def zero_redundancy():
    torch.manual_seed(0)
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    return [torch.stack(train(model, optimizer, [])), *(p.detach() for p in model.parameters())]


@case
def fsdp2():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    mesh = init_device_mesh('cpu', (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step, dist.get_rank())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(p.full_tensor().detach() for p in model.parameters())]


@case
def dtensor():
    mesh = init_device_mesh('cpu', (dist.get_world_size(),))
    whole = torch.arange(48.0).reshape(8, 6)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    columns = sharded.redistribute(mesh, [Shard(1)])
    product = (columns @ distribute_tensor(whole.t().contiguous(), mesh, [Replicate()])).full_tensor()
    partial = DTensor.from_local(whole * (dist.get_rank() + 1), mesh, [torch.distributed.tensor.Partial()])
    return [columns.full_tensor(), product, partial.full_tensor()]


@case
def tensor_parallel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    mesh = init_device_mesh('cpu', (dist.get_world_size(),))
    parallelize_module(model, mesh, {'0': ColwiseParallel(), '2': RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step, 0)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(p.full_tensor().detach() for p in model.parameters())]


@case
def pipelining():
    torch.manual_seed(0)
    rank, size = dist.get_rank(), dist.get_world_size()
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(size)]
    stage = PipelineStage(layers[rank], rank, size, torch.device('cpu'))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda y, target: ((y - target) ** 2).mean())
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(7))
    losses = []
    if rank == 0:
        schedule.step(x)
    elif rank == size - 1:
        schedule.step(target=x, losses=losses)
    else:
        schedule.step()
    gradients = [layer.weight.grad if layer.weight.grad is not None else torch.zeros(16, 16)
                 for layer in (whole[0] for whole in layers)]
    for gradient in gradients:
        dist.all_reduce(gradient)
    return gradients


@case
def checkpoints():
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder)
        return save_and_load(folder[0])


def save_and_load(folder):
    mesh = init_device_mesh('cpu', (dist.get_world_size(),))
    saved = {'sharded': distribute_tensor(torch.arange(40.0).reshape(10, 4), mesh, [Shard(0)]), 'step': torch.tensor(7)}
    checkpoint.save(saved, checkpoint_id=folder)
    loaded = {'sharded': distribute_tensor(torch.zeros(10, 4), mesh, [Shard(1)]), 'step': torch.tensor(0)}
    checkpoint.load(loaded, checkpoint_id=folder)
    dist.barrier()
    return [loaded['sharded'].full_tensor(), loaded['step']]


@case
def compiled_functional():
    import torch.distributed._functional_collectives as functional

    @torch.compile(backend='aot_eager', fullgraph=True)
    def exchange(x):
        total = functional.all_reduce(x, 'sum', dist.group.WORLD)
        parts = functional.reduce_scatter_tensor(total * 2, 'sum', 0, dist.group.WORLD)
        return functional.all_gather_tensor(parts + 1, 0, dist.group.WORLD)
    return [exchange(torch.arange(12.0).reshape(12, 1) + dist.get_rank())]


def run_cases(backend):
    """The tensors of each case."""
    dist.init_process_group(backend)
    results = {}
    for name, function in CASES.items():
        if name == 'pipelining' and VERSION < (2, 10):
            print('left out: pipelining, which gloo cannot do before PyTorch 2.10', flush=True)
            continue
        results[name] = [tensor.clone() for tensor in function()]
    dist.barrier()
    dist.destroy_process_group()
    return results


def compare(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensors in ours.items():
        assert len(tensors) == len(theirs[name]) > 0, name
        for seen, expected in zip(tensors, theirs[name]):
            torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-6, msg=lambda text: f'{name}: {text}')


def main(*forms):
    torch.set_num_threads(1)
    theirs = run_cases('gloo')
    import ddprun.torch  # registers the back end
    for form in forms:
        os.environ['DDPRUN_TORCH_FORM'] = form
        ours = run_cases('ddp')
        if os.environ['RANK'] == '0':
            compare(ours, theirs)
            print(f'{form}: {len(ours)} cases are equal', flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
