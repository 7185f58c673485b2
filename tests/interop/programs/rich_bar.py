"""A live bar of rich's: redrawn in place on a terminal, printed once at its end elsewhere."""

from rich.progress import Progress

with Progress() as progress:
    task = progress.add_task('epoch', total=20)
    for _ in range(20):
        progress.advance(task)
        progress.refresh()
