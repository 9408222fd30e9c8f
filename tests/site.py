"""Opens every page of the site from disk in a real browser: `uv run nox -s site`.

On a telephone and on a desktop, no page may scroll sideways, miss a picture or report an error, and
every link inside of the site must lead to a page and a place that are there. The browser is the
system's chromium; nothing is downloaded.
"""

import argparse
import pathlib
import shutil
import sys
import urllib.parse
from collections.abc import Iterator

from playwright.sync_api import Browser, Error, Page, sync_playwright


SITE = pathlib.Path(__file__).parents[1] / "site"
WIDTHS = (390, 1280)
#: The addresses of all links, and the places that a link can lead to.
_LINKS = "() => [...document.querySelectorAll('a[href]')].map((one) => one.href)"
_PLACES = """() =>
  [...document.querySelectorAll("[id], a[name]")].flatMap((one) => [one.id, one.name])"""
#: The pictures that were not loaded, also those further below than the browser has looked.
_MISSING = """async () => {
  const all = [...document.images];
  for (const one of all) one.loading = "eager";
  await Promise.allSettled(all.map((one) => one.decode()));
  return all.filter((one) => !one.naturalWidth).map((one) => one.src);
}"""
#: What reaches beyond the right edge, of which nothing around it can be scrolled.
_BEYOND = """() => {
  const root = document.documentElement, edge = root.clientWidth;
  if (root.scrollWidth <= edge) return [];
  const scrolls = (one) => one !== root && getComputedStyle(one).overflowX !== "visible";
  const held = (one) => one && (scrolls(one) || held(one.parentElement));
  return [...document.body.querySelectorAll("*")]
    .filter((one) => one.getBoundingClientRect().right > edge + 1 && !held(one.parentElement))
    .map((one) => one.outerHTML.slice(0, 100)).concat("what is no element");
}"""


def wrong(page: Page, file: pathlib.Path, links: set[str], places: set[str]) -> Iterator[str]:
    """What is wrong with a page by itself. Its links and places are added to those given."""
    said: list[str] = []
    hear_error = lambda error: said.append(str(error))
    hear_line = lambda line: said.append(line.text) if line.type == "error" else None
    page.on("pageerror", hear_error)
    page.on("console", hear_line)
    page.goto(file.as_uri())
    links |= set(page.evaluate(_LINKS))
    places |= {f"{file.as_uri()}#{place}" for place in page.evaluate(_PLACES) if place}
    yield from (f"has no picture {name}" for name in page.evaluate(_MISSING))
    beyond = page.evaluate(_BEYOND)
    if beyond:
        yield f"scrolls sideways for {beyond[0]}"
    page.remove_listener("pageerror", hear_error)
    page.remove_listener("console", hear_line)
    yield from (f"reports {line}" for line in said)


def check(browser: Browser, site: pathlib.Path) -> int:
    """Prints what is wrong with the site, and returns how much that is."""
    # Only a server shows the page for addresses that are not there, at any of them.
    pages = sorted(set(site.rglob("*.html")) - {site / "404.html"})
    links, places, found = dict[pathlib.Path, set[str]](), set[str](), 0
    for width in WIDTHS:
        page = browser.new_page(viewport={"width": width, "height": 844})
        for file in pages:
            for what in wrong(page, file, links.setdefault(file, set()), places):
                print(f"{file.relative_to(site)} at {width} pixels {what}", flush=True)
                found += 1
        page.close()
    for file, every in links.items():
        for link in sorted(one for one in every if one.startswith(site.as_uri())):
            address, _, place = link.partition("#")
            there = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(address).path))
            known = f"{address}#{urllib.parse.unquote(place)}" in places
            if not there.is_file() or (place and not known):
                print(f"{file.relative_to(site)} has a dead link to {link}", flush=True)
                found += 1
    print(f"{len(pages)} pages, {sum(map(len, links.values()))} links, {found} mistakes")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    options = parser.parse_args()
    if not (SITE / "index.html").exists():
        sys.exit(f"{SITE} has no index.html: first run `uv run nox -s docs`")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=options.chromium, args=["--no-sandbox"]
            )
        except Error as e:
            sys.exit(f"{options.chromium} cannot be started ({e}): install chromium")
        found = check(browser, SITE)
        browser.close()
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
