"""gpu_build.py - compiles what tests/gpu/run needs with a C compiler and nvcc alone.

No meson, no Check, no libuv: a GPU machine may have none of them, and nothing can be fetched there.
The library is the product's own sources; in place of the store's client it gets file_store.c, in
place of Check, tests/gpu/check, in place of libsodium, tests/gpu/plain; and no TLS. Files are found by
folder, so a new source needs no line here.
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ['-std=gnu17', '-D_GNU_SOURCE', '-g', '-fPIC', '-pthread', '-Wall', '-ftrivial-auto-var-init=zero']
LIMIT_S = 150  # of one compiler
OLDEST_ARCH = 'compute_75'  # of which machine code is made, as in the ordinary build


def project_version():
    text = (ROOT / 'meson.build').read_text()
    return text.split("version: '", 1)[1].split("'", 1)[0]


class BuildError(Exception):
    """The text is what the compiler has said."""


def run(words):
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise BuildError(f'{" ".join(map(str, words))}\nnot done in {LIMIT_S} s') from late
    if done.returncode != 0:
        raise BuildError(f'{" ".join(map(str, words))}\n{done.stdout}{done.stderr}')
    return done.stdout


def find(*names):
    for name in names:
        if path := shutil.which(name):
            return path
    raise BuildError(f'there is no {" or ".join(names)}')


def sources(folder, pattern='*.c', but=()):
    return [path for path in sorted((ROOT / folder).glob(pattern)) if path.name not in but]


def rooms(folder):
    """The folders below @folder that hold sources."""
    return sorted({str(path.parent.relative_to(ROOT)) for path in (ROOT / folder).glob('**/*.c')})


def base_sources():
    return sources('base') + sources('base/recorder') + sources('base/system')


def library_sources():
    """Those of libddpcomm, but for the image of the kernels, which is made."""
    return base_sources() + sources('worker', '**/*.c', but=['no_image.c']) + [
        ROOT / name for name in ('tls/none.c', 'tls/refusal.c', 'tests/gpu/file_store.c',
                                 'tests/gpu/plain/plain_auth.c')]


class Build:
    """Everything below @out; @arch is such as "90". @with_driver: with the driver of tests/cuda, and quick to compile."""

    def __init__(self, out, arch, with_driver):
        self.out, self.arch, self.with_driver = Path(out), arch, with_driver
        self.cc = find('cc', 'gcc', 'clang')
        self.made = self.out / 'made'  # sources that are made
        self.bin = self.out / 'bin'
        self.failed = {}  # test program -> what the compiler has said
        for folder in (self.out, self.made, self.bin):
            folder.mkdir(parents=True, exist_ok=True)
        folders = ['base', 'base/recorder', 'base/system', 'base/include', 'rendezvous/auth',
                   'rendezvous/include', 'tls', 'tests/gpu/plain', *rooms('worker'), 'worker/include',
                   'cmd/common', 'cmd/perf/common', 'cmd/perf/collectives', 'daemon/gpu', 'tests/lib', 'tests/gpu',
                   'tests/gpu/check',
                   'tests/integration', 'tests/cuda']
        self.flags = FLAGS + [*[f'-I{ROOT / folder}' for folder in folders], f'-I{self.made}']
        if 'unrecognized' in subprocess.run(
                [self.cc, '-ftrivial-auto-var-init=zero', '-E', '-x', 'c', '/dev/null'],
                capture_output=True, text=True, check=False).stderr:
            self.flags.remove('-ftrivial-auto-var-init=zero')

    # ---- sources that are made -------------------------------------------------------------

    def make_version(self):
        version = project_version()
        template = (ROOT / 'cmd/common/version.h.in').read_text()
        (self.made / 'version.h').write_text(template.replace('@version@', version))

    def make_kernels(self):
        """The kernels for this GPU, made as the ordinary build makes them for all."""
        nvcc = find('nvcc', '/usr/local/cuda/bin/nvcc')
        fatbin = self.made / 'reduce_copy.fatbin'
        run([nvcc, '-fatbin', '-std=c++17', '-O3', '-fmad=false', '-ftz=false', '-prec-div=true',
             '-gencode', f'arch={OLDEST_ARCH},code=[sm_{self.arch},{OLDEST_ARCH}]', '-o', fatbin,
             ROOT / 'worker/gpu/kernels/reduce_copy.cu'])
        run([sys.executable, ROOT / 'worker/gpu/kernels/embed.py', fatbin, self.made / 'image.c',
             f'sm_{self.arch}'])

    # ---- objects and programs --------------------------------------------------------------

    def optimization(self, source):
        if not self.with_driver:
            return '-O3' if source.parent.name == 'reduce' else '-O2'
        # There compiling takes longer than running, but for what computes.
        return '-O1' if source.parent.name in ('reduce', 'cuda', 'gpu', 'lib') else '-O0'

    def object_of(self, source):
        name = str(source.relative_to(self.made if self.made in source.parents else ROOT))
        return self.out / (name.replace('/', '-') + '.o')

    def compile(self, source):
        source = Path(source)
        target = self.object_of(source)
        extra = [self.optimization(source)] + (['-ffp-contract=off'] if source.parent.name == 'reduce' else [])
        if source == ROOT / 'worker/ops/api/version.c':
            parts = zip(('MAJOR', 'MINOR', 'PATCH'), project_version().split('.'))
            extra = [f'-DDDPI_VERSION="{project_version()}"',
                     *[f'-DDDPI_VERSION_{name}={part}' for name, part in parts]]
        if source == ROOT / 'worker/net/meeting/peer_card.c':
            major, minor, _ = map(int, project_version().split('.'))
            extra.append(f'-DDDPI_RELEASE={100 * major + minor}')
        run([self.cc, *self.flags, *extra, '-c', source, '-o', target])
        return target

    def compile_all(self, paths):
        """source -> object, or BuildError; as many at a time as there are processors."""
        def attempt(path):
            try:
                return self.compile(path)
            except BuildError as error:
                return error
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(paths, pool.map(attempt, paths)))

    def link(self, name, objects, *flags):
        run([self.cc, '-pthread', '-o', self.bin / name, *objects, *flags, '-ldl', '-lm'])

    def everything(self):
        """Returns the names of the test programs. One that cannot be built is in @failed, and does
        not keep the others from it."""
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            kernels = beside.submit(self.make_kernels)  # takes the longest
            self.make_version()
            base, library = base_sources(), library_sources()
            perf = sources('cmd/perf/collectives') + sources('cmd/perf/common') + [
                ROOT / 'cmd/common/near_name.c', ROOT / 'cmd/common/options.c', ROOT / 'tests/gpu/gpu_perf.c']
            device = [ROOT / 'tests' / name for name in ('gpu/device.c', 'lib/elements.c', 'lib/floats.c', 'lib/sample.c')]
            alone = [ROOT / 'tests/gpu' / name for name in
                     ('test_reduce_copy.c', 'bench_reduce_copy.c', 'free_memory.c', 'probe_driver.c',
                      'probe_nvml.c')]
            more = {'probe_nvml': [ROOT / 'daemon/gpu' / name for name in
                                   ('nvml_library.c', 'gpu_look.c', 'gpu.c', 'gpu_fault.c')],
                    'probe_driver': [ROOT / 'tests/gpu' / name for name in
                                     ('probe_scene.c', 'probe_held.c', 'probe_memory.c')]}
            tests = sources('tests/integration', 'test_device*.c')
            helpers = [ROOT / 'tests/integration/world.c', ROOT / 'tests/integration/world_kv.c', ROOT / 'tests/gpu/world_store.c',
                       ROOT / 'tests/lib/check_main.c', ROOT / 'tests/lib/descriptors.c',
                       ROOT / 'tests/lib/elements.c', ROOT / 'tests/lib/floats.c',
                       ROOT / 'tests/lib/sample.c', ROOT / 'tests/lib/sweep.c',
                       *sources('tests/integration', 'rig*.c')]
            check = sources('tests/gpu/check')
            driver = sources('tests/cuda', but=['fixture.c', 'old_driver.c']) if self.with_driver else []
            driver = [path for path in driver if not path.name.startswith('test_')]
            objects = self.compile_all([*library, *perf, *device, *alone, *more['probe_nvml'],
                                        *more['probe_driver'], *tests, *helpers, *check,
                                        *driver])
            kernels.result()

        def of(paths):
            for path in paths:
                if isinstance(objects[path], BuildError):
                    raise objects[path]
            return [objects[path] for path in paths]

        common = of(library) + [self.compile(self.made / 'image.c')]
        self.link('ddp-perf', of(perf) + common)
        for program in alone:
            self.link(program.stem, of([program, *device, *check, *more.get(program.stem, [])]) + common)
        for test in tests:
            try:
                self.link(test.stem, of([test, *helpers, *check]) + common)
            except BuildError as error:
                self.failed[test.stem] = str(error)
        if self.with_driver:
            reduce = [path for path in library if path.parent.name == 'reduce']
            self.link('libcuda.so.1', of(driver + base + reduce + [ROOT / 'worker/gpu/driver/driver.c']),
                      '-shared', '-Wl,-soname,libcuda.so.1', '-Wl,-z,nodelete',
                      f'-Wl,--version-script={ROOT / "tests/cuda/libcuda.map"}')
        shutil.copy(ROOT / 'tests/gpu/ddprun.py', self.bin / 'ddprun')
        (self.bin / 'ddprun').chmod(0o755)  # a copied tree may have lost it
        return [test.stem for test in tests if test.stem not in self.failed]
