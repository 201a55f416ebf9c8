"""What a fit may fail of."""


class FitError(RuntimeError):
    """The fit failed: it left the finite numbers, or the target and the sampler do not go together."""
