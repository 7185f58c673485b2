#!/usr/bin/env python3
"""torch_store.py - the store's server beside PyTorch's own, both loaded by PyTorch's client.

The method is in docs/benchmarks/store.md. ddprund is the one in PATH.
"""

import os
import signal
import statistics
import struct
import subprocess
import sys
import time

from peers import Figures, duration_s, parse_arguments, print_head, print_row

KEYS, MANY, VALUE = 64, 16, b'v' * 64
CLIENTS = (1, 8)
DDPRUND = ['ddprund', '--listen=127.0.0.1:0', '--log-level=warning']


def serve():
    """PyTorch's server, until it is killed."""
    from torch.distributed import TCPStore
    store = TCPStore('127.0.0.1', 0, is_master=True, use_libuv=True, wait_for_workers=False)
    print(f'listening on 127.0.0.1:{store.port}', flush=True)
    while True:
        signal.pause()


class Server:
    """A process that prints where it listens."""

    def __init__(self, name, words):
        self.name = name
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith('listening on '):
            sys.exit(f'{words[0]} printed no address')
        self.port = int(line.rsplit(':', 1)[1])

    def cpu_us(self):
        """Of all threads."""
        total = 0
        for task in os.listdir(f'/proc/{self.process.pid}/task'):
            with open(f'/proc/{self.process.pid}/task/{task}/schedstat', encoding='ascii') as file:
                total += int(file.read().split()[0])
        return total / 1000

    def stop(self):
        self.process.kill()
        self.process.wait()


# ---- clients -----------------------------------------------------------------------------------

def operations(store, number):
    """Name -> a function of the request's number; every client has keys of its own."""
    keys = [f'bench/{number}/{i:04}' for i in range(KEYS)]
    value = VALUE.decode()
    for key in keys:
        store.set(key, value)
        store.add(key + '/count', 0)
    return {
        'set': lambda i: store.set(keys[i % KEYS], value),
        'get': lambda i: store.get(keys[i % KEYS]),
        'add': lambda i: store.add(keys[i % KEYS] + '/count', 1),
        'check': lambda i: store.check(keys[i % KEYS:i % KEYS + 1]),
        'multi_get': lambda i: store.multi_get(keys[i * MANY % KEYS:i * MANY % KEYS + MANY]),
        'compare_set': lambda i: store.compare_set(keys[i % KEYS], value, value),
    }


OPERATIONS = ('set', 'get', 'add', 'check', 'multi_get', 'compare_set')


def play(side, name, seconds):
    """Send requests one after the other for this long; return how many. A set has no answer: the last
    request is a check, which is answered when the server has handled all before it."""
    request = side[name]
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        request(count)
        count += 1
    side['check'](0)
    return count + 1


def client(number, ports, seconds, commands, answers):
    """A process: a command is the index of a server and of an operation, two bytes."""
    from torch.distributed import TCPStore
    sides = [operations(TCPStore('127.0.0.1', port, is_master=False, wait_for_workers=False), number)
             for port in ports]
    os.write(answers, struct.pack('q', 0))
    while command := os.read(commands, 2):
        count = play(sides[command[0]], OPERATIONS[command[1]], seconds)
        os.write(answers, struct.pack('q', count))


def start_client(number, ports, seconds, crew):
    """(pipe to it, pipe from it)"""
    commands, answers = os.pipe(), os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            for ends in crew + [(commands[1], answers[0])]:  # their end must be seen
                os.close(ends[0])
                os.close(ends[1])
            client(number, ports, seconds, commands[0], answers[1])
            status = 0
        finally:
            os._exit(status)
    os.close(commands[0])
    os.close(answers[1])
    return commands[1], answers[0]


def collect(crew):
    """The sum of their answers."""
    total = 0
    for _, answers in crew:
        answer = os.read(answers, 8)
        if len(answer) != 8:
            sys.exit('a client of PyTorch has died')
        total += struct.unpack('q', answer)[0]
    return total


# ---- runs --------------------------------------------------------------------------------------

def run_turn(crew, index, op, server):
    """(requests per second, the server's processor time for one request)"""
    cpu, begin = server.cpu_us(), time.perf_counter()
    for commands, _ in crew:
        os.write(commands, bytes((index, op)))
    requests = collect(crew)
    elapsed, cpu = time.perf_counter() - begin, server.cpu_us() - cpu
    return requests / elapsed, cpu / requests


def load(servers, count, runs, seconds):
    """(operation, server's name) -> what each counted turn has shown; the first round warms up."""
    seen, crew = {}, []
    for number in range(count):
        crew.append(start_client(number, [server.port for server in servers], seconds, crew))
    collect(crew)
    for run in range(runs + 1):
        for op, name in enumerate(OPERATIONS):
            for index, server in enumerate(servers):
                turn = run_turn(crew, index, op, server)
                if run > 0:
                    seen.setdefault((name, server.name), []).append(turn)
    for commands, answers in crew:
        os.close(commands)
        os.close(answers)
    for _ in crew:
        os.wait()
    return seen


def report(seen, clients, figures):
    rates = {key: statistics.median(rate for rate, _ in turns) for key, turns in seen.items()}
    for (op, name), turns in seen.items():
        rate, ratio = rates[op, name], rates[op, name] / rates[op, 'PyTorch']
        server_us = statistics.median(us for _, us in turns)
        print_row(clients, op, name, f'{rate:.0f}', f'{ratio:.2f}', f'{server_us:.2f}')
        figures.add(benchmark='store-torch', clients=clients, op=op, contender=name, runs=len(turns),
                    requests_per_s=round(rate), ratio_to_torch=round(ratio, 3),
                    server_us_per_request=round(server_us, 3))


def main():
    arguments = parse_arguments(__doc__, ('--runs', int, 30, 'counted runs of each'),
                                ('--duration', duration_s, '300ms', 'how long each run lasts'))
    import torch.distributed  # before the forks: once for all clients
    figures = Figures(arguments.json)
    servers = []
    try:
        servers.append(Server('PyTorch', [sys.executable, __file__, 'serve']))
        servers.insert(0, Server('ddprun', DDPRUND))
        print_head("PyTorch's clients", 'operation', 'server', 'requests/s', 'x PyTorch', 'server us/request')
        for clients in CLIENTS:
            report(load(servers, clients, arguments.runs, arguments.duration), clients, figures)
    finally:
        for server in servers:
            server.stop()


if __name__ == '__main__':
    serve() if sys.argv[1:] == ['serve'] else main()
