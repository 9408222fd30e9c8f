"""Plays games in a real browser: `uv run nox -s browser`, or `-- --shots FOLDER` for pictures.

The browser is the system's chromium; nothing is downloaded. The players have random parameters.
"""

import argparse
import contextlib
import pathlib
import random
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import jax
from playwright.sync_api import Browser, Error, expect, Page, sync_playwright

import zero_cli._apps as zero
import zero_othello.__main__ as othello
from zero_cli._config import presets
from zero_train.app import (
    AbstractConfig,
    AbstractServe,
    App,
    drawn,
    Frame,
    Question,
    Service,
    Trained,
)
from zero_train.app._film import save_film
from zero_train.app._serve._http import address, application, run


SIZES = {"desktop": (1280, 860), "phone": (390, 844), "small": (320, 568)}
TOKEN = "a-token"


@contextlib.contextmanager
def served(app: App, config: AbstractConfig) -> Iterator[str]:
    """Where the page of a player with random parameters is."""
    loop = app.build(config)
    player: Any = loop.agent.actor(loop.agent.init(key=jax.random.key(0)), explore=False)
    command = app.commands["serve"]
    assert issubclass(command, AbstractServe)
    trained = Trained(config, loop, player, 0)
    env: Any = loop.env
    service = Service(env, player, command("run").page(trained))
    service.answer(Question(think=True))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        served = application(service, "127.0.0.1", port, TOKEN)
        threading.Thread(target=run, args=(served, listening), daemon=True).start()
        yield address("127.0.0.1", port, TOKEN)


@contextlib.contextmanager
def opened(browser: Browser, url: str, size: str, scheme: str) -> Iterator[Page]:
    """A page with a new game, of which no error may be heard."""
    width, height = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.goto(url)
    page.select_option("#strength", "0")
    expect(page.locator("#status")).to_contain_text("Your move")
    yield page
    # What is refused, and searches that have to wait, are errors to the browser alone.
    assert [error for error in errors if "503" not in error and "422" not in error] == [], errors
    page.close()


def status(page: Page) -> str:
    """What the page says when it is the person's turn, or the game is over."""
    said = ""
    for _ in range(600):
        said = page.locator("#status").inner_text()
        if "Your move" in said or "over" in said or "ended" in said:
            return said
        page.wait_for_timeout(50)
    raise AssertionError(f"the page still says {said!r}")


def play_by_keyboard(page: Page, draws: random.Random) -> None:
    """A whole game with arrow keys and Enter, at random."""
    while "over" not in status(page):
        before = page.locator("#text").input_value()
        legal = page.locator(".cell[data-legal]")
        if not legal.count():
            page.locator("#others button").first.click()  # a pass
        else:
            wanted = legal.nth(draws.randrange(legal.count())).get_attribute("data-cell")
            steps = (("ArrowLeft", 20), ("ArrowUp", 20), *_way(page, int(wanted or 0)))
            for key, times in steps:
                for _ in range(times):
                    page.keyboard.press(key)
            page.keyboard.press("Enter")
        expect(page.locator("#text")).not_to_have_value(before)


