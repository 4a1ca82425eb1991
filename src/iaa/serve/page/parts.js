// Small parts that every page uses.
export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
export const number = (value) => value.toLocaleString("en-US");
export const percent = (share) => `${Math.round(100 * share)} %`;
