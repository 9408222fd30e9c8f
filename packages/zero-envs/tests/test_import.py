"""Importing the package costs nothing."""

import subprocess
import sys


def test_importing_starts_no_backend_and_leaves_others_alone():
    """JAX refuses to change the number of CPU devices once a backend runs."""
    code = (
        "import sys, jax, zero_envs, zero_envs.testing\n"
        "assert not {'brax', 'jumanji', 'mujoco', 'pgx'} & sys.modules.keys()\n"
        "jax.config.update('jax_num_cpu_devices', 3)\n"
        "assert len(jax.devices('cpu')) == 3\n"
        "try:\n"
        "    jax.config.update('jax_num_cpu_devices', 2)\n"
        "except RuntimeError:\n"
        "    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "refused"
