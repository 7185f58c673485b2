"""python -m ddprun.torch.build: compile the back end "ddp" of torch.distributed for the PyTorch that is installed.

That takes a C++ compiler ($CXX, or c++) and one or two minutes. The result lies beside this package, or in the folder
DDPRUN_TORCH_LIBRARIES, which must then be set for programs as well. Without it programs use the form in Python.
"""

import argparse
import importlib.metadata
import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parent / 'include' # of a wheel
VARIABLE = 'DDPRUN_TORCH_LIBRARIES'


def run(command, remedy=''):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f'ddprun.torch.build: there is no program {command[0]!r}: install it (Debian packages g++ and pkg-config), or '
                 'name another C++ compiler in CXX')
    if done.returncode != 0:
        sys.exit(f'ddprun.torch.build: {remedy}{shlex.join(map(str, command))}\n{done.stderr}')
    return done.stdout


def pkg_config(option):
    remedy = 'the headers of libddpcomm are not found: run "make install" of ddprun, or use its wheel, which has them\n'
    return shlex.split(run(['pkg-config', option, 'ddpcomm'], remedy))


def libddpcomm():
    """The words by which the compiler finds its headers, and it."""
    from ..libraries import find
    if HEADERS.exists():
        return ['-I', HEADERS], [find('ddpcomm')]
    libraries = pkg_config('--libs')
    return pkg_config('--cflags'), libraries + ['-Wl,-rpath,' + word[2:] for word in libraries if word.startswith('-L')]


def command(torch, library):
    """All sources are compiled as one, as PyTorch's headers take far longer than they do."""
    folder = Path(torch.__file__).parent
    compiler = [*shlex.split(os.environ.get('CXX', 'c++')), '-std=c++20', '-O2', '-fPIC', '-fvisibility=hidden',
                f'-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}']
    includes = [word for name in ('include', 'include/torch/csrc/api/include') for word in ('-isystem', folder / name)]
    sources = [word for source in sorted((HERE / 'native').glob('*.cpp')) for word in ('-include', source)]
    cflags, libraries = libddpcomm()
    return [*compiler, *includes, *cflags, '-shared', '-Wl,-z,defs', *sources, '-x', 'c++', os.devnull, '-x', 'none', *libraries,
            f'-L{folder / "lib"}', f'-Wl,-rpath,{folder / "lib"}', '-ltorch', '-ltorch_cpu', '-lc10', '-o', library]


def check_writable(folder):
    """Before anything is compiled."""
    problem = ''
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = error.strerror
    if not problem and not os.access(folder, os.W_OK):
        problem = os.strerror(13)
    if problem:
        sys.exit(f'ddprun.torch.build: cannot write to {folder} ({problem}): name a folder of your own in {VARIABLE}, now and '
                 f'when programs run: export {VARIABLE}="$HOME/.cache/ddprun"')


def record(library):
    """So that pip removes @library with the package."""
    try:
        files = importlib.metadata.distribution('ddprun').files or []
    except importlib.metadata.PackageNotFoundError:
        return # it is used where it lies
    base = next((file.locate() for file in files if file.name == '__init__.py' and file.parent.name == 'torch'), None)
    listed = next((file.locate() for file in files if file.name == 'RECORD'), None)
    if listed is None or base is None or Path(base).resolve().parent != library.parent:
        return
    entry = os.path.relpath(library, Path(listed).resolve().parent.parent)
    text = Path(listed).read_text(encoding='utf-8')
    if f'\n{entry},' not in text:
        Path(listed).write_text(f'{text.rstrip()}\n{entry},,\n', encoding='utf-8')


def main():
    argparse.ArgumentParser(prog='python -m ddprun.torch.build', description=__doc__.partition(': ')[2],
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    import torch

    from .library import path
    library = path()
    check_writable(library.parent)
    print(f'compiling "ddp" for PyTorch {torch.__version__}, which takes a minute or two ...', file=sys.stderr, flush=True)
    run(command(torch, library))
    record(library)
    print(library)


if __name__ == '__main__':
    main()
