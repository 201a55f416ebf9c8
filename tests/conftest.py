"""Settings of the whole suite: 64-bit for closed forms, shapes checked at every call."""

import os
import shutil
import tempfile

import jax
import pytest
from jaxtyping import install_import_hook

pytest.register_assert_rewrite("commands", "datasets", "pages", "problems", "small_fits")
jax.config.update("jax_enable_x64", True)
# Most of the suite's time is compilation of programs that run once, so XLA's optimisations are left out, and loops are
# written by the emitters that need least time, each program in one piece. Processes that tests start inherit the flags:
# only programs made alike give the same bits. They are read at the first compilation; the last word is the caller's.
QUICK_FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{QUICK_FLAGS} {os.environ.get('XLA_FLAGS', '')}".strip()
jax.config.update("jax_disable_most_optimizations", True)
install_import_hook("langenode", "beartype.beartype")


def pytest_configure(config):
    """Keep compiled programs on disk while the suite runs, by worker: what one file compiles serves the others."""
    folder = tempfile.mkdtemp(prefix="langenode-compiled-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(scope="module", autouse=True)
def programs_of_a_file_are_dropped():
    """Each compiled program maps memory, and the compiler crashes when a process has too many: drop those of a file."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, as the report's readers have it; without network."""
    from playwright.sync_api import sync_playwright

    from pages import ARGUMENTS, find_chromium

    profile = tmp_path_factory.mktemp("profile")
    path = find_chromium()
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(str(profile), executable_path=path, args=ARGUMENTS)
        yield context
        context.close()
