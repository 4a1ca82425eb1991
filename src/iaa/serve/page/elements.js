// DOM helpers and requests that both pages use.
export function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
export const formatNumber = (value) => value.toLocaleString("en-US");
export const formatPercent = (share) => `${Math.round(100 * share)} %`;

// A gallery image to click on; its name is shown if the file is missing.
export function imageButton(item, title) {
  const content = item.image
    ? element("img", { src: item.image, alt: item.label, loading: "lazy", decoding: "async" })
    : element("span", { class: "absent" }, item.name);
  const button = element("button", { type: "button", class: "image", title, "data-label": item.label }, content);
  content.addEventListener("load", () => button.classList.toggle("small", content.naturalWidth < 120));
  return button;
}

// An error with a message for the user.
export class UserError extends Error {}

// Fetch JSON; a server that needs a token gets it from the user first.
export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new UserError("The server does not answer. Is it still running?");
  }
  if (response.status === 401) {
    await login();
    return request(path, options);
  }
  const answer = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  if (response.ok) return answer;
  if (response.status === 503) throw new UserError("The server is busy. Try again in a moment.");
  throw new UserError(answer.error || `The server answered ${response.status}.`);
}

// Ask for the access token until the server accepts it; it sets a cookie, which images need.
let pendingLogin = null;
export function login() {
  pendingLogin ||= askForToken().finally(() => { pendingLogin = null; });
  return pendingLogin;
}

function askForToken() {
  const input = element("input", { type: "password", autocomplete: "current-password", "aria-label": "Access token", required: "" });
  const message = element("p", { role: "alert" });
  const form = element("form", {}, element("h2", {}, "Access token"),
    element("p", {}, "This server is protected. Enter the token it was started with."), input, message, element("button", { class: "primary" }, "Continue"));
  const dialog = element("dialog", { class: "login" }, form);
  document.body.append(dialog);
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.showModal();
  return new Promise((resolve) => {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (!/^[!-~]+$/.test(token)) return void (message.textContent = "A token has no spaces and no accents.");
      const response = await fetch("/api/login", { method: "POST", headers: { authorization: `Bearer ${token}` } }).catch(() => null);
      if (response?.ok) {
        dialog.remove();
        return resolve();
      }
      message.textContent = response?.status === 401 ? "That is not the token of this server." : "The server does not answer.";
      input.select();
    });
  });
}
