"""gpu_report.py - Markdown and JSON of a run of tests/gpu/run.

Nothing of a run on the host driver is a figure: such a report names the steps and no numbers.
"""

import json
import os
import re

NAME = 'collectives-gpu'
ROWS_ONLY = ('kills', 'memory', 'sanitizer')  # their output is in run.log
KILLED = re.compile(r'(\d+) ranks were killed; all others knew within ([\d.]+) ms')


def of(results, purpose, benchmark='collective'):
    """All figures of rows, from the benchmarks that are for this and have ended well."""
    return [figure for result in results if result['purpose'] == purpose and result['good']
            for figure in result['figures'] if figure['benchmark'] == benchmark]


def fastest_us(figure):
    return min(figure[key] for key in ('out_of_place_us', 'in_place_us') if key in figure)


def times_floor(figures):
    """In multiples of 2NS/D, of the slowest of @figures; None if there is none."""
    return max((fastest_us(figure) / figure['floor_us'] for figure in figures
                if figure.get('floor_us')), default=None)


def row(goal, seen, met):
    return f'| {goal} | {seen} | {"" if met is None else "met" if met else "missed"} |'


def judge(goal, seen, most, unit=''):
    if seen is None:
        return row(goal, 'not measured', None)
    return row(goal, f'{seen:.2f}{unit}', seen <= most)


def bus_us(results, size):
    """What copying @size bytes to pinned memory and back takes by itself; None if it was not measured."""
    text = '\n'.join(result['text'] for result in results if result['purpose'] == 'kernel')
    rates = re.findall(r'^\| kernel (?:to|from) pinned memory \| [\d.]+ \| ([\d.]+) \|', text, re.MULTILINE)
    return sum(size / float(rate) / 1e3 for rate in rates) if len(rates) == 2 else None


def beside_host(results, ranks):
    """The time of an all_reduce of a shared GPU, as a multiple of what it goes through."""
    large = [f for f in of(results, 'large') if f['ranks'] == ranks and f['dtype'] == 'float32']
    host = [f for f in of(results, 'host') if f['ranks'] == ranks]
    bus = bus_us(results, large[0]['size']) if large else None
    return fastest_us(large[0]) / (bus + fastest_us(host[0])) if bus and host else None


def speed_rows(results):
    large = of(results, 'large')
    for ranks in (2, 4, 8):
        yield judge(f'{ranks} processes on one GPU, 256 MiB of float32, at most 1.5 x two copies over the '
                    'bus and the all_reduce of host memory', beside_host(results, ranks), 1.5, ' x')
    for ranks in (2, 4, 8):
        goal = f'{ranks} processes, bytes/s of bfloat16, at least 0.9 x float32'
        both = {f['dtype']: fastest_us(f) for f in large if f['ranks'] == ranks}
        if len(both) < 2:
            yield row(goal, 'not measured', None)
            continue
        speed = both['float32'] / both['bfloat16']
        yield row(goal, f'{speed:.2f} x', speed >= 0.9)
    small = [fastest_us(figure) for figure in of(results, 'small')]
    yield judge('4 processes, 8 B to 64 KiB, at most 150 us', max(small, default=None), 150, ' us')
    yield judge('4 ranks of one process, float32, at most 1.3 x 2NS/D (a ring that the GPU drives)',
                times_floor(of(results, 'local')), 1.3, ' x')
    peers = [f for f in of(results, 'gloo', 'collective-peer') if f['peer'] == 'gloo']
    for figure in peers:
        yield row(f'4 processes, {figure["size"]} B, speed beside gloo', f'{figure["ratio"]:.1f} x', None)
    if not peers:
        yield row('4 processes, speed beside gloo', 'not measured', None)


def other_rows(results):
    kills = [KILLED.search(result['text']) for result in results if result['purpose'] == 'kills']
    seen = [found for found in kills if found]
    count = sum(int(found[1]) for found in seen)
    text = f'{count}; all others knew within {max(float(found[2]) for found in seen):.1f} ms' if seen \
        else 'not measured'
    yield row('ranks killed at random moments, 100', text, count >= 100 if kills else None)
    memory = [result for result in results if result['purpose'] == 'memory']
    yield row('memory of the device that is free after all tests: as before them',
              memory[0]['text'] if memory else 'not measured', memory[0]['good'] if memory else None)
    checks = [result['good'] for result in results if result['purpose'] == 'sanitizer']
    yield row('compute-sanitizer finds nothing',
              f'{sum(checks)} of {len(checks)} runs are clean' if checks else 'not measured',
              all(checks) if checks else None)


def goals(results):
    """Lines of a table."""
    return ['| goal | seen | |', '|---|---|---|', *speed_rows(results), *other_rows(results)]


def head(machine, small):
    yield '# Collectives on a GPU: what `tests/gpu/run` has seen\n'
    if small:
        yield '**Host driver: no GPU figures.** This run only shows that the command works.\n'
        return
    yield (f'{machine["gpus"]} x {machine["gpu"]} (sm_{machine["arch"]}), driver {machine["driver"]}, '
           f'CUDA {machine["cuda"]}; {machine["processors"]} processors, Linux {machine["kernel"]}; '
           f'{machine["date"]}, commit {machine["commit"]}.\n')


def body(steps, results):
    yield '## Steps\n\n| step | result | s |\n|---|---|---|'
    yield from (f'| {step["step"]} | {step["result"]} | {step["seconds"]} |' for step in steps)
    if not results:
        return
    yield ('\n## Goals\n\nD: bytes read and written by a device-to-device copy of the same run; N ranks of '
           'S bytes. The\nfaster of in place and out of place counts.\n')
    yield from goals(results)
    for result in results:
        if result['purpose'] in ROWS_ONLY:
            continue
        table = result['text'].strip()
        yield f'\n## {result["name"]}{"" if result["good"] else " (did not end well)"}\n'
        yield table if result['purpose'] == 'kernel' else f'```\n{table}\n```'


def replace(path, text):
    """Whole, or as it was, whenever this is ended."""
    fresh = path.with_suffix('.new')
    fresh.write_text(text, encoding='utf-8')
    os.replace(fresh, path)


def write_report(folder, machine, seen, small):
    """@seen: gpu_steps.Steps. What is not to be written is made all the same, as that shows that it
    can be."""
    text = [*body(seen.done, seen.results)]
    figures = [figure for result in seen.results for figure in result['figures']]
    if small:
        text, figures = [*body(seen.done, [])], []
    content = {'host_driver': small, 'machine': machine, 'steps': seen.done, 'figures': figures}
    replace(folder / f'{NAME}.md', '\n'.join([*head(machine, small), *text]) + '\n')
    replace(folder / f'{NAME}.json', json.dumps(content, indent=1) + '\n')
