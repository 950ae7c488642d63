#!/usr/bin/env python3
"""docs/benchmarks.md and its plots, from what the measuring scripts have left.

    bench/page/make.py [directory of figures]      default target/page

The directory holds rivals.json (`bench/rivals/run --json`) and the Markdown tables of the scripts that `figures.TABLES` names.
Nothing is measured here.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "rivals"))

import plots  # noqa: E402
import words  # noqa: E402
from figures import Figures  # noqa: E402


def main():
    source = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "page")
    figures = Figures.read(source)
    target = ROOT / "docs" / "benchmarks"
    target.mkdir(exist_ok=True)
    for name, draw in plots.ALL.items():
        draw(figures).savefig(target / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    (target / "rivals.json").write_text(json.dumps(figures.rivals, indent=0) + "\n")
    (ROOT / "docs" / "benchmarks.md").write_text(words.page(figures))


if __name__ == "__main__":
    main()
