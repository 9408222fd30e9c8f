"""Random windows of rows, and multistep returns of them by their definitions: a sum over the
steps that are left, episode by episode, in plain loops and double precision."""

import numpy as np


ROWS, ACTIONS = 12, 4
#: What the step out of a row has. An end row has no step: these must not be read there.
OF_STEPS = ("reward", "discount", "qvalue", "coefficient", "log_ratio", "trace")


def windows(seed: int, *, batch: int = 16, finals: float = 0.2) -> dict[str, np.ndarray]:
    """Arrays `[batch, rows, ...]`. Discounts have both signs, and are 0 before half of the final
    rows: the others were truncated. End rows are NaN where they should not be read."""
    rng = np.random.default_rng(seed)
    shape = batch, ROWS
    reward, value, qvalue, log_ratio = rng.normal(size=(4, *shape))
    discount = rng.uniform(0.5, 1, shape) * rng.choice([-1, 1], shape)
    last = rng.random(shape) < finals
    discount[:, :-1] *= ~(last[:, 1:] & (rng.random((batch, ROWS - 1)) < 0.5))
    coefficient, trace = rng.uniform(0, 1.2, shape), rng.uniform(0, 1, shape)
    qvalues = rng.normal(size=(*shape, ACTIONS))
    qvalues[rng.random(qvalues.shape) < 0.2] = -np.inf
    qvalues[..., 0] = np.maximum(qvalues[..., 0], -3)
    legal = np.isfinite(qvalues)
    policy = rng.uniform(size=qvalues.shape) * legal
    policy /= policy.sum(-1, keepdims=True)
    # Greedy in about half the rows, so that Watkins's cut is seen.
    action = np.where(rng.random(shape) < 0.5, qvalues.argmax(-1), 0)
    window = dict(
        reward=reward,
        discount=discount,
        value=value,
        last=last,
        qvalue=qvalue,
        coefficient=coefficient,
        log_ratio=log_ratio,
        trace=trace,
        qvalues=qvalues,
        policy=policy,
        action=action.astype(np.int32),
    )
    ends = last | (np.arange(ROWS) == ROWS - 1)
    for name in OF_STEPS:
        window[name][ends] = np.nan
    return window


def by_definition(oracle, window, **options) -> np.ndarray:
    """`oracle(window, t, end)` of every row, where `end` is the last row of its episode."""
    batch, rows = window["last"].shape
    out = np.zeros((batch, rows))
    for b in range(batch):
        one = {name: np.asarray(x[b], np.float64) for name, x in window.items()}
        start = 0
        for end in [t for t in range(rows) if window["last"][b, t] or t == rows - 1]:
            for t in range(start, end + 1):
                out[b, t] = oracle(one, t, end, **options)
            start = end + 1
    return out


def mixed_return(w, t, end, *, n=ROWS, trace=None):
    """The returns of 1 to n steps, mixed by the chance to get that far."""
    if t == end:
        return w["value"][t]
    steps = min(n, end - t)
    result, rewards, scale, reach = 0.0, 0.0, 1.0, 1.0
    for k in range(1, steps + 1):
        i = t + k - 1
        weight = w["trace"][i] if trace is None else trace
        rewards += scale * w["reward"][i]
        scale *= w["discount"][i]
        stop = 1.0 if k == steps else 1 - weight
        result += reach * stop * (rewards + scale * w["value"][t + k])
        reach *= weight
    return result


def corrected_return(w, t, end):
    """Of action values: the one-step target, and the traced errors of all later steps."""
    if t == end:
        return w["value"][t]
    result, trace = w["reward"][t] + w["discount"][t] * w["value"][t + 1], 1.0
    for s in range(t + 1, end):
        trace *= w["discount"][s - 1] * w["coefficient"][s]
        error = w["reward"][s] + w["discount"][s] * w["value"][s + 1] - w["qvalue"][s]
        result += trace * error
    return result


def weighed_error(w, t, end, *, clip_rho=np.inf, clip_c=np.inf):
    """Of state values: the traced and weighed errors of this and all later steps."""
    result, trace = 0.0, 1.0
    for s in range(t, end):
        ratio = np.exp(w["log_ratio"][s])
        error = w["reward"][s] + w["discount"][s] * w["value"][s + 1] - w["value"][s]
        result += trace * min(clip_rho, ratio) * error
        trace *= w["discount"][s] * w["trace"][s] * min(clip_c, ratio)
    return result
