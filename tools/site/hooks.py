"""Hooks for MkDocs: add files outside `docs/`, rewrite links, and colour code."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter

from tools.site.links import linked_files, relinked, repository_path, site_uri

ROOT = Path(__file__).parents[2]
ICON = ROOT / "src/duly/web/dashboard/static/icon.svg"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that documents link to, and the style sheet for code."""
    for path in sorted(linked_files(ROOT)):
        files.append(File.generated(config, site_uri(path), abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "code.css", content=_colours()))
    files.append(File.generated(config, "icon.svg", abs_src_path=str(ICON)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page for the site."""
    del config, files
    here = repository_path(page.file.src_uri)
    return relinked(markdown, here, lambda path: (ROOT / path).is_dir())


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make code blocks focusable, so that wide ones can be scrolled with the keyboard."""
    del page, config, files
    return html.replace("<pre>", '<pre tabindex="0">')


def _colours() -> str:
    """Return styles with sufficient contrast for light and dark screens."""
    light = HtmlFormatter(style="xcode").get_style_defs(".codehilite")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".codehilite")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
