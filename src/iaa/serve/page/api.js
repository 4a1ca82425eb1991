// The documentation of the API, made from openapi.json; nothing is loaded from other servers.
import { element, request } from "./elements.js";

const spec = await request("/openapi.json");
const resolve = (schema) => (schema?.$ref ? schema.$ref.split("/").slice(1).reduce((node, key) => node[key], spec) : schema || {});
const page = document.getElementById("doc");
document.getElementById("title").textContent = spec.info.title;
document.getElementById("description").textContent = spec.info.description;

function parameterType(parameter) {
  const schema = resolve(parameter);
  const options = (schema.anyOf || []).filter((option) => option.type !== "null");
  if (options.length) return parameterType(options[0]);
  const bounds = [schema.maximum !== undefined && `${schema.minimum} to ${schema.maximum}`, schema.default !== undefined && schema.default !== null && `default ${schema.default}`];
  const type = schema.format === "binary" || schema.contentMediaType ? "file" : schema.enum ? schema.enum.join(" | ") : schema.type || "";
  return [type, ...bounds.filter(Boolean)].join(", ");
}

function fieldType(field) {
  const schema = resolve((field.anyOf || []).find((option) => option.type !== "null") || field);
  return schema.type === "array" ? `list of ${fieldType(schema.items)}` : schema.title && schema.type === "object" ? schema.title : schema.type || "";
}

function describe(field) {
  if (field.description) return field.description;
  const target = field.items?.$ref || field.$ref;
  return target ? Object.keys(resolve({ $ref: target }).properties).join(", ") : "";
}

function table(head, rows) {
  const line = (cells, tag) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
  return element("table", {}, ...(head.length ? [line(head, "th")] : []), ...rows.map((row) => line(row, "td")));
}

function curl(example) {
  const command = example.replaceAll("{origin}", location.origin);
  return spec.security ? command.replace("curl ", 'curl -H "Authorization: Bearer $IAA_TOKEN" ') : command;
}

for (const [path, methods] of Object.entries(spec.paths))
  for (const [method, operation] of Object.entries(methods)) {
    const form = resolve(Object.values(operation.requestBody?.content || {})[0]?.schema);
    const fields = Object.entries(form.properties || {}).map(([name, field]) => [name, parameterType(field), resolve(field).description || field.description || "", form.required?.includes(name)]);
    const inUrl = (operation.parameters || []).filter((item) => !form.properties?.[item.name]);
    const inputs = [...fields, ...inUrl.map((item) => [item.name, parameterType(item.schema), item.description || "", item.required])];
    const article = element("article", {}, element("h2", {}, element("b", {}, method.toUpperCase()), path), element("p", {}, operation.description || operation.summary || ""));
    if (inputs.length) article.append(table(["parameters", "", ""], inputs.map(([name, type, text, required]) => [element("code", {}, required ? `${name} *` : name), type, text])));
    const example = operation["x-example"];
    if (example) article.append(element("pre", {}, curl(example)));
    const response = resolve(operation.responses[200].content?.["application/json"]?.schema);
    const properties = Object.entries(response.properties || {}).map(([name, field]) => [element("code", {}, name), fieldType(field), describe(field)]);
    if (properties.length) article.append(table(["response", "", ""], properties));
    const errors = Object.entries(operation.responses).filter(([status]) => status !== "200");
    article.append(element("details", {}, element("summary", {}, "errors"), table([], errors.map(([status, error]) => [element("code", {}, status), error.description]))));
    page.append(article);
  }
