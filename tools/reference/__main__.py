"""`python -m tools.reference`: fill every mark of every page; says which pages changed."""

from pathlib import Path

from tools.reference import fill, stale

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Write what is stale."""
    for page in stale(ROOT):
        path = ROOT / page
        path.write_text(fill(page, path.read_text()))
        print(f"docs: {page} is new")


if __name__ == "__main__":
    main()
