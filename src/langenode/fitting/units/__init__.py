"""Fits of units that differ (target hierarchical): from a configuration to a family, its estimate and predictions.

`families` builds what all units have in common, `solving` estimates it, `predicting` serves new units and units with
known readings, `checking` scores and diagnoses.
"""
