"""How much longer `import langenode` takes than `import jax, equinox`: the ratio of minima over alternating runs."""

import subprocess
import sys

CODE = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(modules: str) -> float:
    done = subprocess.run([sys.executable, "-c", CODE.format(modules)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(repeats: int = 9) -> None:
    base, ours = [], []
    for _ in range(repeats):
        base.append(seconds("jax, equinox"))
        ours.append(seconds("langenode"))
    print(f"jax, equinox {min(base):.2f} s, langenode {min(ours):.2f} s, ratio {min(ours) / min(base):.2f}")


if __name__ == "__main__":
    main()
