"""Textbook tables of repeated readings of units, as numbers; and how to make data sets of them."""

import numpy as np

from langenode.data import Dataset

# Theophylline after one oral dose: weight [kg], dose [mg/kg], times [h], concentrations [mg/l], twelve subjects.
THEOPHYLLINE = (
    (
        79.6,
        4.02,
        (0, 0.25, 0.57, 1.12, 2.02, 3.82, 5.1, 7.03, 9.05, 12.12, 24.37),
        (0.74, 2.84, 6.57, 10.5, 9.66, 8.58, 8.36, 7.47, 6.89, 5.94, 3.28),
    ),
    (
        72.4,
        4.4,
        (0, 0.27, 0.52, 1, 1.92, 3.5, 5.02, 7.03, 9, 12, 24.3),
        (0, 1.72, 7.91, 8.31, 8.33, 6.85, 6.08, 5.4, 4.55, 3.01, 0.9),
    ),
    (
        70.5,
        4.53,
        (0, 0.27, 0.58, 1.02, 2.02, 3.62, 5.08, 7.07, 9, 12.15, 24.17),
        (0, 4.4, 6.9, 8.2, 7.8, 7.5, 6.2, 5.3, 4.9, 3.7, 1.05),
    ),
    (
        72.7,
        4.4,
        (0, 0.35, 0.6, 1.07, 2.13, 3.5, 5.02, 7.02, 9.02, 11.98, 24.65),
        (0, 1.89, 4.6, 8.6, 8.38, 7.54, 6.88, 5.78, 5.33, 4.19, 1.15),
    ),
    (
        54.6,
        5.86,
        (0, 0.3, 0.52, 1, 2.02, 3.5, 5.02, 7.02, 9.1, 12, 24.35),
        (0, 2.02, 5.63, 11.4, 9.33, 8.74, 7.56, 7.09, 5.9, 4.37, 1.57),
    ),
    (
        80,
        4,
        (0, 0.27, 0.58, 1.15, 2.03, 3.57, 5, 7, 9.22, 12.1, 23.85),
        (0, 1.29, 3.08, 6.44, 6.32, 5.53, 4.94, 4.02, 3.46, 2.78, 0.92),
    ),
    (
        64.6,
        4.95,
        (0, 0.25, 0.5, 1.02, 2.02, 3.48, 5, 6.98, 9, 12.05, 24.22),
        (0.15, 0.85, 2.35, 5.02, 6.58, 7.09, 6.66, 5.25, 4.39, 3.53, 1.15),
    ),
    (
        70.5,
        4.53,
        (0, 0.25, 0.52, 0.98, 2.02, 3.53, 5.05, 7.15, 9.07, 12.1, 24.12),
        (0, 3.05, 3.05, 7.31, 7.56, 6.59, 5.88, 4.73, 4.57, 3, 1.25),
    ),
    (
        86.4,
        3.1,
        (0, 0.3, 0.63, 1.05, 2.02, 3.53, 5.02, 7.17, 8.8, 11.6, 24.43),
        (0, 7.37, 9.03, 7.14, 6.33, 5.66, 5.67, 4.24, 4.11, 3.16, 1.12),
    ),
    (
        58.2,
        5.5,
        (0, 0.37, 0.77, 1.02, 2.05, 3.55, 5.05, 7.08, 9.38, 12.1, 23.7),
        (0.24, 2.89, 5.22, 6.41, 7.83, 10.21, 9.18, 8.02, 7.14, 5.68, 2.42),
    ),
    (
        65,
        4.92,
        (0, 0.25, 0.5, 0.98, 1.98, 3.6, 5.02, 7.03, 9.03, 12.12, 24.08),
        (0, 4.86, 7.24, 8, 6.81, 5.87, 5.22, 4.45, 3.62, 2.69, 0.86),
    ),
    (
        60.5,
        5.3,
        (0, 0.25, 0.5, 1, 2, 3.52, 5.07, 7.07, 9.03, 12.05, 24.15),
        (0, 1.25, 3.96, 7.82, 9.72, 9.75, 8.57, 6.59, 6.11, 4.57, 1.17),
    ),
)
# Circumferences [mm] of five orange trees at the same ages [days].
AGES = (118, 484, 664, 1004, 1231, 1372, 1582)
CIRCUMFERENCES = (
    (30, 58, 87, 115, 120, 142, 145),
    (33, 69, 111, 156, 172, 203, 203),
    (30, 51, 75, 108, 115, 139, 140),
    (32, 62, 112, 167, 179, 209, 214),
    (30, 49, 81, 125, 142, 174, 177),
)


def theophylline() -> Dataset:
    """Concentrations, with the dose in mg as the input."""
    rows = [
        {"times": times, "outputs": readings, "inputs": np.full((len(times), 1), weight * dose), "unit": str(number)}
        for number, (weight, dose, times, readings) in enumerate(THEOPHYLLINE)
    ]
    rows = [row | {"times": np.array(row["times"], float), "outputs": np.array(row["outputs"], float)} for row in rows]
    return Dataset.from_list(rows, input_names=["dose"], output_names=["conc"])


def orange_trees() -> Dataset:
    """Circumferences by age, without inputs."""
    ages = np.array(AGES, float)
    rows = [{"times": ages, "outputs": np.array(tree, float), "unit": str(k)} for k, tree in enumerate(CIRCUMFERENCES)]
    return Dataset.from_list(rows, output_names=["circumference"])
