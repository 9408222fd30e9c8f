"""POMCP of RockSample on one thread in numba, as a peer of the search over beliefs.

    python benchmarks/belief_pomcp.py --size 15 --rocks 15 --simulations 1000

POMCP (Silver and Veness 2010) keeps a tree of actions and observations, UCB1 chooses in it, and a
simulation begins with a sample of the exact belief, adds a node and ends with random actions.
A JSON line: the mean discounted return with its standard error, and decisions a second.
"""

import argparse
import json
import math
import time

import numba
import numpy as np

from zero_envs import RockSample


GAMMA = 0.95


@numba.njit(cache=True)
def right(x, y, rock, places):
    """The probability that a rock is read rightly from a cell."""
    away = math.sqrt((places[rock, 0] - x) ** 2 + (places[rock, 1] - y) ** 2)
    return (1 + 2 ** (-away / 20)) / 2


@numba.njit(cache=True)
def advance(x, y, good, action, size, places):
    """One step in place. Returns x, y, the observation (0, bad 1, good 2), reward and the end."""
    if action == 0:
        return x, min(y + 1, size - 1), 0, 0.0, False
    if action == 1:
        return x, max(y - 1, 0), 0, 0.0, False
    if action == 2:
        return x + 1, y, 0, 10.0 * (x + 1 >= size), x + 1 >= size
    if action == 3:
        return max(x - 1, 0), y, 0, 0.0, False
    if action == 4:
        for rock in range(len(places)):
            if places[rock, 0] == x and places[rock, 1] == y:
                reward = 10.0 if good[rock] else -10.0
                good[rock] = False
                return x, y, 0, reward, False
        return x, y, 0, 0.0, False
    rock = action - 5
    reads_right = np.random.random() < right(x, y, rock, places)
    return x, y, 2 if good[rock] == reads_right else 1, 0.0, False


@numba.njit(cache=True)
def plan(x, y, odds, size, places, simulations, c, depth):
    """The best action at a belief: each rock is good with a probability of `odds`."""
    actions = 5 + len(places)
    visits = np.zeros((simulations + 2, actions))
    values = np.zeros((simulations + 2, actions))
    child = np.full((simulations + 2, actions, 3), -1, np.int64)
    used = 1
    path = np.empty((depth, 2), np.int64)
    rewards = np.empty(depth)
    good = np.empty(len(places), np.bool_)
    for _ in range(simulations):
        for rock in range(len(places)):
            good[rock] = np.random.random() < odds[rock]
        px, py, node, length, stored = x, y, 0, 0, 0
        inside = True
        while length < depth:
            if inside:
                total = visits[node].sum()
                best, action = -np.inf, 0
                for a in range(actions):
                    if visits[node, a] == 0:
                        action = a
                        break
                    score = values[node, a] + c * math.sqrt(math.log(total) / visits[node, a])
                    if score > best:
                        best, action = score, a
                path[length, 0], path[length, 1] = node, action
                stored = length + 1
            else:
                action = np.random.randint(actions)
            px, py, seen, reward, over = advance(px, py, good, action, size, places)
            rewards[length] = reward
            length += 1
            if over:
                break
            if inside:
                after = child[node, action, seen]
                if after < 0:
                    child[node, action, seen] = used
                    used += 1
                    inside = False
                else:
                    node = after
        total = 0.0
        for i in range(length - 1, -1, -1):
            total = rewards[i] + GAMMA * total
            if i < stored:
                node, action = path[i, 0], path[i, 1]
                visits[node, action] += 1
                values[node, action] += (total - values[node, action]) / visits[node, action]
    return np.argmax(values[0])


@numba.njit(cache=True)
def episode(size, places, start, simulations, c, depth, steps, seed):
    """The discounted return of an episode, and its decisions."""
    np.random.seed(seed)
    good = np.random.random(len(places)) < 0.5
    odds = np.full(len(places), 0.5)
    x, y, total = start[0], start[1], 0.0
    for i in range(steps):
        action = plan(x, y, odds, size, places, simulations, c, depth)
        nx, ny, seen, reward, over = advance(x, y, good, action, size, places)
        if action == 4:
            for rock in range(len(places)):
                if places[rock, 0] == x and places[rock, 1] == y:
                    odds[rock] = 0.0
        elif seen > 0:
            rock = action - 5
            likely = right(x, y, rock, places)
            likely = likely if seen == 2 else 1 - likely
            one = odds[rock] * likely
            odds[rock] = one / (one + (1 - odds[rock]) * (1 - likely))
        x, y = nx, ny
        total += GAMMA**i * reward
        if over:
            return total, i + 1
    return total, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=7)
    parser.add_argument("--rocks", type=int, default=8)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--c", type=float, default=20.0)
    parser.add_argument("--depth", type=int, default=90)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--runs", type=int, default=100)
    given = parser.parse_args()
    world = RockSample.of(given.size, given.rocks)
    places, start = np.asarray(world.rocks), np.asarray(world.start)
    run = lambda seed, simulations: episode(
        given.size, places, start, simulations, given.c, given.depth, given.steps, seed
    )
    run(0, 2)  # compiles
    begin = time.process_time()
    found = [run(seed, given.simulations) for seed in range(given.runs)]
    seconds = time.process_time() - begin
    returns, decisions = (np.asarray(x) for x in zip(*found, strict=True))
    report = {
        **vars(given),
        "mean": round(float(returns.mean()), 3),
        "error": round(float(returns.std(ddof=1) / math.sqrt(given.runs)), 3),
        "decisions_a_second": round(float(decisions.sum() / seconds), 2),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
