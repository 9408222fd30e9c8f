"""Plays games in a real browser: `uv run nox -s browser`, or `-- --shots FOLDER` for pictures.

The browser is the system's chromium; nothing is downloaded. The players search and know nothing.
"""

import argparse
import contextlib
import json
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

from playwright.sync_api import Browser, Error, expect, Page, Request, Route, sync_playwright

import zero_minesweeper._serve as minesweeper
from zero_app import drawn, Frame, Question, Service
from zero_app._play._http import addresses, application, server
from zero_app._run._film import save_film
from zero_cli._board import Board
from zero_cli._worlds import build_world
from zero_envs import Minesweeper
from zero_minesweeper._table import Table
from zero_othello._board import Board as OthelloBoard
from zero_search import TreeSearch
from zero_train import EnvironmentModel, indifferent, PlanningActor


SIZES = {"desktop": (1280, 860), "phone": (390, 844), "small": (320, 568)}
TOKEN = "a-token"


def game_of(name: str) -> Service:
    """A game of pgx, or Othello, with a player that searches and knows nothing."""
    world = build_world(name)
    env: Any = world.env
    page: Any = (OthelloBoard() if name == "othello" else Board(world)).page
    player = PlanningActor(TreeSearch.alphazero(16), EnvironmentModel(env, indifferent))
    return Service.of_search(env, player, page)


def minefields() -> list[Service]:
    """Two boards, of which a person chooses one."""
    boards = [Minesweeper(9, 9, 10, pays="win"), Minesweeper(5, 6, 4, pays="win")]
    return [minesweeper.service(Table(board), board) for board in boards]


@contextlib.contextmanager
def served(services: list[Service]) -> Iterator[str]:
    """Where their page is."""
    for service in services:
        # Also at the strength that the page begins with, so that nothing is compiled meanwhile.
        for simulations in service.about()["strengths"][:3]:
            service.answer(Question(think=True, simulations=simulations))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        serving = server(application(services, "127.0.0.1", port, TOKEN))
        thread = threading.Thread(target=serving.run, args=([listening],), daemon=True)
        thread.start()
        yield addresses("127.0.0.1", port, TOKEN)[0]
        serving.should_exit = True
        thread.join()


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
    expect(page.locator("#status")).to_contain_text("Your move")
    if page.locator("#strength").is_visible():
        page.select_option("#strength", "0")
    yield page
    # What is refused, and searches that have to wait, are errors to the browser alone.
    assert [
        error for error in errors if not any(code in error for code in ("503", "422", "429"))
    ] == [], errors
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
    text = page.locator("#text").input_value()
    number = page.locator("#moves li").count()
    assert number == (text.count(";") - 1 if text.startswith("(") else len(text.split()))
    stones = page.locator(".stone").count()
    # Every position gets its value, also those that nobody looked at.
    points = page.locator("#curve polyline")
    expect(points).to_have_attribute("points", _of(number + 1))
    check_the_curve(page, number)

    for _ in range(2):  # the second one begins anew what nobody has played
        page.keyboard.press("n")
        expect(page.locator("#status")).to_contain_text(
            "Undo brings the one before back. Your move"
        )
        expect(page.locator("#moves li")).to_have_count(0)
    page.keyboard.press("u")
    expect(page.locator("#status")).to_contain_text("The game before is back. The game is over")
    expect(page.locator("#text")).to_have_value(text)
    page.keyboard.press("n")
    expect(page.locator("#moves li")).to_have_count(0)
    page.locator("#text").fill(text)
    page.locator("#load").click()
    expect(page.locator("#status")).to_contain_text("The game is over")
    assert page.locator(".stone").count() == stones
    # The same by files.
    with page.expect_download() as download:
        page.locator("#save").click()
    file = download.value.path()
    page.locator("#undo").click()
    expect(page.locator("#status")).to_contain_text("Taken back")
    expect(page.locator("#moves li")).not_to_have_count(number)
    page.locator("#file").set_input_files(file)
    expect(page.locator("#text")).to_have_value(text)
    page.locator("#undo").click()
    expect(page.locator("#text")).not_to_have_value(text)

    before = page.locator("#text").input_value()
    page.locator("#text").fill("nonsense")
    page.locator("#load").click()
    refused = re.compile("^Nothing was loaded. .*'nonsense', is no move of this game")
    expect(page.locator("#status.alert")).to_contain_text(refused)
    expect(page.locator("#legend")).to_be_hidden()
    page.keyboard.press("Tab")  # out of the text
    page.locator("#analysis").check()
    expect(page.locator("#candidates tr").first).to_be_visible()
    expect(page.locator("#legend")).to_contain_text(
        re.compile("how likely the network plays there|which moves are the best")
    )
    expect(page.locator("#text")).to_have_value(before)
    check_a_busy_server(page)
    last = page.locator("#moves li").last.inner_text().split()[1]
    known = r"winning chance \d+\xa0%|solved: it ends [+-]?\d+ for \S+ if both play the best moves"
    said = re.compile(rf"^After {last}: \S+ to move, ({known})\.$")
    expect(page.get_by_role("status").filter(has_text=said)).to_have_count(1)
    wins = page.locator(".cell[aria-label*='legal'][aria-label*='% of the search, winning chance']")
    expect(wins.or_(page.locator("#others button")).first).to_be_attached()


