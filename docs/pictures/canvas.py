"""SVG canvas: shapes and texts in named colours, which follow the reader's light or dark scheme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

WIDTH = 560
#: Class of a shape or text, with its colour in the light and in the dark scheme.
COLOURS = {
    "card": ("#ffffff", "#161b22"),
    "panel": ("#f2f5f9", "#21262d"),
    "line": ("#c4ccd5", "#4a525c"),
    "ink": ("#1f2328", "#e6edf3"),
    "muted": ("#57606a", "#a5b0bb"),
    "blue": ("#2f6fde", "#6ea8fe"),
    "orange": ("#c96a10", "#f0a45d"),
    "green": ("#23804a", "#5fce8c"),
    "purple": ("#8250df", "#bc9aff"),
    "red": ("#c93c3c", "#ff8a80"),
}
FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def _rules(scheme: int) -> str:
    return " ".join(
        f".{name} {{ fill: {colours[scheme]} }} .{name}-line {{ stroke: {colours[scheme]} }}"
        for name, colours in COLOURS.items()
    )


STYLE = (
    f"<style>text {{ font-family: {FONT}; font-size: 16px }} .small {{ font-size: 14.5px }} "
    f".bold {{ font-weight: 600 }} .none {{ fill: none }} {_rules(0)} "
    f"@media (prefers-color-scheme: dark) {{ {_rules(1)} }}</style>"
)


def arrow_heads(colours: Iterable[str]) -> str:
    """Return one marker per colour."""
    return "".join(
        f'<marker id="head-{colour}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" class="{colour}"/></marker>'
        for colour in colours
    )


class Canvas:
    """A picture of fixed width."""

    def __init__(self, height: float, title: str, about: str) -> None:
        """Start with an empty card.

        :param title: accessible name of the picture.
        :param about: one sentence for readers who do not see it.
        """
        self.height = height
        self.title = title
        self.about = about
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, text: str, colour: str = "ink", *, anchor: str = "start", small: bool = False,
        bold: bool = False,
    ) -> None:  # fmt: skip
        """Write one line; `y` is its baseline."""
        classes = " ".join([colour, *(["small"] if small else []), *(["bold"] if bold else [])])
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{classes}" text-anchor="{anchor}">{escape(text)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = "panel", line: str | None = None,
        *, radius: float = 5, dashed: bool = False,
    ) -> None:  # fmt: skip
        """Draw a rectangle with round corners."""
        stroke = f" {line}-line" if line else ""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'class="{fill}{stroke}" stroke-width="1.5"{dashes}/>'
        )

    def path(self, points: str, colour: str = "line", *, width: float = 1.5, dashed: bool = False) -> None:
        """Draw a path without an arrow head."""
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        self.parts.append(f'<path d="{points}" class="none {colour}-line" stroke-width="{width:g}"{dashes}/>')

    def arrow(self, points: str, colour: str = "muted", *, dashed: bool = False) -> None:
        """Draw a path that ends in an arrow head."""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path d="{points}" class="none {colour}-line" stroke-width="1.8" '
            f'marker-end="url(#head-{colour})"{dashes}/>'
        )

    def dot(self, x: float, y: float, radius: float, fill: str, line: str | None = None) -> None:
        """Draw a circle."""
        stroke = f" {line}-line" if line else ""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{fill}{stroke}" stroke-width="1.5"/>')

    def number(self, x: float, y: float, number: int, fill: str = "ink") -> None:
        """Draw a numbered disc, to which a note refers."""
        self.dot(x, y, 10.5, fill)
        self.text(x, y + 5, str(number), "card", anchor="middle", small=True, bold=True)

    def notes(self, y: float, notes: Sequence[tuple[str, ...]], fill: str = "ink") -> float:
        """Write numbered notes of one or more lines below each other; return where they end."""
        for number, lines in enumerate(notes, 1):
            self.number(26, y - 5, number, fill)
            for line in lines:
                self.text(46, y, line, small=True)
                y += 20
            y += 8
        return y

    def svg(self) -> str:
        """Return the picture as text."""
        used = [colour for colour in COLOURS if any(f"#head-{colour})" in part for part in self.parts)]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" width="{WIDTH}" '
                f'height="{self.height:g}" role="img" aria-labelledby="title about">',
                f'<title id="title">{escape(self.title)}</title><desc id="about">{escape(self.about)}</desc>',
                STYLE,
                f"<defs>{arrow_heads(used)}</defs>" if used else "",
                f'<rect x="0.75" y="0.75" width="{WIDTH - 1.5:g}" height="{self.height - 1.5:g}" rx="9" '
                'class="card line-line" stroke-width="1.5"/>',
                *self.parts,
                "</svg>\n",
            ]
        )
