"""A report is one page that stands alone: it loads nothing."""

import html
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._disk import write_whole
from ._series import Series


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{
  color-scheme: light dark;
  --page: #ffffff; --card: #f7f7f8; --ink: #1d1f23; --soft: #6b7078; --line: #e2e4e8;
  --series-0: #2f6fb3; --series-1: #d0741c; --series-2: #2e8b62;
  --series-3: #8160b8; --series-4: #bf4a3d; --series-5: #7a7f87;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --page: #16181c; --card: #1e2126; --ink: #e7e9ec; --soft: #9aa0a9; --line: #33373e;
    --series-0: #6aa6e6; --series-1: #eb9a4d; --series-2: #5bbd90;
    --series-3: #b198e0; --series-4: #e57f73; --series-5: #a5abb4;
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0 auto; max-width: 1120px; padding: 32px 24px 64px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}}
h1 {{ margin: 0 0 24px; font-size: 26px; font-weight: 650; letter-spacing: -0.01em; }}
h2 {{ margin: 40px 0 12px; font-size: 18px; font-weight: 650; }}
h3 {{ margin: 0; font-size: 14px; font-weight: 600; }}
p {{ margin: 0; color: var(--soft); font-size: 13px; }}
.figures, .charts {{ display: grid; gap: 12px; }}
.figures {{ grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }}
.figures div, figure {{ background: var(--card); border-radius: 8px; padding: 14px 16px; }}
.figures b {{ display: block; font-size: 20px; font-weight: 600; }}
.figures b, td {{ font-variant-numeric: tabular-nums; }}
.charts {{ grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); }}
.tables {{ display: flex; flex-wrap: wrap; column-gap: 64px; }}
figure {{ margin: 0; }}
figure .none {{ padding: 48px 0; text-align: center; }}
svg {{ display: block; width: 100%; height: auto; margin-top: 8px; }}
svg text {{ font-family: inherit !important; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 14px; }}
th {{ color: var(--soft); font-weight: 500; }}
th, td {{ padding: 5px 16px 5px 0; text-align: right; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ text-align: left; }}
dl {{ margin: 0; columns: 3 260px; column-gap: 40px; font-size: 14px; }}
dl div {{
  display: flex; justify-content: space-between; gap: 12px; break-inside: avoid;
  border-bottom: 1px solid var(--line); padding: 4px 0;
}}
dt {{ color: var(--soft); }}
dd {{ margin: 0; font-variant-numeric: tabular-nums; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def write_page(folder: pathlib.Path, title: str, body: Iterable[str]) -> pathlib.Path:
    """Writes `report.html` into a run folder, replacing an earlier one at once.

    **Arguments:**

    - `title`: plain text.
    - `body`: parts made by the functions of this module; empty ones are left out.

    **Returns:** the page's path.
    """
    path = folder / "report.html"
    parts = "\n".join(filter(None, body))
    write_whole(path, _PAGE.format(title=html.escape(title), body=parts))
    return path


def figures(shown: Mapping[str, str]) -> str:
    """The few figures to see first, by what they are."""
    cells = "".join(
        f"<div><b>{_text(value)}</b><p>{_text(name)}</p></div>" for name, value in shown.items()
    )
    return f'<div class="figures">{cells}</div>'


def charts(heading: str, *parts: str) -> str:
    """A section of charts side by side."""
    return "\n".join([f'<h2>{_text(heading)}</h2><div class="charts">', *parts, "</div>"])


def chart(
    heading: str,
    caption: str,
    *series: Series,
    levels: Sequence[tuple[str, float]] = (),
    percent: bool = False,
    from_zero: bool = False,
) -> str:
    """Curves over steps, the first `MAX_SERIES`. "nothing yet" where they have no points.

    **Arguments:**

    - `levels`: labelled horizontal lines.
    - `percent`: `y` is a share of 1.
    - `from_zero`: the axis starts at 0.
    """
    from ._chart import draw  # matplotlib: seconds to import

    svg = draw(series, levels=levels, percent=percent, from_zero=from_zero)
    return picture(heading, caption, svg or '<p class="none">nothing yet</p>')


def picture(heading: str, caption: str, svg: str) -> str:
    """A drawing among charts.

    **Arguments:**

    - `heading`, `caption`: plain text.
    - `svg`: as it is to be in the page, whose colours are `var(--ink)`, `var(--line)` and
        `var(--series-0)` to `var(--series-5)`.
    """
    return f"<figure><h3>{_text(heading)}</h3><p>{_text(caption)}</p>{svg}</figure>"


def tables(*parts: str) -> str:
    """Tables side by side."""
    return "\n".join(['<div class="tables">', *parts, "</div>"])


def table(heading: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table under its heading; the first column names the rows."""
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{_text(x)}</td>' for x in row)}</tr>" for row in rows)
    whole = f"<table><tr>{head}</tr>{body}</table>"
    return f'<div class="scroll"><h2>{_text(heading)}</h2>{whole}</div>'


def configuration(config: Mapping[str, Any]) -> str:
    """Every entry of a configuration."""
    if not config:
        return ""
    items = "".join(
        f"<div><dt>{_text(key)}</dt><dd>{_text(_shown(value))}</dd></div>"
        for key, value in config.items()
    )
    return f"<h2>Configuration</h2><dl>{items}</dl>"


def _text(value: object) -> str:
    return html.escape(str(value), quote=False)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
