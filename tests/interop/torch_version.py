"""torch_version.py - what a version of PyTorch has. Imported by the scripts of test_torch_backend.py."""

import re

import torch

VERSION = tuple(map(int, re.match(r'(\d+)\.(\d+)', torch.__version__).groups()))


def has(what, since):
    """Whether this version has it, which versions since that one have; a line says so if it does not."""
    if since <= VERSION:
        return True
    print(f'left out: {what}, which PyTorch has from {since[0]}.{since[1]} on', flush=True)
    return False
