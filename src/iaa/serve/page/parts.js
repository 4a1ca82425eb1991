// Small parts that every page uses.
export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
export const number = (value) => value.toLocaleString("en-US");
export const percent = (share) => `${Math.round(100 * share)} %`;

// A gallery image to click on; its name stands in where the file is not here.
export function imageButton(one, title) {
  const shown = one.image
    ? element("img", { src: one.image, alt: one.label, loading: "lazy", decoding: "async" })
    : element("span", { class: "absent" }, one.name);
  const button = element("button", { type: "button", class: "image", title, "data-label": one.label }, shown);
  shown.addEventListener("load", () => button.classList.toggle("small", shown.naturalWidth < 120));
  return button;
}