def check_the_curve(page: Page, number: int) -> None:
    """After another strength was chosen, its values and blunders are those of that strength."""
    asked: list[Request] = []
    keep = lambda request: asked.append(request)
    page.on("requestfinished", keep)
    page.select_option("#strength", "16")
    points = page.locator("#curve polyline")
    expect(points).not_to_have_attribute("points", _of(number + 1))
    expect(points).to_have_attribute("points", _of(number + 1))
    chances: dict[int, float] = {}
    first: dict[int, bool] = {}
    for request in asked:
        question, response = request.post_data_json, request.response()
        assert question and question["simulations"] == 16
        if response and response.ok and (thought := response.json()["thought"]):
            mine, ply = (thought["value"] + 1) / 2, len(question["moves"])
            first[ply] = response.json()["side"] == 0
            chances[ply] = mine if first[ply] else 1 - mine
    page.remove_listener("requestfinished", keep)
    drawn = str(points.get_attribute("points")).split()
    assert sorted(chances) == list(range(number))
    for ply, share in chances.items():
        assert abs(float(drawn[ply].split(",")[1]) - (116 - 102 * share)) < 1e-6
    chances[number] = (116 - float(drawn[number].split(",")[1])) / 102  # of how the game ended
    change = [chances[ply + 1] - chances[ply] for ply in range(number)]
    bad = [ply for ply in range(number) if (-change[ply] if first[ply] else change[ply]) >= 0.2]
    marked = page.locator("#moves li").evaluate_all("all => all.map(e => e.matches('.blunder'))")
    assert bad == [ply for ply in range(number) if marked[ply]] != []
    assert page.locator("#curve .blunder").count() == len(bad)
    page.select_option("#strength", "0")


def check_a_busy_server(page: Page) -> None:
    """The page says that it has to wait, goes on asking, and says when it is the person's turn."""

    def search(route: Route) -> None:
        question = route.request.post_data_json
        if question and question["think"]:
            route.fulfill(status=503, json={"error": "busy"})
        else:
            route.continue_()

    page.route("**/position", search)
    page.select_option("#strength", "64")
    expect(page.locator("#status")).to_have_text("Your move.")
    expect(page.locator("#status")).to_contain_text("The server is busy")
    page.unroute("**/position")
    expect(page.locator("#status")).to_have_text("Your move.")


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


def check_pieces(page: Page) -> None:
    """A move by two presses, with the mouse and then with the keyboard, and what is heard."""
    legal = page.locator(".cell[data-legal]")
    legal.first.click()
    expect(page.locator("#status")).to_contain_text("where to?")
    page.keyboard.press("Escape")
    expect(page.locator(".selected")).to_have_count(0)
    legal.first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".selected")).to_have_count(1)
    page.locator(".cell[data-legal]").first.click()
    expect(page.locator("#moves li")).to_have_count(2)  # with the reply
    status(page)
    page.keyboard.press("u")
    expect(page.locator("#moves li")).to_have_count(0)


def check_minesweeper(page: Page, shots: pathlib.Path | None) -> None:
    """Cells, flags, risks, the end and what is taken back, on a board that a seed chooses."""
    page.locator("#seed").fill("7")
    page.keyboard.press("Tab")
    page.locator("#new").click()
    expect(page.locator("#text")).to_have_value("seed:7")
    assert page.locator(".risk").count() == 0, "risks are shown although nobody asked"
    page.locator("#analysis").check()
    expect(page.locator(".risk")).to_have_count(81)
    expect(page.locator(".cell.best")).to_have_count(1)
    assert "12\u00a0% a mine" in str(page.locator(".cell").nth(40).get_attribute("aria-label"))

    # Flags by the keyboard, the other mouse button, and the button for fingers.
    page.locator(".cell").nth(0).focus()
    page.keyboard.press("f")
    page.locator(".cell").nth(1).click(button="right")
    page.locator("#flag").click()
    page.locator(".cell").nth(2).click()
    page.locator("#flag").click()
    expect(page.locator(".flag")).to_have_count(3)
    page.locator(".cell").nth(0).click()
    expect(page.locator("#status")).to_contain_text("a1 has a flag")
    for cell in range(3):
        page.locator(".cell").nth(cell).click(button="right")
    expect(page.locator(".flag")).to_have_count(0)

    # Always the recommended cell, until the end; whoever loses takes it back and goes on.
    for _ in range(200):
        said = page.locator("#status").inner_text()
        if "You win" in said:
            break
        if "You lose" in said:
            page.keyboard.press("u")
            expect(page.locator("#status")).to_contain_text("Your move")
            bad = _worst(page)
            page.locator(".cell").nth(bad).click(button="right")
        before = page.locator("#moves li").count()
        expect(page.locator(".cell.best, .cell[data-word=mine]").first).to_be_visible()
        best = page.locator(".cell.best")
        if best.count():
            if best.locator(".flag").count():
                _open_another(page)
            else:
                best.focus()
                page.keyboard.press("Enter")
            expect(page.locator("#moves li")).not_to_have_count(before)
        if shots and before < 30 <= page.locator("#moves li").count():
            page.wait_for_timeout(500)
            page.screenshot(path=shots / "minesweeper-midgame.png", full_page=True)
        _settled(page)
    assert "You win" in page.locator("#status").inner_text()
    expect(page.locator(".cell[data-word=mine]")).to_have_count(10)
    if shots:
        page.screenshot(path=shots / "minesweeper-won.png", full_page=True)

    # Another board.
    page.select_option("#game", "1")
    expect(page.locator(".cell")).to_have_count(30)
    expect(page.locator("#title")).to_contain_text("5 x 6")
    check_that_risks_need_no_search(page)


