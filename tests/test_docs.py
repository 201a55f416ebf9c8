"""The documentation: every relative link leads to a file and, where it names one, to a heading; named files exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Pages generated from the code; a page that exists is checked like any other.
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
# Paths of the repository that a page names in code style.
NAMED = re.compile(r"`((?:src|benchmarks|examples|docs)/[\w./-]+|(?:\w+/)+\w+\.py)`")


def links(text: str) -> list[str]:
    """Return the targets of all links outside fenced blocks; link texts may be in code style."""
    prose = FENCE.sub("", text)
    return [target for target in LINK.findall(prose) if "://" not in target and not target.startswith("mailto:")]


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
        number, name = 0, plain
        while name in found:
            number += 1
            name = f"{plain}-{number}"
        found.add(name)
    return found


def problems(page: Path, text: str, root: Path = ROOT) -> list[str]:
    """Return the links of a page that lead nowhere, with the reason."""
    wrong = []
    for target in links(text):
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.is_relative_to(root):
            wrong.append(f"{target}: outside the repository")
        elif not path.exists():
            wrong.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(text if path == page else path.read_text(encoding="utf-8")):
            wrong.append(f"{target}: no such heading")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page):
    assert problems(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_named_in_code_style_exist(page):
    for name in NAMED.findall(page.read_text(encoding="utf-8")):
        homes = [ROOT / name, ROOT / "src" / "langenode" / name]
        assert any(home.exists() for home in homes), f"{page.name} names {name}"


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    targets = links(index.read_text(encoding="utf-8"))
    listed = {(index.parent / target.partition("#")[0]).resolve() for target in targets}
    pages = {page for page in PAGES if page.is_relative_to(index.parent)} - {index}
    assert pages <= listed


def test_readme_and_method_page_point_to_algorithm_1():
    for page in (ROOT / "README.md", ROOT / "docs" / "reference" / "method.md"):
        targets = {(page.parent / target).resolve() for target in links(page.read_text(encoding="utf-8"))}
        assert ROOT / "src/langenode/inference/algorithm1.py" in targets
        assert ROOT / "src/langenode/posteriors/langevin.py" in targets


def test_wrong_links_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# A title, with `code`\n\n## Twice\n\n## Twice\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.touch()
    right = "[a](other.md) [b](other.md#a-title-with-code) [c](other.md#twice-1) [d](#own) [e](https://x.y)\n# Own\n"
    fenced = "```\n[f](nowhere.md)\n```\n"
    assert problems(page, right + fenced, tmp_path) == []
    wrong = "[a](none.md) [b](other.md#none) [c](#none) [d](../up.md)\n"
    reasons = [line.partition(": ")[2] for line in problems(page, wrong, tmp_path)]
    assert reasons == ["no such file", "no such heading", "no such heading", "outside the repository"]
