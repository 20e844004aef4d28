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
