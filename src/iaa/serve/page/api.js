// The API's documentation, drawn from openapi.json itself; nothing is loaded from elsewhere.
import { element } from "./parts.js";

const spec = await (await fetch("/openapi.json")).json();
const resolve = (schema) => (schema?.$ref ? schema.$ref.split("/").slice(1).reduce((at, key) => at[key], spec) : schema || {});
const doc = document.getElementById("doc");
document.getElementById("title").textContent = spec.info.title;
document.getElementById("description").textContent = spec.info.description;

function type(given) {
  const schema = resolve(given);
  const options = (schema.anyOf || []).filter((one) => one.type !== "null");
  if (options.length) return type(options[0]);
  const bounds = [schema.maximum !== undefined && `${schema.minimum} to ${schema.maximum}`, schema.default !== undefined && schema.default !== null && `default ${schema.default}`];
  const kind = schema.format === "binary" || schema.contentMediaType ? "file" : schema.enum ? schema.enum.join(" | ") : schema.type || "";
  return [kind, ...bounds.filter(Boolean)].join(", ");
}

function kind(one) {
  const schema = resolve((one.anyOf || []).find((option) => option.type !== "null") || one);
  return schema.type === "array" ? `list of ${kind(schema.items)}` : schema.title && schema.type === "object" ? schema.title : schema.type || "";
}

function describe(one) {
  if (one.description) return one.description;
  const target = one.items?.$ref || one.$ref;
  return target ? Object.keys(resolve({ $ref: target }).properties).join(", ") : "";
}

function table(head, rows) {
  const line = (cells, tag) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
  return element("table", {}, ...(head.length ? [line(head, "th")] : []), ...rows.map((row) => line(row, "td")));
}

for (const [path, methods] of Object.entries(spec.paths))
  for (const [method, about] of Object.entries(methods)) {
    const form = resolve(Object.values(about.requestBody?.content || {})[0]?.schema);
    const fields = Object.entries(form.properties || {}).map(([name, one]) => [name, type(one), resolve(one).description || one.description || "", form.required?.includes(name)]);
    const inputs = [...(about.parameters || []).map((one) => [one.name, type(one.schema), one.description || "", one.required]), ...fields];
    const article = element("article", {}, element("h2", {}, element("b", {}, method.toUpperCase()), path), element("p", {}, about.description || about.summary || ""));
    if (inputs.length) article.append(table(["takes", "", ""], inputs.map(([name, kind, words, needed]) => [element("code", {}, needed ? `${name} *` : name), kind, words])));
    const example = about["x-example"];
    if (example) article.append(element("pre", {}, example.replaceAll("{origin}", location.origin)));
    const answer = resolve(about.responses[200].content?.["application/json"]?.schema);
    const answers = Object.entries(answer.properties || {}).map(([name, one]) => [element("code", {}, name), kind(one), describe(one)]);
    if (answers.length) article.append(table(["answers", "", ""], answers));
    const refusals = Object.entries(about.responses).filter(([status]) => status !== "200");
    article.append(element("details", {}, element("summary", {}, "refusals"), table([], refusals.map(([status, one]) => [element("code", {}, status), one.description]))));
    doc.append(article);
  }
