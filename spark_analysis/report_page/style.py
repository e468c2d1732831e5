"""The style sheet of the page: light and dark, contrasts of 4.5 to 1 at least, a visible focus."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --soft: #f0f0f3; --rule: #8a8a93; --link: #0b4fa8;
  --good: #14602a; --bad: #a3142a; --c0: #1b1b1b; --c1: #0b4fa8; --c2: #14602a; --c3: #8a4b00; --c4: #a3142a; --c5: #5b2a86; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf1; --paper: #16161a; --soft: #24242b; --rule: #80808a;
  --link: #8ab8ff; --good: #7fd897; --bad: #ff9aa8; --c0: #ececf1; --c1: #8ab8ff; --c2: #7fd897; --c3: #f0b45a; --c4: #ff9aa8;
  --c5: #cfa6f5; } }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
main, nav { max-width: 62rem; margin: 0 auto; padding: 0 1rem; }
nav ul { display: flex; flex-wrap: wrap; gap: 0 1.5rem; padding: 0; list-style: none; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible, main:focus-visible { outline: 3px solid var(--link);
  outline-offset: 2px; }
.skip { position: absolute; left: -100rem; }
.skip:focus { position: static; display: inline-block; padding: .5rem 1rem; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; } h2 { margin-top: 2.5rem; font-size: 1.3rem; } h3 { font-size: 1.05rem;
  overflow-wrap: anywhere; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 2rem; } dl div { display: flex; gap: .5rem; } dd { margin: 0; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
thead th { background: var(--soft); } tbody th { font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.violated { color: var(--bad); font-weight: 700; } .holds { color: var(--good); font-weight: 700; }
details { border: 1px solid var(--rule); border-radius: .3rem; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; overflow-wrap: anywhere; } code { font-size: .9em; overflow-wrap: anywhere; }
.timeline { border-left: 3px solid var(--rule); padding-left: 2.5rem; }
figure { margin: 1rem 0; } figcaption { font-size: .9rem; }
svg { width: 100%; height: auto; max-width: 46rem; background: var(--paper); font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } .grid { stroke: var(--rule); stroke-width: .5; }
.line { fill: none; stroke-width: 2; } .line0 { stroke: var(--c0); } .line1 { stroke: var(--c1); stroke-dasharray: 8 3; }
.line2 { stroke: var(--c2); stroke-dasharray: 2 3; } .line3 { stroke: var(--c3); stroke-dasharray: 10 3 2 3; }
.line4 { stroke: var(--c4); stroke-width: 4; } .line5 { stroke: var(--c5); }
.bar { stroke: var(--ink); stroke-width: .5; } .bar0 { fill: var(--c1); } .bar1 { fill: var(--c2); } .bar2 { fill: var(--c3); }
.bar3 { fill: var(--soft); }
@media print { nav, .skip { display: none; } details::details-content { content-visibility: visible; } }
"""
