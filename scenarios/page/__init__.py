"""A run as one web page: lanes, messages, faults, fragments and LACs over time, and the events that prove a violation.

:mod:`~scenarios.page.messages` pairs requests with answers, :mod:`~scenarios.page.curves` follows what ledgers were known to
hold, :mod:`~scenarios.page.content` puts all of it into plain data, and :mod:`~scenarios.page.rendering` makes one file of the
data and of ``page.html``, ``page.css`` and ``page.js``, which needs nothing but a browser.
"""

from scenarios.page.content import EVENTS_MAX, PageError, content_of
from scenarios.page.rendering import render_page

__all__ = ["EVENTS_MAX", "PageError", "content_of", "render_page"]
