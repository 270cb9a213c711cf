"""Streamlit draws what stands alone on a line of a page."""

import ast
from pathlib import Path

import pytest

import moescope.dashboard

PAGES = sorted((Path(moescope.dashboard.__file__).parent / "pages").glob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_no_text_stands_alone_in_a_page_but_its_docstring(page):
    _, *statements = ast.parse(page.read_text()).body
    alone = [
        one
        for one in statements
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant | ast.Name | ast.JoinedStr)
    ]
    assert not alone, f"{page.name}, line {alone[0].lineno}: write a comment"
