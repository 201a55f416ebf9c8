"""Settings of the whole suite: 64-bit for closed forms, shapes checked at every call."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
install_import_hook("langenode", "beartype.beartype")
