"""Runs as folders: the stages of one, and many side by side.

Belongs here: simulate, fit, predict, evaluate, report; sweeps and comparisons of methods; processes. The only place
that knows of more than one run, and of more than one machine. Does not belong here: how a fit is made (`fitting`), and
what the user typed (`cli`).
"""
