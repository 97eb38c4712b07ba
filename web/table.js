// Sortable tables. A column: {title, value: row => number or text, kind, help, show: (value, row) => text}.
// Kinds: text, rank, count, ms, us, share. Times are ns and stand in the cell as data-ns, whole.

const kShown = 15;
const kKinds = {
  text: (value) => value,
  rank: (value) => String(value),
  count: (value) => format.count(value),
  ms: (value) => format.ms(value),
  us: (value) => format.us(value),
  share: (value) => format.percent(value, 1),
};

/**
 * A table of `rows`, the first 15 until all are asked for; `pinned(row)` rows are always there. `sort` is the index of
 * the column it starts with (largest first), or none for the given order.
 */
function sortableTable({caption, columns, rows, sort = -1, pinned = () => false, marked = () => false}) {
  let column = sort, down = true, all = rows.length <= kShown + 3;
  const body = el("tbody", {});
  const heads = columns.map((each, index) => {
    const button = el("button", {type: "button", title: each.help, onclick: () => sortBy(index)}, each.title);
    return el("th", {scope: "col", class: each.kind}, button);
  });
  const toggle = el("button", {type: "button", class: "more", onclick: () => {
    all = !all;
    fill();
  }});

  function sortBy(index) {
    down = column === index ? !down : columns[index].kind !== "text" && columns[index].kind !== "rank";
    column = index;
    fill();
  }
  function ordered() {
    if (column < 0) return rows;
    const value = columns[column].value, sign = down ? -1 : 1;
    const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true}));
    return [...rows].sort((a, b) => sign * compare(value(a), value(b)));
  }
  function cell(each, row) {
    const value = each.value(row), text = each.show ? each.show(value, row) : kKinds[each.kind](value);
    const time = each.kind === "ms" || each.kind === "us";
    const attributes = {class: each.kind, "data-ns": time ? value : null, title: each.kind === "text" && text.length > 40 ? text : null};
    return el("td", attributes, each.kind === "text" ? el("span", {}, text) : text);
  }
  function fill() {
    const order = ordered();
    const shown = all ? order : order.filter((row, index) => index < kShown || pinned(row));
    body.replaceChildren(...shown.map((row) =>
      el("tr", {class: marked(row) ? "marked" : null}, columns.map((each) => cell(each, row)))));
    heads.forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    toggle.textContent = all ? `Show the first ${kShown}` : `Show all ${format.count(rows.length)}`;
    toggle.setAttribute("aria-expanded", String(all));
    toggle.hidden = rows.length <= kShown + 3;
  }

  fill();
  const table = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body);
  return el("div", {class: "table"},
            el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption}, table), toggle);
}
