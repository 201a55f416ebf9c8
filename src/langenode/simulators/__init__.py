"""Data generators: a parameter record and `simulate(parameters, num, key=...)` each."""
