"""Settings of the whole suite: 64-bit for closed forms, shapes checked at every call."""

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
# Most of the suite's time is compilation of programs that run once, so XLA's optimisations are left out.
jax.config.update("jax_disable_most_optimizations", True)
install_import_hook("langenode", "beartype.beartype")


@pytest.fixture(scope="module", autouse=True)
def programs_of_a_file_are_dropped():
    """A process may hold so many compiled programs (each maps memory) until the compiler crashes: drop a file's."""
    yield
    jax.clear_caches()
