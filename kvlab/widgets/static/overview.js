// The view "overview": the chapter's map. A page that shows it already gets a frame around it; a live
// widget draws it from the payload. Its style, overview.css, comes with the HTML form or the widget.

const MAP_TAGS = new Set(["div", "p", "strong", "span", "a", "table", "tbody", "tr", "th", "td", "b", "i"]);
const MAP_WORDS = { class: /^[\w -]*$/, colspan: /^\d+$/, "data-section": /^[\w.]+$/, href: /^\w+\.ipynb$/ };

/** An element of the payload: [tag, attributes, children], or a text. Others than those of a map are left out. */
function mapElement(node) {
  if (typeof node === "string") return node;
  const [tag, attributes, children] = node;
  if (!MAP_TAGS.has(tag)) return "";
  const kept = Object.entries(attributes).filter(([name, value]) => Object.hasOwn(MAP_WORDS, name) && MAP_WORDS[name].test(value));
  return h(tag, Object.fromEntries(kept), ...children.map(mapElement));
}

/** In JupyterLab a panel opens its notebook beside this one, as a link of a text cell does. */
function mapOpensBeside(root) {
  const panel = root.closest(".jp-NotebookPanel");
  const tab = panel && [...document.querySelectorAll(".lm-TabBar-tab[data-id]")].find((one) => one.dataset.id === panel.id);
  const path = /^Path: (.*)$/m.exec(tab?.title ?? "")?.[1];
  if (path === undefined) return;
  for (const link of root.querySelectorAll("a[href]")) {
    const beside = path.replace(/[^/]*$/, "") + link.getAttribute("href");
    link.dataset.commandlinkerCommand = "docmanager:open";
    link.dataset.commandlinkerArgs = JSON.stringify({ path: beside });
  }
}

VIEWS.overview = (element, payload) => {
  const written = element.querySelector(".kvo");
  const map = written ? written.cloneNode(true) : h("div", { class: "kvo" }, ...payload.panels.map(mapElement));
  const { root, heading, body } = createFrame(element, { view: "overview", title: payload.title });
  body.append(map);
  root.tabIndex = 0;
  root.setAttribute("aria-description", "P switches to large type.");
  const presenter = presenterSwitch(root, heading);
  root.addEventListener("keydown", (event) => {
    if (isCommand(event)) return;
    if (event.key === "p" || event.key === "P") presenter.toggle();
    keepFromPage(event);
  });
  root.addEventListener("pointerover", () => mapOpensBeside(root), { once: true });
  root.addEventListener("focusin", () => mapOpensBeside(root), { once: true });
  presenter.start();
  return { destroy: presenter.destroy };
};
