// Stacked bars: where a step goes, a row for each rank.

/** A row of stacked segments; `parts` as in diagnosis.js, `scale` the time of the full width. */
function stackedBar(times, parts, scale) {
  const bar = el("div", {class: "bar", "aria-hidden": true});
  for (const part of parts) {
    const time = times[`${part.key}_ns`];
    if (!(time > 0)) continue;
    const share = time / scale;
    const segment = el("i", {class: `part-${part.key}`, "data-part": part.key, "data-ns": time},
                       share > 0.055 ? (time / 1e6).toFixed(time < 1e8 ? 1 : 0) : null);
    segment.style.width = `${100 * share}%`;
    bar.append(segment);
  }
  return bar;
}

/** The tooltip of one rank: all its parts, exact; the part under the pointer first. */
function barLines(rank, parts, key) {
  const pair = (part) => [part.label, format.exact(rank.mean_step[`${part.key}_ns`])];
  const pointed = parts.find((part) => part.key === key);
  return [`rank ${rank.rank}${pointed ? `: ${pointed.label} ${format.exact(rank.mean_step[`${key}_ns`])}` : ""}`,
          ["step", format.exact(rank.mean_step.duration_ns)],
          ...parts.filter((part) => rank.mean_step[`${part.key}_ns`] !== 0).map(pair)];
}

/** All ranks' bars in a box that scrolls when there are many; the late rank is marked and in sight. */
function rankBars(ranks, parts, late) {
  const scale = Math.max(...ranks.map((rank) => rank.mean_step.duration_ns), 1);
  const byRow = new Map();
  const list = el("div", {class: ranks.length > 40 ? "bars many" : "bars", role: "list", tabindex: ranks.length > 40 ? 0 : null,
                          "aria-label": "Mean step of each rank, split into its parts"});
  for (const rank of ranks) {
    const isLate = rank.rank === late;
    const label = el("span", {class: "rank"}, `rank ${rank.rank}`, isLate ? el("em", {}, "late") : null);
    const row = el("div", {class: isLate ? "row late" : "row", role: "listitem", "data-rank": rank.rank,
                           "aria-label": `rank ${rank.rank}: ${format.time(rank.mean_step.duration_ns)}`},
                   label, stackedBar(rank.mean_step, parts, scale),
                   el("span", {class: "total"}, format.ms(rank.mean_step.duration_ns)));
    byRow.set(row, rank);
    list.append(row);
  }
  list.addEventListener("pointermove", (event) => {
    const row = event.target.closest(".row");
    if (!row) return tip.hide();
    tip.show(event.clientX, event.clientY, barLines(byRow.get(row), parts, event.target.dataset.part));
  });
  list.addEventListener("pointerleave", () => tip.hide());
  const axis = el("div", {class: "axis", "aria-hidden": true});
  for (const tick of ticks(scale / 1e6, 8)) {
    const mark = el("span", {}, String(+tick.toPrecision(6)));
    mark.style.left = `${(100 * tick * 1e6) / scale}%`;
    axis.append(mark);
  }
  const box = el("div", {class: "bars-box"}, el("div", {class: "row axis-row"}, el("span", {class: "rank"}, "ms"), axis, el("span", {})), list);
  // Without moving the page: only the box scrolls.
  requestAnimationFrame(() => {
    const row = list.querySelector(".late");
    if (row) list.scrollTop = row.offsetTop - list.clientHeight / 2;
  });
  return {box, showRank: (index) => {
    const row = list.children[index];
    list.scrollTop = row.offsetTop - list.clientHeight / 2;
    row.animate([{background: theme("flash")}, {background: "transparent"}], 1600);
  }};
}

/** For many ranks: each a column, as high as its step. Several ranks to a pixel show their mean. */
function rankOverview(host, ranks, parts, late, onPick) {
  const kHeight = 150, kBottom = 22, kLeft = 46;
  const scale = Math.max(...ranks.map((rank) => rank.mean_step.duration_ns), 1);
  const at = (x, width) => Math.min(ranks.length - 1, Math.max(0, Math.floor(((x - kLeft) / (width - kLeft)) * ranks.length)));
  const canvas = drawing(host, kHeight, (context, width) => {
    const plot = width - kLeft, high = kHeight - kBottom - 12;
    const columns = Math.min(ranks.length, Math.floor(plot * (window.devicePixelRatio || 1)));
    context.clearRect(0, 0, width, kHeight);
    context.fillStyle = theme("muted");
    context.textAlign = "right";
    for (const tick of ticks(scale / 1e6, 4)) {
      const y = kHeight - kBottom - (tick * 1e6 / scale) * high;
      context.fillText(String(+tick.toPrecision(6)), kLeft - 8, y + 4);
      context.fillRect(kLeft - 4, Math.round(y), 4, 1);
    }
    const colours = parts.map((part) => theme(`part-${part.key}`));
    for (let column = 0; column < columns; ++column) {
      const first = Math.floor((column * ranks.length) / columns), end = Math.floor(((column + 1) * ranks.length) / columns);
      const pixel = window.devicePixelRatio || 1, edge = (at) => Math.round((kLeft + (at * plot) / columns) * pixel) / pixel;
      const x = edge(column);
      let y = kHeight - kBottom;
      for (const [index, part] of parts.entries()) {
        let time = 0;
        for (let i = first; i < end; ++i) time += ranks[i].mean_step[`${part.key}_ns`];
        const size = (time / (end - first) / scale) * high;
        context.fillStyle = colours[index];
        context.fillRect(x, y - size, edge(column + 1) - x, size);
        y -= size;
      }
    }
    context.fillStyle = theme("muted");
    context.textAlign = "center";
    for (const tick of ticks(ranks.length - 1, 8)) {
      context.fillText(String(ranks[tick].rank), kLeft + ((tick + 0.5) * plot) / ranks.length, kHeight - 6);
    }
    const index = ranks.findIndex((rank) => rank.rank === late);
    if (index < 0) return;
    const x = kLeft + ((index + 0.5) * plot) / ranks.length;
    context.fillStyle = theme("accent");
    context.beginPath();
    context.moveTo(x, 11);
    context.lineTo(x - 5, 2);
    context.lineTo(x + 5, 2);
    context.fill();
    context.font = `600 ${context.font}`;
    context.textAlign = x > width - 120 ? "right" : "left";
    context.fillText(`rank ${late}, late`, x + (x > width - 120 ? -9 : 9), 11);
  });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Steps of ${ranks.length} ranks side by side; the table below holds the numbers`);
  canvas.addEventListener("pointermove", (event) =>
    tip.show(event.clientX, event.clientY, barLines(ranks[at(event.offsetX, canvas.clientWidth)], parts)));
  canvas.addEventListener("pointerleave", () => tip.hide());
  canvas.addEventListener("click", (event) => onPick(at(event.offsetX, canvas.clientWidth)));
}
