"""Lightning Fabric: a loop of one's own around its setup and collectives."""

import torch
from lightning.fabric import Fabric

fabric = Fabric(accelerator='cpu', devices=2, strategy='ddp')
fabric.launch()
fabric.seed_everything(7, verbose=False)
model = torch.nn.Linear(4, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(3):
    optimizer.zero_grad()
    fabric.backward(model(torch.full((2, 4), float(fabric.global_rank + step))).sum())
    optimizer.step()
weights = fabric.all_gather(next(model.parameters()).detach())
assert torch.equal(weights[0], weights[1]), weights
print(f'rank {fabric.global_rank} of {fabric.world_size}: {weights[0].sum():.4f}')
