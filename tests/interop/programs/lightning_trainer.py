"""Lightning's own demo model and its Trainer with the strategy "ddp", as its guide starts."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel

pl.seed_everything(7, verbose=False)
model = BoringModel()
trainer = pl.Trainer(accelerator='cpu', devices=2, strategy='ddp', max_epochs=1, limit_train_batches=4,
                     limit_val_batches=2, logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, BoringDataModule())
total = sum(parameter.sum() for parameter in model.parameters())
print(f'rank {trainer.global_rank} of {trainer.world_size}: {torch.round(total, decimals=4):.4f}')
