"""gpu_report.py - Markdown and JSON of a run of tests/gpu/run.

Nothing of a run on the host driver is a figure: such a report names the steps and no numbers.
"""

import json

NAME = 'collectives-gpu'


def of(results, purpose):
    """All figures of rows, from the benchmarks that are for this."""
    return [figure | {'name': name} for name, what, _, figures in results for figure in figures
            if what == purpose and figure['benchmark'] == 'collective']


def fastest_us(figure):
    return min(figure[key] for key in ('out_of_place_us', 'in_place_us') if key in figure)


def times_floor(figure):
    return fastest_us(figure) / figure['floor_us'] if figure.get('floor_us') else None


def judge(goal, seen, most, unit=''):
    if seen is None:
        return f'| {goal} | not measured | |'
    return f'| {goal} | {seen:.2f}{unit} | {"met" if seen <= most else "missed"} |'


def goal_rows(results):
    large = of(results, 'large')
    for figure in (f for f in large if f['dtype'] == 'float32'):
        yield judge(f'{figure["ranks"]} processes on one GPU, float32, at most 1.5 x 2NS/D',
                    times_floor(figure), 1.5, ' x')
    for ranks in (2, 4, 8):
        both = {f['dtype']: fastest_us(f) for f in large if f['ranks'] == ranks}
        if len(both) == 2:
            speed = both['float32'] / both['bfloat16']
            yield (f'| {ranks} processes, bytes/s of bfloat16, at least 0.8 x float32 | {speed:.2f} x '
                   f'| {"met" if speed >= 0.8 else "missed"} |')
    small = [fastest_us(figure) for figure in of(results, 'small')]
    yield judge('4 processes, 8 B to 64 KiB, at most 150 us', max(small, default=None), 150, ' us')
    for figure in of(results, 'local'):
        yield judge('4 ranks of one process, float32, at most 1.3 x 2NS/D', times_floor(figure), 1.3,
                    ' x')


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
           'S bytes. The\nfaster of in place and out of place counts.\n\n| goal | seen | |\n|---|---|---|')
    yield from goal_rows(results)
    for name, what, text, _ in results:
        table = text.strip()
        yield f'\n## {name}\n\n' + (table if what == 'kernel' else f'```\n{table}\n```')


def write_report(folder, machine, steps, results, small):
    lines = [*head(machine, small), *body(steps, results)]
    (folder / f'{NAME}.md').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    figures = [figure | {'name': name} for name, _, _, found in results for figure in found]
    content = {'host_driver': small, 'machine': machine, 'steps': steps, 'figures': figures}
    (folder / f'{NAME}.json').write_text(json.dumps(content, indent=1) + '\n', encoding='utf-8')
