"""How good predictions and samples are, and whether to trust them.

Belongs here: metrics of predictions, the sampling floors they are compared with, diagnostics of samples, the verdict.
Arrays and plain numbers go in and out. Does not belong here: data sets, models, files.
"""
