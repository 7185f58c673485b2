#!/usr/bin/env python3
"""gpu_torch_build.py WORK - compiles the back end for the PyTorch that this Python has.

WORK is the folder where gpu_build.py has compiled. Its objects become WORK/bin/libddpcomm.so.0, and the
sources of python/ddprun/torch/native WORK/bin/libddptorch-MAJOR.MINOR-VERSION.so. It needs a C++ compiler, and
neither meson nor pkg-config. Exit status 77: this Python has no PyTorch.

Then name WORK/bin in DDPRUN_LIBRARY_PATH and DDPRUN_TORCH_LIBRARIES.
"""

import concurrent.futures
import importlib.util
import os
import runpy
import sys
from pathlib import Path

from gpu_build import ROOT, Build, BuildError, find, library_sources, run, sources

NO_TORCH = 77
NATIVE = 'python/ddprun/torch/native'


def link_library(work):
    """libddpcomm, out of what gpu_build.py has compiled."""
    build = Build(work, '', False)
    objects = [build.object_of(source) for source in [*library_sources(), build.made / 'image.c']]
    library = build.bin / 'libddpcomm.so.0'
    run([build.cc, '-shared', '-pthread', '-o', library, f'-Wl,-soname,{library.name}', *objects, '-ldl', '-lm'])
    link = library.with_suffix('')
    link.unlink(missing_ok=True)
    link.symlink_to(library.name)
    return library


def compile_native(work, torch, abi):
    """The objects. One compiler for each source, as PyTorch's headers take it far longer than they do."""
    compiler = find('c++', 'g++', 'clang++')
    headers = [torch / 'include', torch / 'include/torch/csrc/api/include']
    flags = ['-std=c++20', '-O1', '-fPIC', '-fvisibility=hidden', f'-D_GLIBCXX_USE_CXX11_ABI={int(abi)}',
             *[word for folder in headers for word in ('-isystem', folder)],
             *[f'-I{ROOT / folder}' for folder in ('base/include', 'worker/include')]]
    native = sources(NATIVE, '*.cpp')
    objects = [Path(work) / f'torch-{source.name}.o' for source in native]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda source, target: run([compiler, *flags, '-c', source, '-o', target]), native, objects))
    return compiler, objects


def build_back_end(work):
    """Returns the library, which has the name that ddprun/torch/library.py looks for."""
    import torch
    library = link_library(work)
    folder = Path(torch.__file__).parent
    minor = '.'.join(torch.__version__.split('.')[:2])
    compiler, objects = compile_native(work, folder, torch.compiled_with_cxx11_abi())
    version = runpy.run_path(str(ROOT / 'python/ddprun/version.py'))['VERSION']
    back_end = library.parent / f'libddptorch-{minor}-{version}.so'
    run([compiler, '-shared', '-Wl,-z,defs', '-o', back_end, *objects, f'-L{folder / "lib"}', f'-L{library.parent}',
         '-lddpcomm', '-ltorch', '-ltorch_cpu', '-lc10', f'-Wl,-rpath,{folder / "lib"}', '-Wl,-rpath,$ORIGIN'])
    return back_end


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if importlib.util.find_spec('torch') is None:
        print('this Python has no PyTorch')
        return NO_TORCH
    try:
        print(build_back_end(Path(sys.argv[1]).resolve()))
    except BuildError as error:
        sys.exit(str(error))
    return 0


if __name__ == '__main__':
    sys.exit(main())
