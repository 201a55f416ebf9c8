"""An inference problem and its solution.

Belongs here: the problem and its parts (which weights are stochastic, prior, likelihood, target), Algorithm 1, the
point fit and the reference distributions about it, the posterior density as samplers see it, predictions and their
calibration. Does not belong here: configuration, files, anything printed.
"""
