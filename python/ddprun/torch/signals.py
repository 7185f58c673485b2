"""Signals that a scheduler sends to every process of a job."""

import signal


def ignore_stop_signals(_worker_id=None):
    """For worker_init_fn of a DataLoader: its workers live as long as the main program, which saves with their help.

        DataLoader(dataset, num_workers=4, worker_init_fn=ddprun.torch.ignore_stop_signals)

    ddprun signals main programs alone; this is for Slurm, systemd and others that signal all processes themselves.
    """
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(sig, signal.SIG_IGN)
