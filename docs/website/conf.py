"""Sphinx's configuration for the site; :mod:`docs.website.build` runs Sphinx with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import bkclient

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "bkclient"
author = "The bkclient authors"
project_copyright = "The bkclient authors, Apache-2.0"
version = release = bkclient.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
nitpicky = False
suppress_warnings = ["misc.highlighting_failure"]

myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4  # the anchors that a repository page makes of headings

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
add_module_names = False
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"bkclient {release}"
html_static_path = ["static"]
html_favicon = "static/favicon.svg"
html_css_files = ["site.css"]
html_js_files = [("menu.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "native"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1d4ed8", "color-brand-content": "#1d4ed8"},
    "dark_css_variables": {"color-brand-primary": "#93b4ff", "color-brand-content": "#93b4ff"},
}

#: How groups of settings know each other: public for subclasses, and of no use to readers.
_NOT_SHOWN: Final = frozenset({"prefix", "siblings"})


def _skip(_app: Sphinx, _kind: str, name: str, _value: Any, _skipped: bool, _options: Any) -> bool | None:  # noqa: FBT001
    return True if name in _NOT_SHOWN else None


def _drop_private_bases(_app: Sphinx, _name: str, _value: Any, _options: Any, bases: list[type]) -> None:
    """Bases without a page are of no use: everything inherited from them is shown where it is."""
    bases[:] = [base for base in bases if base.__name__ not in {"SettingsGroup", "object", "Protocol", "Generic"}] or [
        object
    ]


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-bases", _drop_private_bases)
