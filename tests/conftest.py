"""Settings of the whole suite: 64-bit for closed forms, shapes checked at every call."""

import gc
import itertools
import os
import shutil
import tempfile
from pathlib import Path

# Read when the library is loaded: XLA logs two errors for every program that it reads from disk, which say nothing.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import pytest
from jaxtyping import install_import_hook

pytest.register_assert_rewrite("commands", "datasets", "pages", "problems", "small_fits")
jax.config.update("jax_enable_x64", True)
# Most of the suite's time is compilation of programs that run once, so XLA's optimisations are left out, and loops are
# written by the emitters that need least time, each program in one piece. Processes that tests start inherit the flags:
# only programs made alike give the same bits. They are read at the first compilation; the last word is the caller's.
# There is one device, which a command in the process of tests would not leave at that.
QUICK_FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
QUICK_FLAGS += "--xla_force_host_platform_device_count=1"
os.environ["XLA_FLAGS"] = f"{QUICK_FLAGS} {os.environ.get('XLA_FLAGS', '')}".strip()
jax.config.update("jax_disable_most_optimizations", True)
install_import_hook("langenode", "beartype.beartype")


# Where all workers of a run keep their programs; told to them by the process that starts them.
PROGRAMS = "LANGENODE_TEST_PROGRAMS"
MOST_MAPS = 20_000  # parts of memory that a process maps; Linux allows 65530


def pytest_configure(config):
    """Keep compiled programs on disk while the suite runs: what one file compiles serves the others, in all workers."""
    if PROGRAMS not in os.environ:
        os.environ[PROGRAMS] = tempfile.mkdtemp(prefix="langenode-compiled-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(PROGRAMS), ignore_errors=True))
    jax.config.update("jax_compilation_cache_dir", os.environ[PROGRAMS])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    share_contexts()


def share_contexts(num_programs=200):
    """Let programs share the compiler's context; filling a new one for each takes half as long as a small program.

    It is taken anew now and then, because it keeps all constants. The function is JAX's own and not public: without it
    the suite is slower, nothing else.
    """
    try:
        from jax._src.interpreters import mlir

        make, count, kept = mlir.make_ir_context, itertools.count(), []
        current = mlir.ir.Context  # pyright: ignore[reportPrivateImportUsage]
    except (ImportError, AttributeError):
        return

    def is_within_another():
        try:
            return current.current is not None
        except ValueError:
            return False

    def context():
        if is_within_another():  # a program made while another is written would become a part of it
            return make()
        if next(count) % num_programs == 0:
            kept[:] = [make()]
        return kept[0]

    mlir.make_ir_context = context


def pytest_collection_finish():
    """What is imported stays: the collector of garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def programs_are_dropped_when_there_are_many():
    """Each compiled program maps memory, and the compiler crashes when a process has too many."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="session")
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
