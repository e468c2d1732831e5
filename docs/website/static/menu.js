// On narrow screens Furo shows navigation and contents as drawers, which labels of hidden checkboxes open: with a mouse or a finger only.
// This makes the labels buttons for the keyboard, takes a closed drawer out of the order of Tab, and closes an open one by Escape.
"use strict";
(() => {
  const drawers = [
    { box: "__navigation", icons: ".nav-overlay-icon", drawer: ".sidebar-drawer", name: "Navigation" },
    { box: "__toc", icons: ".toc-overlay-icon:not(.no-toc)", drawer: ".toc-drawer", name: "Contents of this page" },
  ].map(({ box, icons, drawer, name }) => ({
    box: document.getElementById(box), icons: [...document.querySelectorAll(icons)], drawer: document.querySelector(drawer), name,
  })).filter(({ box, icons, drawer }) => box && drawer && icons.length);

  const isShown = (element) => element.getClientRects().length > 0;
  const iconOf = ({ icons }) => icons.find(isShown); // none where there is room for what is in the drawer
  const tell = (one) => {
    const isDrawer = iconOf(one) !== undefined;
    one.drawer.inert = isDrawer && !one.box.checked;
    for (const icon of one.icons) icon.setAttribute("aria-expanded", String(one.box.checked));
  };
  const set = (one, isOpen) => {
    if (one.box.checked === isOpen) return;
    one.box.checked = isOpen;
    tell(one);
  };
  const open = (one) => {
    set(one, true);
    [...one.drawer.querySelectorAll("a[href], input, button")].find(isShown)?.focus({ preventScroll: true });
  };
  const close = (one) => {
    set(one, false);
    iconOf(one)?.focus();
  };

  for (const one of drawers) {
    one.drawer.id ||= `${one.box.id}-drawer`;
    for (const icon of one.icons) {
      icon.tabIndex = 0;
      icon.setAttribute("role", "button");
      icon.setAttribute("aria-label", one.name);
      icon.setAttribute("aria-controls", one.drawer.id);
      icon.addEventListener("keydown", (press) => {
        if (press.key !== "Enter" && press.key !== " ") return;
        press.preventDefault();
        if (one.box.checked) close(one); else open(one);
      });
    }
    one.box.addEventListener("change", () => tell(one));
    one.drawer.addEventListener("click", (press) => { // a heading of this page, which the drawer would cover
      if (iconOf(one) && press.target.closest("a[href^='#']")) set(one, false);
    });
    one.drawer.addEventListener("focusout", (leaving) => { // Tab went on to the page below
      const to = leaving.relatedTarget;
      if (iconOf(one) && to && !one.drawer.contains(to) && !one.icons.includes(to)) set(one, false);
    });
    tell(one);
  }
  document.addEventListener("keydown", (press) => {
    const one = press.key === "Escape" ? drawers.find((each) => each.box.checked && iconOf(each)) : undefined;
    if (one) close(one);
  });
  const tellAll = () => drawers.forEach(tell);
  window.addEventListener("resize", tellAll);
  window.addEventListener("pageshow", tellAll); // the browser may have kept what was open
})();