def _way(page: Page, cell: int) -> tuple[tuple[str, int], ...]:
    """The steps from the upper left corner to a cell."""
    columns = int(page.locator("#board").evaluate("e => e.style.getPropertyValue('--columns')"))
    return ("ArrowDown", cell // columns), ("ArrowRight", cell % columns)


def check_a_game(page: Page, draws: random.Random) -> None:
    """Its end, its text, and what is taken back."""
    play_by_keyboard(page, draws)
    assert "The game is over: " in status(page)
    moves = page.locator("#text").input_value().split()
    assert page.locator("#moves li").count() == len(moves)
    stones = page.locator(".stone").count()
    # Every position gets its value, also those that nobody looked at.
    points = page.locator("#curve polyline")
    expect(points).to_have_attribute("points", _of(len(moves) + 1))

    page.keyboard.press("n")
    expect(page.locator("#text")).to_have_value("")
    page.locator("#text").fill(" ".join(moves))
    page.locator("#load").click()
    expect(page.locator("#status")).to_contain_text("The game is over")
    assert page.locator(".stone").count() == stones
    page.locator("#undo").click()
    expect(page.locator("#status")).to_contain_text("Taken back")
    assert len(page.locator("#text").input_value().split()) < len(moves)

    before = page.locator("#text").input_value()
    page.locator("#text").fill("nonsense")
    page.locator("#load").click()
    expect(page.locator("#status")).to_contain_text("'nonsense', is no move of this game")
    page.keyboard.press("Tab")  # out of the text
    page.locator("#analysis").check()
    expect(page.locator("#candidates tr").first).to_be_visible()
    expect(page.locator("#text")).to_have_value(before)


def _of(points: int) -> re.Pattern[str]:
    return re.compile(rf"^\S+( \S+){{{points - 1}}}$")


def check_what_is_read_out(page: Page) -> None:
    """Every button and field has a name, and nothing has to be scrolled to the side."""
    for control in page.locator("button, select, input, textarea, svg").all():
        if control.is_visible():
            name = control.evaluate(
                "e => e.getAttribute('aria-label') || e.innerText || e.labels?.[0]?.innerText"
            )
            assert name, control.evaluate("e => e.outerHTML")
    assert page.locator("#status").get_attribute("aria-live") == "polite"
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{wide} pixels too wide"


def check_a_film(browser: Browser) -> None:
    """Buttons, arrow keys and the slider go through a film, which plays by itself too."""
    frames = [Frame(drawn(lambda _, i=i: str(i)), f"move {i}", 0.05) for i in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "film.html"
        save_film(path, frames)
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        said = page.locator(".said")
        expect(said).to_have_text("move 0")
        page.locator("[data-by=on]").click()
        expect(said).to_have_text("move 1")
        page.locator("h1").click()
        for key, number in (("ArrowRight", 2), ("ArrowLeft", 1)):
            page.keyboard.press(key)
            expect(said).to_have_text(f"move {number}")
        page.locator(".film").focus()
        page.keyboard.press("End")
        expect(page.locator(".stage text")).to_have_text("4")
        page.locator("input").fill("3")
        expect(said).to_have_text("move 3")
        page.locator("[data-by=start]").click()
        page.locator("[data-by=play]").click()
        expect(said).to_have_text("move 4")
        expect(page.locator("[data-by=play]")).to_have_text("play")
        assert asked == [path.as_uri()], asked
        page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    parser.add_argument("--shots", type=pathlib.Path)
    options = parser.parse_args()
    games = {
        "connect-four": (zero.APP, presets("pgx/connect_four", "alphazero", 84)["tiny"]),
        "othello": (othello.APP, othello.APP.presets["tiny"]),
    }
    expect.set_options(timeout=60_000)  # the first search is compiled
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=options.chromium, args=["--no-sandbox"]
            )
        except Error as e:
            sys.exit(f"{options.chromium} cannot be started ({e}): install chromium")
        check_a_film(browser)
        print("a film was gone through", flush=True)
        for name, (app, config) in games.items():
            with served(app, config) as url:
                grounds = set()
                for size in SIZES:
                    for scheme in ("light", "dark"):
                        with opened(browser, url, size, scheme) as page:
                            page.locator("#analysis").check()
                            expect(page.locator("#candidates tr").first).to_be_visible()
                            check_what_is_read_out(page)
                            body = page.locator("body")
                            grounds.add(body.evaluate("e => getComputedStyle(e).backgroundColor"))
                            if options.shots:
                                page.screenshot(
                                    path=options.shots / f"{name}-{size}-{scheme}.png",
                                    full_page=True,
                                )
                assert len(grounds) == 2, grounds
                with opened(browser, url, "desktop", "light") as page:
                    check_a_game(page, random.Random(0))
                stranger = browser.new_page()
                stranger.goto(url.partition("#")[0])
                expect(stranger.locator("#status")).to_contain_text("open the whole address")
                stranger.close()
            print(f"{name}: a game was played, taken back and loaded", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
