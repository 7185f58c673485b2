#!/usr/bin/env python3
"""torch_backend.py - DistributedDataParallel and all_reduce on the back end "ddp", by turns with gloo in the same
processes; what a process costs at its start and in memory; and a restart of ranks that train. The method is in
docs/benchmarks/torch.md.
"""

import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers import Figures, parse_arguments, print_head, print_row

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from proc_tree import descendants

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, COMPILED = ROOT / 'python', ROOT / 'build' / 'bench' / 'torch'

WINDOW_S = 0.2
FORMS = {'ddp, C++': 'native', 'ddp, Python': 'python'}
CONTENDERS = ['gloo', *FORMS]
SIZES = (8, 1 << 20, 100_000_000)
MODELS = {'784-256-10': (784, 256, 10), '784-4096-3686-10': (784, 4096, 3686, 10)}
BATCH = 64
LIMIT_S = 600


def prepare():
    """Environment for ranks, with a compiled back end."""
    os.environ.update(PYTHON_EXEC=sys.executable, PYTHONPATH=f'{PACKAGE}:{os.environ.get("PYTHONPATH", "")}'.rstrip(':'), OMP_NUM_THREADS='1',
                      DDPRUN_LIBRARY_PATH=str(ROOT / 'build' / 'worker'), DDPRUN_TORCH_LIBRARIES=str(COMPILED))
    sys.path.insert(0, str(PACKAGE))  # spawned processes get this list
    env = dict(os.environ, PKG_CONFIG_PATH=str(ROOT / 'build' / 'meson-uninstalled'))
    COMPILED.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, '-m', 'ddprun.torch.build'], env=env, check=True, stdout=subprocess.DEVNULL)


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as listener:
        return listener.getsockname()[1]


def run_ranks(target, world, *arguments):
    """What rank 0 of @world puts into the queue."""
    context = multiprocessing.get_context('spawn')
    results, port = context.Queue(), free_port()
    ranks = [context.Process(target=target, args=(rank, world, port, results, *arguments), daemon=True)
             for rank in range(world)]
    for process in ranks:
        process.start()
    end = time.monotonic() + LIMIT_S
    while results.empty():
        if time.monotonic() > end or any(process.exitcode for process in ranks):
            sys.exit(f'{target.__name__}: a rank of {world} failed')
        time.sleep(0.05)
    answer = results.get()
    for process in ranks:
        process.join(60)
    return answer


def join(rank, world, port, backend):
    import torch.distributed as dist
    import ddprun.torch  # noqa: F401
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group(backend)
    return dist


# ---- by turns in the same processes --------------------------------------------------------------


def turns(dist, contenders, windows):
    """Calls per second of each, the median over windows that all ranks begin together. How many calls a window has is
    rank 0's choice, so that all ranks make as many."""
    import torch
    rates = {name: [] for name in contenders}
    counts = dict.fromkeys(contenders, 2)
    for window in range(windows + 2):
        for name, call in contenders.items():
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(counts[name]):
                call()
            elapsed = time.perf_counter() - begin
            if window > 1:
                rates[name].append(counts[name] / elapsed)
            wanted = torch.tensor([max(int(counts[name] * WINDOW_S / elapsed), 2)])
            dist.broadcast(wanted, 0)
            counts[name] = int(wanted)
    return {name: statistics.median(seen) for name, seen in rates.items()}


def make_groups(dist):
    groups = {'gloo': dist.group.WORLD}
    for name, form in FORMS.items():
        os.environ['DDPRUN_TORCH_FORM'] = form
        groups[name] = dist.new_group(backend='ddp')
    return groups


