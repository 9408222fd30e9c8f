"""The report of a run: one HTML page."""

import numpy as np

from zero_app import chart, charts, curve, MAX_SERIES, RETURN, Series, StoredRun


def page(run: StoredRun) -> tuple[dict[str, str], list[str]]:
    """The figures and sections of the report."""
    rows = run.evaluations
    newest = {"return of the player (95 %)": RETURN.shown(rows[-1])} if rows else {}
    returned = curve(rows, RETURN.name, error=RETURN.bars)
    play = [
        chart(run, "Return", "Return of whole episodes; bars are 95 % intervals.", returned),
        chart(run, "Episode length", "In steps.", curve(rows, "length_mean"), from_zero=True),
    ]
    search = _search(run) if run.config.get("agent") == "spo" else []
    sections = {"Play": play, "Search": search, "Learning": _learning(run)}
    return newest, [charts(heading, *parts) for heading, parts in sections.items()]


def _by_depth(run: StoredRun, name: str) -> list[Series]:
    """A series for the first and the last depth, and for some in between."""
    depth = run.config.get("depth", 0)
    shown = np.linspace(1, depth, min(depth, MAX_SERIES)).round().astype(int)
    return [curve(run.metrics, f"{name}_{i}", f"depth {i}") for i in shown]


def _search(run: StoredRun) -> list[str]:
    size, kl, alive = (_by_depth(run, name) for name in ("ess_fraction", "kl_search", "alive"))
    fraction = "As a fraction of the particles, before resampling."
    weights = "Divergence of the particles' weights from equal ones."
    living = "Fraction of the particles whose episode is not over."
    better = "Mean advantage of the plan over the policy, as estimated by the search."
    return [
        chart(run, "Effective sample size", fraction, *size, from_zero=True),
        chart(run, "KL of the weights, over its bound", weights, *kl, levels=[("target", 1.0)]),
        chart(run, "Particles alive", living, *alive, from_zero=True),
        chart(run, "Improvement", better, curve(run.metrics, "improvement")),
    ]


def _learning(run: StoredRun) -> list[str]:
    values = "Mean value of the states in a batch."
    return [
        *(_clipped(run) if run.config.get("agent") == "ppo" else _bounded(run)),
        chart(run, "Value loss", "Half the squared error.", curve(run.metrics, "value_loss")),
        chart(run, "Mean value", values, curve(run.metrics, "value_mean")),
    ]


def _clipped(run: StoredRun) -> list[str]:
    """The policy of PPO."""
    changed = "From the policy that has collected the rows."
    entropy, ratios = "Of the policy.", "Fraction of the actions whose ratio is beyond the clip."
    return [
        chart(run, "KL divergence", changed, curve(run.metrics, "kl"), from_zero=True),
        chart(run, "Ratios", ratios, curve(run.metrics, "clipped"), from_zero=True),
        chart(run, "Entropy", entropy, curve(run.metrics, "policy_entropy")),
    ]


def _bounded(run: StoredRun) -> list[str]:
    """The policy within its trust region."""
    parts = ("_mean", "_stddev") if "kl_relative_mean" in (run.metrics or [{}])[0] else ("",)
    named = lambda name: [curve(run.metrics, name + part, part.strip("_")) for part in parts]
    temperature = "In the unit of rewards; it follows the KL below."
    improved = "KL divergence of the policy improved by the advantages; 1 is on target."
    old = "the target policy" if run.config.get("agent") != "vmpo" else "the policy that has acted"
    return [
        chart(run, "Temperature", temperature, curve(run.metrics, "temperature")),
        chart(
            run,
            "KL of the improved policy, over its bound",
            improved,
            curve(run.metrics, "kl_nonparametric_relative"),
            levels=[("target", 1.0)],
        ),
        chart(run, "KL of the policy, over its bound", f"From {old}.", *named("kl_relative")),
        chart(run, "Multipliers", "Multipliers of the policy's bounds.", *named("alpha")),
    ]
