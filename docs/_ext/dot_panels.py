"""Pictures of the invariances: a dot for each change of a layer, as SVG that follows the theme."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from measure_invariances import CHANCE, Found, largest
from measure_variants import Variant

WIDTH, TOP, ROW, BOTTOM = 306, 30, 19, 8
NAMES_END, AXIS, AXIS_END, NUMBERS = 140, 151, 247, 303


@dataclass(frozen=True)
class Panel:
    """The values of a measure whose first or second argument changes.

    Attributes
    ----------
    title
        The call that is shown.
    values
        Values by change, the independent layer last.
    ignored
        The changes that the measure ignores in this argument.
    itself
        The value of the layer with itself.
    """

    title: str
    values: dict[str, float]
    ignored: frozenset[str]
    itself: float

    def words(self) -> str:
        """Return the values in words, for those who cannot see the picture."""
        values = ", ".join(f"{name} {short(value)}" for name, value in self.values.items())
        ignored = ", ".join(largest(self.ignored)) or "nothing"
        return f"{self.title}: {short(self.itself)} without a change; {values}. Ignores {ignored}."

    def svg(self) -> str:
        """Return the picture."""
        height = TOP + ROW * len(self.values) + BOTTOM
        low, high = self._domain()

        def place(value: float) -> float:
            return round(AXIS + (value - low) / (high - low) * (AXIS_END - AXIS), 1)

        line = place(self.itself)
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(self.words())}">',
            f'<text class="title" x="{AXIS}" y="14">{escape(self.title)}</text>',
            f'<line class="axis" x1="{line}" x2="{line}" y1="{TOP - 8}" y2="{height - BOTTOM}"/>',
        ]
        for i, (name, value) in enumerate(self.values.items()):
            y = TOP + ROW * i + ROW / 2
            kind = "chance" if name == CHANCE else "kept" if name in self.ignored else "moved"
            label = "independent layer" if name == CHANCE else name
            parts += [
                f'<text class="name" x="{NAMES_END}" y="{y + 4}">{escape(label)}</text>',
                f'<line class="guide" x1="{AXIS}" x2="{AXIS_END}" y1="{y}" y2="{y}"/>',
                f'<circle class="{kind}" cx="{place(value)}" cy="{y}" r="4.5"/>',
                f'<text class="number" x="{NUMBERS}" y="{y + 4}">{short(value)}</text>',
            ]
        return "".join([*parts, "</svg>"])

    def _domain(self) -> tuple[float, float]:
        values = [*self.values.values(), self.itself, 0.0]
        low, high = min(values), max(values)
        return low, high if high > low else low + 1


def short(value: float) -> str:
    """Return a number with two decimals, or with two digits where it is small or large."""
    if abs(value) < 1e-7:
        return "0"
    if abs(value) >= 99.5:
        return str(int(float(f"{value:.2g}")))
    if abs(value) >= 0.005:
        return f"{value:.2f}"
    return f"{value:.2g}" if abs(value) >= 0.001 else f"{value:.1e}"


def panels(variant: Variant, found: Found) -> list[Panel]:
    """Return a panel for a symmetric measure, and one for each argument of an asymmetric one."""
    last = {CHANCE: found.chance}
    second = {**found.second, **last}
    if variant.known.symmetric:
        return [Panel(variant.label, second, found.ignores_second, found.itself)]
    return [
        Panel(f"{variant.label} of X by T(X)", second, found.ignores_second, found.itself),
        Panel(
            f"{variant.label} of T(X) by X",
            {**found.first, **last},
            found.ignores_first,
            found.itself,
        ),
    ]