def time_all_reduce(rank, world, port, results, windows):
    import torch
    torch.set_num_threads(1)
    dist = join(rank, world, port, 'gloo')
    groups, rows = make_groups(dist), []
    for size in SIZES:
        tensor = torch.zeros(size // 4)
        calls = {name: lambda group=group: dist.all_reduce(tensor, group=group) for name, group in groups.items()}
        rates = turns(dist, calls, windows)
        rows.append((size, {name: 1e6 / rate for name, rate in rates.items()}))
    if rank == 0:
        results.put(rows)
    dist.destroy_process_group()


def make_step(torch, sizes, group, hook):
    """A function that trains a step. @group None: without DistributedDataParallel."""
    torch.manual_seed(0)
    layers = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    if group is not None:
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
        if hook:
            model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(BATCH, sizes[0]), torch.randint(sizes[-1], (BATCH,))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return step


def time_steps(rank, world, port, results, windows):
    import torch
    torch.set_num_threads(1)
    dist = join(rank, world, port, 'gloo')
    groups, rows = make_groups(dist), []

    def done(bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def nothing(_, bucket):
        return done(bucket)

    def wait_for_all(_, bucket):
        dist.all_reduce(one, group=groups['ddp, C++'])
        return done(bucket)

    one = torch.zeros(1)
    for model, sizes in MODELS.items():
        calls = {'no DDP': make_step(torch, sizes, None, None),
                 'hook that does nothing': make_step(torch, sizes, groups['gloo'], nothing),
                 'hook that waits': make_step(torch, sizes, groups['gloo'], wait_for_all)}
        calls.update({name: make_step(torch, sizes, group, None) for name, group in groups.items()})
        rows.append((model, turns(dist, calls, windows)))
    if rank == 0:
        results.put(rows)
    dist.destroy_process_group()


# ---- what a process costs ------------------------------------------------------------------------


def memory_mib():
    """What this process has of its own, of memory that ranks share its share, and the same with the pages of files."""
    sizes = {line.split()[0]: int(line.split()[1]) / 1024 for line in open('/proc/self/smaps_rollup') if 'Pss' in line}
    return sizes['Pss_Anon:'] + sizes['Pss_Shmem:'], sizes['Pss:']


def start(rank, world, port, results, backend, form, steps):
    """Milliseconds of import, init and an all_reduce; memory after @steps of training."""
    begin = time.perf_counter()
    os.environ['DDPRUN_TORCH_FORM'] = form
    import torch
    torch.set_num_threads(1)
    dist = join(rank, world, port, backend)
    dist.all_reduce(torch.zeros(4))
    start_s = time.perf_counter() - begin
    if steps:
        step = make_step(torch, MODELS['784-4096-3686-10'], dist.group.WORLD, None)
        for _ in range(steps):
            step()
    if rank == 0:
        results.put((start_s * 1e3, *memory_mib()))
    dist.destroy_process_group()


# ---- a restart of ranks that train ---------------------------------------------------------------

WORKER = '''
import os, sys, time
import torch, torch.distributed as dist
import ddprun.torch
dist.init_process_group('ddp')
dist.all_reduce(torch.ones(4))
with open(sys.argv[1], 'a') as file:
    file.write(f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {os.getpid()} {time.monotonic()}\\n")
time.sleep(600)
'''
RESTARTERS = {
    'ddprun --preload': ['ddprun', '--preload=torch,torch.distributed,ddprun.torch'],
    'ddprun': ['ddprun'],
    'torchrun': [sys.executable, '-m', 'torch.distributed.run', '--standalone'],
}
WORKERS = 4


def restarted(path, generation):
    """(pids, time of the last first all_reduce) of @generation when all its workers have made it."""
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    mine = [line for line in lines if len(line) == 3 and line[0] == str(generation)]
    return ([int(line[1]) for line in mine], max(float(line[2]) for line in mine)) if len(mine) == WORKERS else None


def await_generation(path, generation):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        found = restarted(path, generation)
        if found:
            return found
        time.sleep(0.002)
    sys.exit(f'the workers of generation {generation} did not train within 120 s')


def settle(launcher):
    """Wait until all processes below @launcher sleep: the warm process has imported all."""
    calm = 0
    while calm < 20:
        below = descendants(launcher)
        calm = calm + 1 if below and all(process.state == 'S' for process in below) else 0
        time.sleep(0.05)


def time_restarts(command, runs):
    """Milliseconds from the death of a worker to the first all_reduce of all workers of the next generation."""
    with tempfile.TemporaryDirectory() as folder:
        script, board = Path(folder, 'train.py'), Path(folder, 'board')
        script.write_text(WORKER)
        launcher = subprocess.Popen([*command, f'--nproc-per-node={WORKERS}', '--max-restarts=1000', str(script),
                                     str(board)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
        try:
            pids, _ = await_generation(board, 0)
            seen = []
            for run in range(runs):
                settle(launcher.pid)
                begin = time.monotonic()
                os.kill(pids[run % WORKERS], signal.SIGKILL)
                pids, end = await_generation(board, run + 1)
                seen.append((end - begin) * 1e3)
            return seen
        finally:
            launcher.send_signal(signal.SIGTERM)
            launcher.wait(60)


# ---- tables --------------------------------------------------------------------------------------


def report_all_reduce(windows, figures):
    print('\nall_reduce of float32, 2 ranks:')
    print_head('bytes', *(f'{name}, us' for name in CONTENDERS), 'C++ / gloo', 'Python / gloo')
    for size, times in run_ranks(time_all_reduce, 2, windows):
        gloo = times['gloo']
        print_row(size, *(f'{times[name]:.1f}' for name in CONTENDERS),
                  *(f'1/{gloo / times[name]:.1f}' for name in FORMS))
        for name in CONTENDERS:
            figures.add(benchmark='torch-all-reduce', contender=name, ranks=2, bytes=size, us=round(times[name], 2))


def report_steps(windows, figures):
    names = ['no DDP', 'hook that does nothing', 'hook that waits', *CONTENDERS]
    print('\nSteps per second:')
    print_head('model', 'ranks', *names, 'C++ / hook', 'Python / hook', 'C++ / gloo')
    for world in (2, 4):
        for model, rates in run_ranks(time_steps, world, windows):
            hook = rates['hook that does nothing']
            print_row(model, world, *(f'{rates[name]:.1f}' for name in names),
                      *(f'{rates[name] / hook:.0%}' for name in FORMS),
                      f'{rates["ddp, C++"] / rates["gloo"]:.2f}x')
            for name in names:
                figures.add(benchmark='torch-steps', contender=name, model=model, ranks=world,
                            steps_per_s=round(rates[name], 2))


def report_starts(runs, figures):
    kinds = {'gloo': ('gloo', 'native'), **{name: ('ddp', form) for name, form in FORMS.items()}}
    print('\nImport, init and first all_reduce of 4 ranks; memory of a rank after 5 steps of the large model:')
    print_head('back end', 'start, ms', 'own memory, MiB', 'with its share of files, MiB')
    seen = {name: [] for name in kinds}
    for _ in range(2 * runs):
        for name, (backend, form) in kinds.items():
            seen[name].append(run_ranks(start, WORKERS, backend, form, 0)[0])
    for name, (backend, form) in kinds.items():
        start_ms = statistics.median(seen[name])
        _, own, share = run_ranks(start, WORKERS, backend, form, 5)
        print_row(name, f'{start_ms:.0f}', f'{own:.1f}', f'{share:.1f}')
        figures.add(benchmark='torch-start', contender=name, ranks=WORKERS, start_ms=round(start_ms, 1),
                    own_mib=round(own, 1), share_mib=round(share, 1))


def report_restarts(runs, figures):
    print('\nA worker of 4 is killed: until the first all_reduce of the next generation:')
    print_head('launcher', 'runs', 'p50, ms', 'least', 'most')
    for name, command in RESTARTERS.items():
        seen = time_restarts(command, runs)
        print_row(name, len(seen), *(f'{f(seen):.0f}' for f in (statistics.median, min, max)))
        figures.add(benchmark='torch-restart', contender=name, runs=len(seen),
                    p50_ms=round(statistics.median(seen), 1), min_ms=round(min(seen), 1), max_ms=round(max(seen), 1))


def main():
    options = parse_arguments(__doc__, ('--windows', int, 15, 'windows of each contender'),
                              ('--slow-runs', int, 5, 'starts and restarts of each kind'))
    figures = Figures(options.json)
    prepare()
    report_all_reduce(options.windows, figures)
    report_steps(options.windows, figures)
    report_starts(options.slow_runs, figures)
    report_restarts(options.slow_runs, figures)


if __name__ == '__main__':
    main()
