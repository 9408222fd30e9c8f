"""Clocks: a main time, and periods of byo-yomi."""

import random

from zero_app._play._clock import Clock


def test_a_period_is_for_its_stones_and_then_begins_anew():
    clock = Clock.start(10.0, 30.0, 3)
    assert clock is not None
    seen = []
    # The second move begins the first period, the last but one overruns its own.
    for seconds in (4.0, 8.0, 1.0, 2.0, 5.0, 6.0, 50.0, 1.0):
        clock = clock.took(seconds)
        seen.append((clock.seconds, clock.moves))
    assert seen == [
        (6.0, 0),
        (28.0, 2),
        (27.0, 1),
        (30.0, 3),
        (25.0, 2),
        (19.0, 1),
        (30.0, 3),
        (29.0, 2),
    ]


def test_periods_of_one_move_begin_anew_after_every_move():
    clock = Clock.start(0.0, 10.0, 1)
    assert clock is not None and clock == Clock(10.0, 1, 10.0, 1) and clock.took(9.0) == clock
    # Of five periods that are left, the present one is for one move.
    assert clock.told(7.0, 5) == Clock(7.0, 1, 10.0, 1)


def test_a_main_time_alone_runs_out():
    clock = Clock.start(10.0, 0.0, 0)
    assert clock is not None and clock.took(4.0).took(7.0) == Clock(0.0)
    assert Clock.start(0.0, 30.0, 0) is None and Clock.start(5.0, 30.0, 0) is None


def test_shares_never_add_up_to_more_than_a_period():
    draws = random.Random(0)
    for _ in range(100):
        stones, period = draws.randint(1, 20), draws.uniform(1, 100)
        clock, spent = Clock(period, stones, period, stones), 0.0
        for _ in range(stones):
            spent += clock.share()
            clock = clock.took(clock.share())
        assert spent <= period and clock == Clock(period, stones, period, stones)


def test_a_main_time_is_spent_before_the_periods_and_no_period_is_lost():
    draws = random.Random(1)
    for _ in range(100):
        stones, period, main = draws.randint(1, 20), draws.uniform(1, 100), draws.uniform(1, 300)
        clock = Clock.start(main, period, stones)
        assert clock is not None
        for _ in range(200):
            # A move may begin in the main time and end in the first period.
            room = clock.seconds + (0.0 if clock.moves else period)
            assert clock.share() <= room
            clock = clock.took(clock.share())
            assert clock.seconds > 0
        assert clock.moves > 0
