// What a class looks like and how it varies.
import { element, number, percent, imageButton } from "./parts.js";

export function showClass(place, about, act) {
  place.hidden = !about;
  if (!about) return place.replaceChildren();
  const button = (words, action) => {
    const made = element("button", { type: "button", class: "plain" }, words);
    made.addEventListener("click", action);
    return made;
  };
  const head = element("header", {}, element("h2", { id: "variation-name" }, about.label),
    element("div", { class: "actions" }, button("Search only here", () => act.only(about.label)), button("Close", act.close)));
  place.replaceChildren(head, numbers(about), strip(about, act));
  if (about.similar.length) {
    const chips = about.similar.map((one) => {
      const chip = element("button", { type: "button" }, one.label, " ", element("small", {}, one.similarity.toFixed(2)));
      chip.addEventListener("click", () => act.open(one.label));
      return chip;
    });
    place.append(element("div", { class: "chips" }, "Nearest classes", ...chips));
  }
  if (about.lenders.length) {
    const chips = about.lenders.map((one) => {
      const chip = element("button", { type: "button" }, one.label, " ", element("small", {}, percent(one.share)));
      chip.addEventListener("click", () => act.open(one.label));
      return chip;
    });
    place.append(element("div", { class: "chips" }, "Borrows variation from", ...chips));
  }
}

function numbers(about) {
  const rows = [["images", number(about.images)]];
  if (about.spread !== null) rows.push(["variation", `${about.spread.toFixed(1)} × the average`]);
  if (about.directions !== null) rows.push(["directions it varies in", `about ${about.directions.toFixed(1)}`]);
  if (about.borrowed !== null) rows.push(["borrowed from other classes", percent(about.borrowed)]);
  return element("dl", { class: "numbers" }, ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function strip(about, act) {
  const items = about.examples.map((one) => {
    const image = imageButton(one, `Search from ${one.name} (${one.similarity.toFixed(2)} to its class)`);
    image.addEventListener("click", () => act.search(String(one.id)));
    return element("li", {}, image);
  });
  const box = element("div", { class: "examples" }, element("ul", { class: "strip" }, ...items));
  if (items.length > 1) box.append(element("div", { class: "ends" }, element("span", {}, "most typical"), element("span", {}, "least typical")));
  return box;
}
