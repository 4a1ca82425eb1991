"use strict";
// The class atlas: rows are kept as data and only a part of them is ever drawn.
(() => {
  const STEP = 50;
  const node = (tag, words, kind) => {
    const made = document.createElement(tag);
    if (words !== undefined) made.textContent = words;
    if (kind) made.className = kind;
    return made;
  };
  const number = (value, kind) => {
    if (value === null) return "–";
    if (kind === "whole") return value.toLocaleString("en");
    if (kind === "percent") return value.toFixed(1);
    if (kind === "share") return (100 * value).toFixed(0) + " %";
    return Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 0.01)
      ? value.toPrecision(3)
      : value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
  };

  for (const atlas of document.querySelectorAll(".atlas")) {
    const data = JSON.parse(atlas.querySelector("script").textContent);
    const { columns, rows, examples, across, side } = data;
    const head = atlas.querySelector("thead tr");
    const body = atlas.querySelector("tbody");
    const search = atlas.querySelector("input");
    const count = atlas.querySelector("output");
    const more = atlas.querySelector(".more");
    const names = rows.map((row) => row[0].toLowerCase());
    const collator = new Intl.Collator("en", { numeric: true });
    let order = rows.map((_, place) => place);
    let by = null, down = false, shown = STEP;

    const image = (place, label) => {
      const made = node("span", undefined, "pic");
      made.style.backgroundPosition = `-${(place % across) * side}px -${Math.floor(place / across) * side}px`;
      made.setAttribute("role", "img");
      made.setAttribute("aria-label", label);
      return made;
    };
    const cell = (row, place, column) => {
      const value = rows[place][column];
      const kind = columns[column][1];
      const made = node(column === 0 ? "th" : "td", undefined, kind);
      if (kind === "text") {
        made.scope = "row";
        if (examples[place] >= 0) made.append(image(examples[place], ""));
        made.append(node("span", value, "name"));
      } else if (kind === "lenders") {
        made.append(...value.map(([other, share]) => {
          const words = `${(100 * share).toFixed(0)} %`;
          const lender = node("span", undefined, "lender");
          lender.title = `${rows[other][0]}: ${words}`;
          if (examples[other] >= 0) lender.append(image(examples[other], rows[other][0]), words);
          else lender.append(`${rows[other][0]} ${words}`);
          return lender;
        }));
      } else if (kind === "images") {
        made.append(...value.map((at) => image(at, `far out in ${rows[place][0]}`)));
      } else {
        made.textContent = number(value, kind);
      }
      row.append(made);
    };
    const draw = () => {
      const words = search.value.trim().toLowerCase();
      const found = words ? order.filter((place) => names[place].includes(words)) : order;
      const drawn = found.slice(0, shown).map((place) => {
        const row = node("tr");
        columns.forEach((_, column) => cell(row, place, column));
        return row;
      });
      body.replaceChildren(...drawn);
      more.hidden = found.length <= shown;
      more.textContent = `Show ${Math.min(STEP, found.length - shown)} more`;
      count.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} classes`;
    };
    const compare = (a, b) => {
      const [x, y] = [rows[a][by], rows[b][by]];
      if (x === null || y === null) return (x === null) - (y === null);
      const least = typeof x === "string" ? collator.compare(x, y) : x - y;
      return (down ? -least : least) || a - b;
    };
    const sort = (column) => {
      down = by === column ? !down : columns[column][1] !== "text";
      by = column;
      order.sort(compare);
      for (const [place, made] of [...head.children].entries()) {
        made.setAttribute("aria-sort", place === by ? (down ? "descending" : "ascending") : "none");
      }
      shown = STEP;
      draw();
    };

    columns.forEach(([name, kind, meaning], column) => {
      const made = node("th", undefined, kind);
      made.scope = "col";
      if (kind === "lenders" || kind === "images") {
        made.append(node("span", name));
        made.title = meaning;
      } else {
        const button = node("button", name);
        button.type = "button";
        button.title = meaning;
        button.addEventListener("click", () => sort(column));
        made.append(button);
      }
      head.append(made);
    });
    search.addEventListener("input", () => { shown = STEP; draw(); });
    more.addEventListener("click", () => { shown += STEP; draw(); });
    draw();
  }

  // A closed configuration is of no use on paper.
  addEventListener("beforeprint", () => {
    for (const closed of document.querySelectorAll("details")) closed.open = true;
  });
})();
