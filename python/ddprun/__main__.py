"""python -m ddprun: the launcher of this environment, or else the one in PATH. Scripts run under this Python."""

import os
import shutil
import sys
import sysconfig


def main() -> None:
    own = os.path.join(sysconfig.get_path('scripts'), 'ddprun')
    path = own if os.access(own, os.X_OK) else shutil.which('ddprun')
    if path is None:
        sys.exit(f'python -m ddprun: there is no program {own}, and none in PATH: install ddprun (docs/python.md)')
    os.environ.setdefault('PYTHON_EXEC', sys.executable)
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == '__main__':
    main()
