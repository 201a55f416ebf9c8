"""The demonstrations: a configuration, a generator, a problem, metrics and figures each."""
