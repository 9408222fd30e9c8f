"""Where does the time of a step go? Writes a profile for TensorBoard or Perfetto.

    uv run python benchmarks/_trace.py othello traces/othello

One JSON line: the seconds of a step that was compiled before, and where the profile is. With
`--after N` it is the step after `N` others: a player that has learned may make its steps longer.
"""

import argparse
import json

import jax
import jax.random as jr
from _turns import clocked

from zero_app import start_jax
from zero_cli._apps import APPS
from zero_train import fill, init, step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("app", choices=list(APPS))
    parser.add_argument("folder", help="for the profile")
    parser.add_argument("--preset", help="by default the app's own for this device")
    parser.add_argument("--after", type=int, default=1, help="so many steps (1)")
    options = parser.parse_args()
    start_jax()
    app = APPS[options.app]
    preset = options.preset or app.preset or next(iter(app.presets))
    loop = app.build(app.presets[preset])
    state = fill(loop, init(loop, key=jr.key(0)))
    for _ in range(options.after):
        state, _ = jax.block_until_ready(step(loop, state))
    with jax.profiler.trace(options.folder):
        seconds = clocked(step, loop, state)
    found = {"app": options.app, "preset": preset, "after": options.after}
    found |= {"seconds": round(seconds, 3), "device": jax.devices()[0].device_kind}
    print(json.dumps(found | {"folder": options.folder}))


if __name__ == "__main__":
    main()
