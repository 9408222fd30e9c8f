"""What must be set before JAX starts its backend."""

import importlib.metadata
import os
import pathlib

import jax


_SLOW_CONVOLUTIONS = "xla_cpu_experimental_ynn_fusion_type"


def start_jax(devices: int = 1) -> None:
    """Virtual devices of a CPU, and compiled programs kept on disk.

    Call it before any array is made. What the user's environment says goes before.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if importlib.metadata.version("jaxlib") == "0.10.2" and _SLOW_CONVOLUTIONS not in flags:
        # This version halves the speed of convolutions on a CPU (benchmarks/nets_conv_layout.py);
        # 0.10.1 does not, and other versions may not know the flag, which ends the process.
        os.environ["XLA_FLAGS"] = f"{flags} --{_SLOW_CONVOLUTIONS}=".strip()
    here = max(1, jax.config.jax_num_cpu_devices)  # pyright: ignore[reportAttributeAccessIssue]
    if devices > here and "xla_force_host_platform_device_count" not in flags:
        jax.config.update("jax_num_cpu_devices", devices)
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(caches / "zero" / "jax"))


def expects_accelerator() -> bool:
    """Whether JAX is going to use something faster than a CPU, as far as one can tell before its
    backend starts: asking JAX would start it."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms:
        return platforms.split(",")[0] != "cpu"
    return bool(importlib.metadata.entry_points(group="jax_plugins"))
