"""machine.py - how much memory, shared memory and processor time went while something ran, as the whole machine sees it."""

import os
import resource
from pathlib import Path

MIB = 1 << 20


def parse_meminfo(text):
    """Free memory in bytes: what programs could still have."""
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith('MemAvailable:')), 0)


def parse_cpu(text):
    """Seconds of all processors by kind, from the first line of /proc/stat."""
    ticks = list(map(int, text.split('\n', 1)[0].split()[1:9]))
    user, nice, system, idle, iowait, irq, softirq, steal = (tick / os.sysconf('SC_CLK_TCK') for tick in ticks)
    return {'busy': user + nice + system + irq + softirq, 'idle': idle + iowait, 'stolen': steal}


def processors():
    """How many this process may use: those it is bound to, or fewer if its control group has a limit."""
    bound = len(os.sched_getaffinity(0))
    try:
        quota, period = Path('/sys/fs/cgroup/cpu.max').read_text().split()
        return bound if quota == 'max' else max(1, min(bound, int(quota) // int(period)))
    except (OSError, ValueError):
        return bound


def shm_used():
    try:
        stat = os.statvfs('/dev/shm')
    except OSError:
        return 0
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def own_cpu_s():
    """Processor seconds of this process, and of its children that have ended with all of theirs."""
    return sum(usage.ru_utime + usage.ru_stime
               for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Machine:
    """Peaks since it was made, of samples that the caller takes with look()."""

    def __init__(self):
        self.free_before, self.shm_before = self._free(), shm_used()
        self.cpu_before, self.own_before = self._cpu(), own_cpu_s()
        self.memory = self.shm = 0
        self.at_peak = []

    @staticmethod
    def _free():
        return parse_meminfo(Path('/proc/meminfo').read_text())

    @staticmethod
    def _cpu():
        return parse_cpu(Path('/proc/stat').read_text())

    def look(self, names):
        """@names: what runs now."""
        memory = self.free_before - self._free()
        if memory > self.memory:
            self.memory, self.at_peak = memory, list(names)
        self.shm = max(self.shm, shm_used() - self.shm_before)

    def report(self):
        spent = {kind: after - self.cpu_before[kind] for kind, after in self._cpu().items()}
        total = sum(spent.values()) or 1
        others = max(spent['busy'] - (own_cpu_s() - self.own_before), 0)
        return (f'machine: {os.cpu_count()} processors, {spent["busy"] / total:.0%} busy, {others / total:.0%} with other '
                f'programs, {spent["stolen"] / total:.0%} taken by the host; at most {self.memory // MIB} MiB of memory and '
                f'{self.shm // MIB} MiB of /dev/shm more than before, beside {", ".join(self.at_peak) or "nothing"}')
