"""Scores of predictions and samples, and whether to trust them.

Belongs here: metrics of predictions, the sampling floors they are compared with, diagnostics of samples, the verdict.
Inputs and outputs are arrays and plain numbers. Does not belong here: data sets, models, files.
"""
