"""Pages and tables for people, laid out from files that a run has written.

Belongs here: the report of a run, the comparison of several, their templates. Does not belong here: computing a score
(`scores`) or drawing a figure (`plots`).
"""
