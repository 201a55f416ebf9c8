"""A command that ends with whoever asked for it: `python tether.py COMMAND...`, its standard input a pipe to the asker.

Started by its path and without any import of ours, so that it costs next to nothing. Once the pipe is closed, which
the operating system does for a process that is killed, the command is terminated, and killed if it does not obey.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

# A command of ours ends within 8 seconds.
SECONDS_TO_OBEY = 12.0


def main(words: list[str]) -> int:
    """Run the command; return its exit code, minus the signal that ended it."""
    command = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_input, args=(command,), daemon=True).start()
    return command.wait()


def _end_with_input(command: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 1024):
        pass
    with contextlib.suppress(ProcessLookupError):
        command.terminate()
        try:
            command.wait(SECONDS_TO_OBEY)
        except subprocess.TimeoutExpired:
            command.kill()


def _leave(code: int) -> None:
    """End as the command did."""
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))
