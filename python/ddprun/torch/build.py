"""python -m ddprun.torch.build: compile the back end for the PyTorch that is installed.

It takes a C++ compiler ($CXX, or c++), and libddpcomm with its headers as pkg-config finds them.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import torch

from .library import HERE, path

TORCH = Path(torch.__file__).parent
INCLUDES = [TORCH / 'include', TORCH / 'include/torch/csrc/api/include']
SOURCES = sorted((HERE / 'native').glob('*.cpp'))
COMPILER = [*shlex.split(os.environ.get('CXX', 'c++')), '-std=c++20', '-O2', '-fPIC', '-fvisibility=hidden',
            f'-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}']


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f'ddprun.torch.build: {shlex.join(map(str, command))}\n{done.stderr}')
    return done.stdout


def pkg_config(option):
    return shlex.split(run(['pkg-config', option, 'ddpcomm']))


def main():
    library = path()
    includes = [word for folder in INCLUDES for word in ('-isystem', folder)] + pkg_config('--cflags')
    libraries = [f'-L{TORCH / "lib"}', *pkg_config('--libs')]
    paths = ['-Wl,-rpath,' + word.removeprefix('-L') for word in libraries if word.startswith('-L')]
    library.parent.mkdir(parents=True, exist_ok=True)
    # All sources as one, as PyTorch's headers take far longer than they do.
    sources = [word for source in SOURCES for word in ('-include', source)] + ['-x', 'c++', os.devnull]
    run([*COMPILER, *includes, '-shared', '-Wl,-z,defs', *sources, *libraries, *paths, '-ltorch', '-ltorch_cpu', '-lc10', '-o',
         library])
    print(library)


if __name__ == '__main__':
    main()
