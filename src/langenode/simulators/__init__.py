"""Generators of data: a parameter record and `simulate(parameters, num, key=...)` for each process.

Belongs here: exact or reference solutions of a process, and the data drawn from them. Does not belong here: models that
are fitted (`models`), and the settings of a demonstration (`experiments`).
"""
