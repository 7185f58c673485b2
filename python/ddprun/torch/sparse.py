"""Sums of sparse tensors, for the form of the back end that is Python: native/sparse.cpp says how they are made."""

from __future__ import annotations

import torch

from ..errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_DIMENSIONS = 64  # as PyTorch has


def describe(tensor: torch.Tensor) -> torch.Tensor:
    """What a rank tells of its tensor: how many elements it has, and what must be the same on all ranks."""
    if tensor.dim() > MOST_DIMENSIONS:
        raise Invalid(f'ddp: allreduce(): a sparse tensor has {tensor.dim()} dimensions, and can have {MOST_DIMENSIONS}')
    numbers = [tensor._nnz(), tensor.sparse_dim(), tensor.dim(), *tensor.shape]
    return torch.tensor(numbers + [0] * (MOST_DIMENSIONS - tensor.dim()))


def count_elements(about: Sequence[torch.Tensor], own: int) -> list[int]:
    """How many each rank has, by what all ranks have told."""
    for rank, theirs in enumerate(about):
        if not torch.equal(theirs[1:], about[own][1:]):
            sizes = [one[3:3 + one[2]].tolist() for one in (theirs, about[own])]
            raise Invalid(f'ddp: allreduce(): rank {rank} has a sparse tensor of the sizes {sizes[0]}, rank {own} one of '
                          f'{sizes[1]}; sizes and sparse dimensions must be the same on all ranks')
    return [int(one[0]) for one in about]


def total(indices: torch.Tensor, values: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Of the rows of all ranks."""
    return torch.sparse_coo_tensor(indices.t(), values, sizes, check_invariants=False).coalesce()
