"""One of several processes that race for a folder's lock; the parent says when, by a byte on standard input.

Each tries the lock some times and leaves a mark while it is inside; a mark that is there already means two inside.
The answer is a letter: `i` it was inside, `o` it was refused each time, `B` both were inside.
"""

import os
import random
import sys
import time
from pathlib import Path

from langenode.storage.folder import RunFolder, RunFolderError


def race(folder: RunFolder, mark: Path, rng: random.Random) -> bytes:
    answer = b"o"
    for _ in range(3):
        try:
            with folder.locked():
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return b"B"
                time.sleep(rng.random() * 5e-4)
                mark.unlink()
                answer = b"i"
        except RunFolderError as error:
            assert "in use" in str(error), error
        time.sleep(rng.random() * 2e-4)
    return answer


def main(path: str, mark: str, seed: str) -> None:
    folder, rng = RunFolder(Path(path)), random.Random(int(seed))
    os.write(1, b"r")
    while os.read(0, 1) == b"g":
        os.write(1, race(folder, Path(mark), rng))


if __name__ == "__main__":
    main(*sys.argv[1:])
