"""How a page is looked at: in both themes, on a laptop and on the wall, no text cut off or covered."""

LOOKS = [("light", 1280), ("dark", 1280), ("light", 2560), ("dark", 2560)]
CLIPPED = """() => Array.from(document.querySelectorAll('.js-plotly-plot')).flatMap((plot) => {
    const box = plot.getBoundingClientRect();
    return Array.from(plot.querySelectorAll('.annotation-text, text[class$=title], .legendtext'))
        .map((text) => [text.textContent, text.getBoundingClientRect()])
        .filter(([, at]) => at.width && (at.left < box.left - 1 || at.right > box.right + 1
            || at.top < box.top - 1 || at.bottom > box.bottom + 1))
        .map(([words]) => words);
})"""
OVERLAPPING = """() => Array.from(document.querySelectorAll('.js-plotly-plot')).flatMap((plot) => {
    const kinds = '.annotation-text, .legendtext, text[class$=title], [class$=tick] text';
    const texts = Array.from(plot.querySelectorAll(kinds))
        .map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, at]) => at.width);
    return texts.flatMap(([one, a], i) => texts.slice(i + 1)
        .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1
            && a.top < b.bottom - 2 && b.top < a.bottom - 2)
        .map(([other]) => `${one} | ${other}`));
})"""


def assert_readable(page):
    """No title is cut off, and none lies upon another."""
    page.wait_for_timeout(500)
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(OVERLAPPING) == []
