// Makes a page of the book live: draws formulas with KaTeX, mounts each view from the trace beside it.
// Without scripts the page keeps its MathML and its tables. No network: views.js lies beside this file.
(() => {
  const HERE = document.currentScript.src;
  const ON_PAPER = location.pathname.endsWith("/print.html");
  const SHEET = 680; // pixels: an A4 or letter sheet between its margins

  /** The views' modules as text (kvlab/book/build.py writes them): {parts: {file: text}, views: {name: files}}. */
  function loadViews() {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL("views.js", HERE);
      script.onload = () => resolve(window.KVLAB_VIEWS);
      script.onerror = () => reject(new Error(`${script.src} is missing: build the book with kvlab book build`));
      document.head.append(script);
    });
  }

  /** A page opened as a file may not import a module's file, but it may import one that it holds. */
  const modules = new Map();
  function moduleOf(name, { parts, views }) {
    if (!modules.has(name)) {
      const source = views[name].map((file) => parts[file]).join("\n");
      modules.set(name, import(URL.createObjectURL(new Blob([source], { type: "text/javascript" }))));
    }
    return modules.get(name);
  }

  async function mountViews() {
    const elements = [...document.querySelectorAll(".kvlab-view")];
    if (!elements.length) return;
    const sources = await loadViews();
    const written = elements.map((element) => [...element.children]);
    for (const [i, element] of elements.entries()) {
      const payload = JSON.parse(element.querySelector("script").textContent);
      const view = (await moduleOf(element.dataset.view, sources)).mount(element, payload);
      if (ON_PAPER) putOnPaper(element, view, written[i]);
    }
    if (ON_PAPER) fitSheets(written.flat());
  }

  /** Paper cannot be stepped through: the fullest stop, and below it what the page says without scripts. */
  function putOnPaper(element, view, written) {
    view.show?.(Math.max(Number(element.firstElementChild.dataset.total) - 1, 0));
    element.append(...written);
  }

  /** Nor can it be scrolled: what is wider than a sheet is made smaller. All is measured first. */
  function fitSheets(written) {
    const wide = written.map((one) => [one, one.scrollWidth]).filter(([, width]) => width > SHEET);
    for (const [one, width] of wide) one.style.zoom = String(SHEET / width);
  }

  function drawFormulas() {
    for (const element of document.querySelectorAll(".kvlab-math")) {
      window.katex.render(element.dataset.tex, element, { displayMode: element.classList.contains("kvlab-display") });
    }
  }

  /** What scrolls sideways can be reached by keyboard. All is measured before anything changes: one layout, not one each. */
  function letKeysScroll() {
    const boxes = document.querySelectorAll("main pre, main pre > code, .kvlab-output, .table-wrapper, .kvlab-display, .kvo-panel");
    const wide = [...boxes].filter((element) => element.scrollWidth > element.clientWidth);
    for (const element of wide) element.tabIndex = 0;
  }

  /** On a screen the reader predicts first, then unfolds; on paper nothing is folded. */
  function unfold() {
    for (const fold of document.querySelectorAll("details:is(.kvlab-run, .kvlab-check)")) fold.open = true;
  }

  async function start() {
    if (document.readyState === "loading") await new Promise((go) => document.addEventListener("DOMContentLoaded", go));
    if (ON_PAPER) unfold();
    const root = document.documentElement;
    root.toggleAttribute("data-paper", ON_PAPER);
    root.toggleAttribute("data-mounting", ON_PAPER); // the whole book: meanwhile only what is measured is laid out
    drawFormulas();
    await mountViews();
    root.removeAttribute("data-mounting");
    letKeysScroll();
    document.addEventListener("toggle", letKeysScroll, true); // what was folded has a width now
    root.dataset.kvlab = "ready";
  }

  const ready = start();
  const print = window.print.bind(window); // the print page prints as soon as it is loaded: the views come first
  window.print = () => ready.finally(print);
})();
