"""`python -m tools.reference`: update the generated parts of all pages, and print what changed."""

from pathlib import Path

from tools.reference import fill, stale

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Update the pages that are out of date."""
    for page in stale(ROOT):
        path = ROOT / page
        path.write_text(fill(page, path.read_text()))
        print(f"docs: updated {page}")


if __name__ == "__main__":
    main()
