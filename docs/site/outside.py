"""MkDocs hook: show files from outside docs/ on the site, and make links to them work.

On a code host a link such as `../CHANGELOG.md` leads to the file. On the site it leads to the page made from the file.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Path in the repository -> path on the site.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "src/arcmask/checkpoint/shipped/sotu-tiny/README.md": "cards/sotu-tiny.md",
    "src/arcmask/checkpoint/shipped/sotu-tiny-spherical/README.md": "cards/sotu-tiny-spherical.md",
    **{f"examples/{file.name}": f"examples/{file.stem}.md" for file in sorted((ROOT / "examples").glob("[a-z]*.py"))},
}
SOURCES = {page: source for source, page in PAGES.items()}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text()
        if source.endswith(".py"):
            text = f"# `{source}`\n\n```python\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point relative links at pages of the site."""
    here = page.file.src_uri
    origin = posixpath.dirname(SOURCES.get(here, f"docs/{here}"))

    def on_site(link: re.Match[str]) -> str:
        path, anchor = link[1], link[2] or ""
        target = posixpath.normpath(posixpath.join(origin, path))
        target = PAGES.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(target, posixpath.dirname(here) or '.')}{anchor})"

    return re.sub(r"\]\((?![a-z]+:)([^)#\s]+)(#[^)]*)?\)", on_site, markdown)
