"""torch_frameworks.py FRAMEWORK BACKEND - train a small model for some steps, with the back end selected as docs/pytorch.md
says. Rank 0 prints the parameters. Run by test_torch_frameworks.py under ddprun.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ddprun.torch  # registers the back end

FRAMEWORK, BACKEND = sys.argv[1:]
RANK, WORLD = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
STEPS, BATCH = 5, 4


def data():
    x = torch.arange(STEPS * BATCH * WORLD * 3, dtype=torch.float32).remainder(7).reshape(-1, 3)
    return TensorDataset(x, x.sum(1, keepdim=True))


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def lightning():
    import lightning as L
    from lightning.pytorch.strategies import DDPStrategy

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model()

        def training_step(self, batch, _):
            return nn.functional.mse_loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    model = Model()
    trainer = L.Trainer(accelerator='cpu', devices=WORLD, strategy=DDPStrategy(process_group_backend=BACKEND),
                        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    trainer.fit(model, DataLoader(data(), BATCH))
    return model.model


def accelerate():
    from accelerate import Accelerator
    dist.init_process_group(BACKEND)  # on a CPU it takes a name other than gloo for one that is missing
    accelerator = Accelerator(cpu=True)
    model = make_model()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01),
                                                   DataLoader(data(), BATCH))
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    return accelerator.unwrap_model(model)


def transformers():
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = make_model()

        def forward(self, x, labels):
            out = self.model(x)
            return {'loss': nn.functional.mse_loss(out, labels), 'logits': out}

    dist.init_process_group(BACKEND)
    model = Model()
    arguments = TrainingArguments(output_dir=os.environ['TMPDIR'], use_cpu=True, max_steps=STEPS,
                                  per_device_train_batch_size=BATCH, optim='sgd', learning_rate=0.01, report_to=[],
                                  save_strategy='no', logging_strategy='no', disable_tqdm=True)
    items = [{'x': x, 'labels': y} for x, y in data()]
    Trainer(model=model, args=arguments, train_dataset=items).train()
    return model.model


def deepspeed():
    import deepspeed as ds
    ds.init_distributed(dist_backend=BACKEND)
    model = make_model()
    engine, *_ = ds.initialize(model=model, config={
        'train_micro_batch_size_per_gpu': BATCH, 'train_batch_size': BATCH * WORLD,
        'optimizer': {'type': 'SGD', 'params': {'lr': 0.01}}, 'zero_optimization': {'stage': 1},
        'zero_allow_untested_optimizer': True})
    shard = torch.utils.data.Subset(data(), range(RANK, STEPS * BATCH * WORLD, WORLD))
    for x, y in DataLoader(shard, BATCH):
        engine.backward(nn.functional.mse_loss(engine(x), y))
        engine.step()
    return model


def main():
    model = globals()[FRAMEWORK]()
    assert dist.get_backend() == BACKEND, dist.get_backend()
    if RANK == 0:
        print('trained', [round(value, 5) for parameter in model.parameters() for value in
                          parameter.detach().flatten().tolist()], flush=True)
    dist.destroy_process_group()


main()