def check_that_risks_need_no_search(page: Page) -> None:
    """They are there while a search, which here never ends, is waited for."""

    def games(route: Route) -> None:
        served = route.fetch().json()
        served[0]["strengths"] = [0, 64]
        route.fulfill(json=served)

    def search(route: Route) -> None:
        question = route.request.post_data_json
        if question and question["simulations"] and question["think"]:
            route.fulfill(status=503, json={"error": "busy"})
        elif question:
            route.continue_(post_data=json.dumps({**question, "simulations": 0}))

    page.route("**/api/games", games)
    page.route("**/position", search)
    page.reload()
    page.locator("#analysis").check()
    expect(page.locator("#strength")).to_have_value("64")
    expect(page.locator(".risk")).to_have_count(81)
    expect(page.locator("#legend")).to_contain_text("the chance of a mine in percent, exact")
    page.unroute("**/position")
    page.unroute("**/api/games")


def _settled(page: Page) -> None:
    """Waits until the thoughts about the position are there."""
    over = page.locator("#status").filter(has_text="over")
    expect(page.locator(".cell.best").or_(over).first).to_be_visible()


def _worst(page: Page) -> int:
    """The mine that was opened before it was taken back: what was the recommended cell."""
    _settled(page)
    return int(page.locator(".cell.best").get_attribute("data-cell") or 0)


def _open_another(page: Page) -> None:
    """Opens the cell of the least risk that has no flag."""
    cells = page.locator(".cell:not(:has(.flag)):has(.risk)").all()
    risk = lambda cell: int(cell.locator(".risk").inner_text().replace("<", ""))
    min(cells, key=risk).click()


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
    parser.add_argument("--games", nargs="*", help="those alone, such as pgx/go_9x9")
    options = parser.parse_args()
    expect.set_options(timeout=60_000)  # the first search is compiled
    checks = {
        "pgx/connect_four": lambda page: check_a_game(page, random.Random(0)),
        "othello": lambda page: check_a_game(page, random.Random(0)),
        "pgx/animal_shogi": check_pieces,
        "minesweeper": lambda page: check_minesweeper(page, options.shots),
    }
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=options.chromium, args=["--no-sandbox"]
            )
        except Error as e:
            sys.exit(f"{options.chromium} cannot be started ({e}): install chromium")
        check_a_film(browser)
        print("a film was gone through", flush=True)
        for name in options.games or checks:
            services = minefields() if name == "minesweeper" else [game_of(name)]
            with served(services) as url:
                check_looks(browser, url, name, options.shots)
                with opened(browser, url, "desktop", "light") as page:
                    checks.get(name, status)(page)
                stranger = browser.new_page()
                stranger.goto(url.partition("#")[0])
                expect(stranger.locator("#status")).to_contain_text("open the whole address")
                stranger.close()
            print(f"{name}: looked at and played", flush=True)
        browser.close()


def check_looks(browser: Browser, url: str, name: str, shots: pathlib.Path | None) -> None:
    """Every size in dark and in light."""
    grounds = set()
    for size in SIZES:
        for scheme in ("light", "dark"):
            with opened(browser, url, size, scheme) as page:
                page.locator("#analysis").check()
                expect(page.locator("#candidates tr").first).to_be_visible()
                check_what_is_read_out(page)
                body = page.locator("body")
                grounds.add(body.evaluate("e => getComputedStyle(e).backgroundColor"))
                if shots:
                    file = f"{name.replace('/', '-')}-{size}-{scheme}.png"
                    page.screenshot(path=shots / file, full_page=True)
    assert len(grounds) == 2, grounds


if __name__ == "__main__":
    main()
