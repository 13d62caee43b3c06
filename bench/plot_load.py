#!/usr/bin/env python3
"""Plots the latencies of a load as SVG, from the report that `chorus bench serve --json` writes.

    chorus bench serve --url http://127.0.0.1:8000 --rate 5 --json load.json
    bench/plot_load.py load.json load.svg [--title TEXT]

Each kind of latency is a curve: the share of all tokens or requests that took at most so many milliseconds. A browser
shows the plot in its light or dark mode. Needs Python's standard library alone.
"""
import argparse
import html
import json
import math
import pathlib
import re
import sys

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 736, 72, 364  # edges of the area of the curves
CURVES = (("between tokens", "inter_token_ms", "#0072b2"),
          ("time to first token", "time_to_first_token_ms", "#d55e00"),
          ("whole request", "latency_ms", "#009e73"))
STYLE = ("text{font:13px system-ui,sans-serif;fill:#333}.title{font-size:16px;font-weight:600}.grid{stroke:#e2e2e2}"
         ".axis{stroke:#888}.line{fill:none;stroke-width:2;stroke-linejoin:round}.ground{fill:#fff}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#3a3a3a}.ground{fill:#1b1b1b}}")


def escaped(text):
    """`text` as the content of an element; a character that XML does not allow is a space."""
    return html.escape(re.sub("[^ -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", " ", text))


class LogAxis:
    """The axis of milliseconds. It covers all positive values; the others are drawn at its left end."""

    def __init__(self, values):
        positive = [value for value in values if value > 0] or [1, 10]
        self.low, self.high = math.log10(min(positive)), math.log10(max(positive))
        if self.high - self.low < 0.3:  # widen to a factor of two
            middle = (self.high + self.low) / 2
            self.low, self.high = middle - 0.15, middle + 0.15

    def x(self, value):
        place = (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0
        return LEFT + min(max(place, 0), 1) * (RIGHT - LEFT)

    def ticks(self):
        """(value, whether it has a label): 1 to 9 times each power of ten."""
        labelled = (1, 2, 5) if self.high - self.low < 2.2 else (1,)
        for power in range(math.floor(self.low), math.floor(self.high) + 1):
            for digit in range(1, 10):
                exponent = power + math.log10(digit)
                if self.low - 1e-9 <= exponent <= self.high + 1e-9:
                    yield 10 ** exponent, digit in labelled


def y_of(percent):
    return BOTTOM - percent / 100 * (BOTTOM - TOP)


def grid(axis):
    for value, labelled in axis.ticks():
        x = axis.x(value)
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM}"/>'
        if labelled:
            yield f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{value:.6g}</text>'
    for percent in range(0, 101, 20):
        y = y_of(percent)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent}</text>'
    yield f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>'
    yield f'<text x="{(LEFT + RIGHT) // 2}" y="{HEIGHT - 14}" text-anchor="middle">milliseconds</text>'
    yield (f'<text transform="translate(16 {(TOP + BOTTOM) // 2}) rotate(-90)" text-anchor="middle">'
           "share of all, %</text>")


def curve(axis, quantiles, color):
    """Quantile i of n, counted from one, is the value that i / n of all do not exceed."""
    points = [f"{axis.x(value):.1f} {y_of(100 * i / len(quantiles)):.1f}" for i, value in enumerate(quantiles, 1)]
    return f'<path class="line" stroke="{color}" d="M{"L".join(points)}"/>'


def svg_of(quantiles, title):
    """quantiles: {key of CURVES: sorted milliseconds}."""
    axis = LogAxis([value for _, key, _ in CURVES for value in quantiles[key]])
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
             f'height="{HEIGHT}" role="img">',
             f"<title>{escaped(title)}</title>", f"<style>{STYLE}</style>",
             f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
             f'<text class="title" x="{LEFT}" y="28">{escaped(title)}</text>', *grid(axis)]
    legend = LEFT
    for name, key, color in CURVES:
        name += "" if quantiles[key] else " (none)"
        lines += [f'<line x1="{legend:.1f}" y1="48" x2="{legend + 20:.1f}" y2="48" stroke="{color}" stroke-width="3"/>',
                  f'<text x="{legend + 26:.1f}" y="52">{name}</text>']
        legend += 48 + 7.2 * len(name)  # about the width of the text
        if quantiles[key]:
            lines.append(curve(axis, quantiles[key], color))
    return "\n".join([*lines, "</svg>", ""])


def title_of(report):
    load, models = report["load"], report["load"]["models"]
    amount = f"{load['streams']} streams" if load.get("streams") else f"{load['rate']:g} requests/s"
    return f"{amount}, {models} model{'' if models == 1 else 's'}, {report['complete']} answered"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=pathlib.Path, help="the file of chorus bench serve --json")
    parser.add_argument("svg", type=pathlib.Path, help="the plot to write")
    parser.add_argument("--title", help="the plot's title; default: rate or streams, models and answers of the load")
    args = parser.parse_args()
    try:
        report = json.loads(args.report.read_text(encoding="utf-8"))
        svg = svg_of(report["quantiles"], args.title or title_of(report))
        args.svg.write_text(svg, encoding="utf-8")
    except OSError as error:
        sys.exit(f"plot_load.py: {error}")
    except (KeyError, TypeError, ValueError):
        sys.exit(f"plot_load.py: {args.report} is not a report of chorus bench serve --json")


if __name__ == "__main__":
    main()
