"""Reading the HTML of a report."""

from __future__ import annotations

from html.parser import HTMLParser


class ClosedTags(HTMLParser):
    """The tags of a piece of HTML, and a check that every one is closed."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags = [], set()
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


class Page(HTMLParser):
    """Tags, addresses and text of a page."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.addresses, self.cells = [], [], []
        self._open = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "hr"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in ("td", "p"):
            self.cells.append(data)
