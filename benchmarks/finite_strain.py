"""The numbers and pictures of docs/guide/composite.md on finite-strain simulations of the composite.

python benchmarks/finite_strain.py times                  # CPU and memory per load step at 8^3, 12^3 and 16^3; 1 min
python benchmarks/finite_strain.py accuracy               # tolerance, kept factor, boundary, mesh; 3 min
python benchmarks/finite_strain.py superposition          # against the shipped set: mean, and spread; 10 s
python benchmarks/finite_strain.py workers                # two processes against one; 3 min of a quiet machine
python benchmarks/finite_strain.py pictures --out FOLDER  # deformed cubes, mesh, superposition, boundaries; 5 min
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from langenode import plots
from langenode.simulators import composite
from langenode.simulators.composite.finite_strain import (
    Boundary,
    Settings,
    corner_positions,
    equivalent_stress,
    follow,
    problem_of,
    sets,
)
from langenode.simulators.composite.library import compute_stiffnesses
from langenode.simulators.composite.loading import random_walks, tensor_walks

PRONY, SEED = composite.Prony(), 0
RESOLUTIONS = (8, 12, 16)


def spheres(number: int) -> composite.Microstructure:
    return composite.place_spheres(4, 0.2, seed=number)


def walk(num_steps: int, *, shear: bool) -> np.ndarray:
    """The first steps of a walk of 50 that has an amplitude of 0.02 at its end."""
    rng = np.random.default_rng(SEED)
    if shear:
        return tensor_walks(1, 50, 0.02, rng=rng)[0][: num_steps + 1]
    return random_walks(1, 50, 0.02, isochoric=True, rng=rng)[0][: num_steps + 1]


def stresses(settings: Settings, path: np.ndarray, number: int = 0) -> np.ndarray:
    return follow(problem_of(spheres(number), PRONY, settings), np.arange(float(len(path))), path)


def distance(found: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


# Times


def print_times() -> None:
    """Each resolution in a process of its own, for its memory; the first step, which compiles, is left out."""
    print(
        "| grid | walk | steps | CPU per step, median [s] | mean [s] | iterations | CG steps | factors | memory [GB] |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for resolution, num_steps in ((8, 50), (12, 12), (16, 8)):
        for shear in (0, 1):
            command = [sys.executable, __file__, "one", str(resolution), str(num_steps), str(shear)]
            subprocess.run(command, check=True)


def print_one(resolution: int, num_steps: int, shear: bool) -> None:
    import resource

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # threads that wait for each other would count twice
    times, iterations = [time.process_time()], []
    problem = problem_of(spheres(0), PRONY, Settings(resolution), iterations.append)
    path = walk(num_steps, shear=shear)
    follow(problem, np.arange(num_steps + 1.0), path, lambda n, state: times.append(time.process_time()))
    each = np.diff(times)[1:]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    solver = problem.solver
    print(
        f"| {resolution}^3 | {'six components' if shear else 'normal'} | {num_steps} | {np.median(each):.3f} | "
        f"{each.mean():.3f} | {len(iterations) / num_steps:.1f} | {solver.num_steps / num_steps:.0f} | "
        f"{solver.num_factors} | {memory:.2f} |",
        flush=True,
    )


def print_workers() -> None:
    """The same simulations by one process and by two, with the compilation of each."""
    seconds = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            words = ["simulate", "viscoelastic", "--solver", "fe", "--microstructures", "2", "--loadings", "8"]
            command = [sys.executable, "-m", "langenode", *words, "--workers", str(workers), "--out", f"{folder}/set"]
            begin = time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[workers] = time.monotonic() - begin
    print(
        f"16 simulations: {seconds[1]:.1f} s by one process, {seconds[2]:.1f} s by two: {seconds[1] / seconds[2]:.2f}"
    )


# Accuracy


def print_accuracy() -> None:
    for shear in (False, True):
        path = walk(16, shear=shear)
        plain = stresses(Settings(), path)
        tight = stresses(Settings(tolerance=1e-7), path)
        direct = stresses(Settings(solver="direct", tolerance=1e-7), path)
        scale = np.abs(direct).max()
        kind = "six components" if shear else "normal"
        print(f"{kind}: tolerance 1e-5 against 1e-7: {np.abs(plain - tight).max() / scale:.1e} of the largest stress")
        print(f"{kind}: kept factor against direct: {np.abs(tight - direct).max() / scale:.1e}")
    for resolution in (8, 12):
        print(f"{resolution}^3 against 16^3, microstructure 0: {mesh_error(resolution):.4f}")
    for number in range(4):
        faces = stresses(Settings(boundary="faces"), walk(16, shear=False), number)
        periodic = stresses(Settings(), walk(16, shear=False), number)
        print(f"microstructure {number}: flat faces against periodic {distance(faces, periodic):.3f}")


def mesh_error(resolution: int, num_steps: int = 8) -> float:
    path = walk(num_steps, shear=False)
    return distance(stresses(Settings(resolution), path), stresses(Settings(16), path))


def superposed(found: sets.SimulationSet) -> tuple[np.ndarray, np.ndarray]:
    """Stresses by superposition, stiffnesses on the same grid, and by finite elements: (cube, loading, time, 6)."""
    plan = found.plan
    geometry = composite.CompositeGeometry(plan.num_spheres, plan.volume_fraction, plan.resolution, plan.gap)
    stiffnesses = compute_stiffnesses(geometry, range(plan.num_microstructures))
    loadings = plan.loadings._replace(log_strain=found.log_strain)
    linear = composite.respond(loadings, [stiffnesses[i] for i in range(plan.num_microstructures)], plan.prony)
    return linear, found.stress.reshape(linear.shape)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def print_superposition() -> None:
    found = sets.read_set(sets.SHIPPED["viscoelastic"])
    names = found.plan.loadings.names
    linear, exact = superposed(found)
    print("| loadings | stress | mean over microstructures | deviations from the mean | std ratio | spread / stress |")
    print("|---|---|---|---|---|---|")
    kinds = {"normal walks": "normal walk", "walks of six components": "walk", "all": ""}
    for kind, start in kinds.items():
        chosen = [i for i, name in enumerate(names) if name.startswith(start)]
        a, b = linear[:, chosen], exact[:, chosen]
        apart = rms((a - a.mean(0)) - (b - b.mean(0))) / rms(b - b.mean(0))
        ratio = a.std(0, ddof=1).mean() / b.std(0, ddof=1).mean()
        print(
            f"| {kind} | {rms(a - b) / rms(b):.3f} | {rms(a.mean(0) - b.mean(0)) / rms(b.mean(0)):.3f} | {apart:.3f} | "
            f"{ratio:.3f} | {rms(b.std(0, ddof=1)) / rms(b):.3f} |"
        )


# Pictures


def draw(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in (
        ("deformed", draw_deformed),
        ("mesh", draw_mesh),
        ("superposition", draw_superposition),
        ("boundaries", draw_boundaries),
    ):
        make().savefig(folder / f"finite-strain-{name}.png", dpi=110)
        print(folder / f"finite-strain-{name}.png", flush=True)


def draw_deformed():
    """Three microstructures in equibiaxial stretch of 5 % logarithmic strain; displacements three times as large."""
    ramp = np.linspace(0.0, 1.0, 26)[:, None] * np.array([0.05, -0.1, 0.05])
    cubes = {}
    for number in range(3):
        last = {}
        problem = problem_of(spheres(number), PRONY, Settings(12))
        follow(problem, np.arange(26.0), ramp, lambda n, state, last=last: last.update(state=state))
        state = last["state"]
        cubes[f"cube {number:03d}"] = (
            corner_positions(problem, state, magnified=3.0),
            equivalent_stress(problem, state),
        )
    return plots.deformed_cubes(cubes, label="von Mises stress [MPa]")


def draw_mesh():
    """Stress along a walk on three grids, and the difference from the finest."""
    path, times = walk(12, shear=False), np.arange(13.0)
    figure, axes = plots.new_figure(2, 1, width=4.2, height=3.2)
    found = {resolution: 1e3 * stresses(Settings(resolution), path) for resolution in RESOLUTIONS}
    for resolution, style in zip(RESOLUTIONS, (":", "--", "-"), strict=True):
        for k, colour in enumerate(("#0072B2", "#D55E00", "#009E73")):
            label = f"{resolution}³" if k == 0 else None
            axes[0, 0].plot(times, found[resolution][:, k], style, color=colour, lw=1.2, label=label)
    for resolution, style in zip(RESOLUTIONS[:-1], (":", "--"), strict=True):
        apart = np.linalg.norm(found[resolution] - found[16], axis=1) / np.linalg.norm(found[16], axis=1).max()
        axes[0, 1].plot(times, 100.0 * apart, style, color="k", label=f"{resolution}³ against 16³")
    axes[0, 0].set(xlabel="time [s]", ylabel="S11, S22, S33 [kPa]")
    axes[0, 1].set(xlabel="time [s]", ylabel="difference [% of the largest stress]")
    for axis in axes[0]:
        axis.legend(frameon=False, fontsize=8)
    return figure


def draw_superposition():
    """Mean stresses, and deviations of microstructures from it, by superposition against finite elements."""
    linear, exact = superposed(sets.read_set(sets.SHIPPED["viscoelastic"]))
    figure, axes = plots.new_figure(2, 1, width=3.8, height=3.6)
    pairs = {
        "mean, finite elements [kPa]": (linear.mean(0), exact.mean(0)),
        "deviation from it, finite elements [kPa]": (linear - linear.mean(0), exact - exact.mean(0)),
    }
    for axis, (label, (a, b)) in zip(axes[0], pairs.items(), strict=True):
        for components, colour, name in ((slice(0, 3), "#0072B2", "normal"), (slice(3, 6), "#D55E00", "shear")):
            x, y = (1e3 * part[..., components].ravel()[::11] for part in (b, a))
            axis.plot(x, y, ".", color=colour, ms=1.5, alpha=0.4, rasterized=True)
            axis.plot([], [], ".", color=colour, ms=6, label=name)
        axis.axline((0.0, 0.0), slope=1.0, color="k", lw=0.7, ls="--")
        axis.set(xlabel=label, ylabel="superposition")
        axis.legend(frameon=False, fontsize=8)
        axis.set_title(f"error {100.0 * rms(a - b) / rms(b):.0f} %", fontsize=10)
    return figure


def draw_boundaries():
    """Stress along a walk of two microstructures, with periodic boundaries and with flat faces."""
    path, times = walk(30, shear=False), np.arange(31.0)
    figure, axes = plots.new_figure(2, 1, width=4.2, height=3.2, sharey=True)
    for number, axis in enumerate(axes[0]):
        styles: dict[Boundary, str] = {"periodic": "-", "faces": "--"}
        for boundary, style in styles.items():
            found = 1e3 * stresses(Settings(boundary=boundary), path, number)
            for k, (name, colour) in enumerate((("S11", "#0072B2"), ("S22", "#D55E00"), ("S33", "#009E73"))):
                axis.plot(times, found[:, k], style, color=colour, lw=1.2, label=f"{name}, {boundary}")
        axis.set(xlabel="time [s]", ylabel="stress [kPa]")
        axis.set_title(f"cube {number:03d}", fontsize=10)
    axes[0, 0].legend(frameon=False, fontsize=7, ncols=2)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    for name in ("times", "accuracy", "superposition", "workers"):
        what.add_parser(name)
    what.add_parser("pictures").add_argument("--out", type=Path, required=True)
    one = what.add_parser("one")
    for name in ("resolution", "num_steps", "shear"):
        one.add_argument(name, type=int)
    given = parser.parse_args()
    if given.what == "one":
        print_one(given.resolution, given.num_steps, bool(given.shear))
    elif given.what == "pictures":
        draw(given.out)
    else:
        {
            "times": print_times,
            "accuracy": print_accuracy,
            "superposition": print_superposition,
            "workers": print_workers,
        }[given.what]()


if __name__ == "__main__":
    main()
