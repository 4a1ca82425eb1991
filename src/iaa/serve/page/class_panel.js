// The panel of a class: what it looks like and how it varies.
import { element, formatNumber, formatPercent, imageButton } from "./elements.js";

// Show the description of a class, or hide the panel if there is none.
export function showClass(panel, description, actions) {
  panel.hidden = !description;
  if (!description) return panel.replaceChildren();
  const button = (text, action) => {
    const node = element("button", { type: "button", class: "plain" }, text);
    node.addEventListener("click", action);
    return node;
  };
  const header = element("header", {}, element("h2", { id: "class-name" }, description.label),
    element("div", { class: "actions" }, button("Search only here", () => actions.only(description.label)), button("Close", actions.close)));
  panel.replaceChildren(header, numbers(description), examples(description, actions));
  panel.append(...chips("Similar classes", description.similar, (item) => item.similarity.toFixed(2), actions));
  panel.append(...chips("Borrows variation from", description.lenders, (item) => formatPercent(item.share), actions));
}

function chips(title, items, detail, actions) {
  if (!items.length) return [];
  const buttons = items.map((item) => {
    const chip = element("button", { type: "button" }, item.label, " ", element("small", {}, detail(item)));
    chip.addEventListener("click", () => actions.open(item.label));
    return chip;
  });
  return [element("div", { class: "chips" }, title, ...buttons)];
}

function numbers(description) {
  const rows = [["images", formatNumber(description.images)]];
  if (description.spread !== null) rows.push(["variation", `${description.spread.toFixed(1)} × the average`]);
  if (description.directions !== null) rows.push(["directions it varies in", `about ${description.directions.toFixed(1)}`]);
  if (description.borrowed !== null) rows.push(["borrowed from other classes", formatPercent(description.borrowed)]);
  return element("dl", { class: "numbers" }, ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function examples(description, actions) {
  const items = description.examples.map((item) => {
    const image = imageButton(item, `Search from ${item.name} (similarity ${item.similarity.toFixed(2)} to its class)`);
    image.addEventListener("click", () => actions.search(String(item.id)));
    return element("li", {}, image);
  });
  const box = element("div", { class: "examples" }, element("ul", { class: "strip" }, ...items));
  if (items.length > 1) box.append(element("div", { class: "ends" }, element("span", {}, "most typical"), element("span", {}, "least typical")));
  return box;
}
