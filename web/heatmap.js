// The waiting map: a row for each rank, a column for each collective in time order, colour = time waited there.

/** values[row * columns + column], NaN where the rank is no member -> the same reduced to bins by maximum. */
function binByMaximum(values, rows, columns, binRows, binColumns) {
  const bins = new Float64Array(binRows * binColumns).fill(NaN);
  for (let row = 0; row < rows; ++row) {
    const to = Math.floor((row * binRows) / rows) * binColumns;
    for (let column = 0; column < columns; ++column) {
      const value = values[row * columns + column], bin = to + Math.floor((column * binColumns) / columns);
      if (!(value <= bins[bin]) && !Number.isNaN(value)) bins[bin] = value;
    }
  }
  return bins;
}

/** The end of the colour scale: the largest value, or the 99th percentile when few values lie far above it. */
function scaleEnd(values) {
  const known = values.filter((value) => !Number.isNaN(value)).sort();
  if (known.length === 0) return {end: 1, clipped: false};
  const largest = known[known.length - 1], usual = known[Math.floor(0.99 * (known.length - 1))];
  const clipped = usual > 0 && largest > 2.5 * usual;
  const wanted = Math.max(clipped ? usual : largest, 1), step = niceStep(wanted / 5);
  return {end: Math.ceil(wanted / step) * step, clipped};
}

/** 256 colours between the theme's five, as bytes. */
function colourTable() {
  const stops = [0, 1, 2, 3, 4].map((index) => channels(theme(`heat-${index}`)));
  const table = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; ++i) {
    const at = (i / 255) * 4, low = Math.min(3, Math.floor(at));
    for (let c = 0; c < 3; ++c) table[3 * i + c] = stops[low][c] + (at - low) * (stops[low + 1][c] - stops[low][c]);
  }
  return table;
}

/** An image of the bins, one pixel each. */
function heatImage(bins, binRows, binColumns, end) {
  const image = new ImageData(binColumns, binRows), table = colourTable(), none = channels(theme("heat-none"));
  for (let i = 0; i < bins.length; ++i) {
    const at = 3 * Math.round(255 * Math.min(1, bins[i] / end)), known = at >= 0;  // NaN is neither
    for (let c = 0; c < 3; ++c) image.data[4 * i + c] = known ? table[at + c] : none[c];
    image.data[4 * i + 3] = 255;
  }
  const canvas = el("canvas", {width: binColumns, height: binRows});
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/**
 * map: {rows: [label], late: row or -1, columns: count, values, last: column => row or -1, describe: (row, column) =>
 * lines of the tooltip, label: text for readers of the screen}. Arrow keys move the pointed cell.
 */
function heatMap(host, map) {
  const rows = map.rows.length, kLeft = 74, kRight = 14, kBottom = 34, kTop = 4, kTallest = 1100;
  const rowHeight = rows <= 12 ? 32 : rows <= 32 ? 20 : Math.max(1, Math.floor(620 / rows));
  const high = Math.min(kTallest, rows * rowHeight);
  const {end, clipped} = scaleEnd(map.values);
  const plotWidth = (width) => width - kLeft - kRight;
  const cellHeight = high / rows;

  function drawCells(context, width) {
    const plot = plotWidth(width), cellWidth = plot / map.columns, scale = window.devicePixelRatio || 1;
    const binRows = Math.min(rows, Math.floor(high * scale)), binColumns = Math.min(map.columns, Math.floor(plot * scale));
    const bins = binByMaximum(map.values, rows, map.columns, binRows, binColumns);
    context.imageSmoothingEnabled = false;
    context.drawImage(heatImage(bins, binRows, binColumns, end), kLeft, kTop, plot, high);
    context.fillStyle = theme("surface");
    if (cellWidth >= 5 && cellHeight >= 5) {
      for (let c = 1; c < map.columns; ++c) context.fillRect(Math.round(kLeft + c * cellWidth) - 0.5, kTop, 1, high);
    }
    if (cellHeight >= 5) for (let r = 1; r < rows; ++r) context.fillRect(kLeft, Math.round(kTop + r * cellHeight) - 0.5, plot, 1);
    if (cellWidth >= 9 && cellHeight >= 9) drawInCells(context, cellWidth);
  }

  /** In large cells: the wait in ms, and a dot where the last rank arrived. */
  function drawInCells(context, cellWidth) {
    const table = colourTable();
    context.textAlign = "center";
    for (let c = 0; c < map.columns; ++c) {
      for (let r = 0; r < rows; ++r) {
        const value = map.values[r * map.columns + c], x = kLeft + (c + 0.5) * cellWidth, y = kTop + (r + 0.5) * cellHeight;
        if (Number.isNaN(value)) continue;
        const at = 3 * Math.round(255 * Math.min(1, value / end));
        const bright = 0.3 * table[at] + 0.59 * table[at + 1] + 0.11 * table[at + 2] > 125;
        context.fillStyle = bright ? "#16181b" : "#ffffff";
        const isLast = map.last(c) === r, written = cellWidth >= 40 && cellHeight >= 16 && !(isLast && value === 0);
        if (isLast) {
          context.beginPath();
          context.arc(written ? x - 17 : x, y, Math.min(written ? 3 : 4, cellHeight / 4), 0, 7);
          context.fill();
        }
        if (written) context.fillText((value / 1e6).toFixed(value < 1e7 ? 2 : 1), isLast ? x + 4 : x, y + 4);
      }
    }
  }

  function drawLabels(context, width) {
    context.textAlign = "right";
    context.fillStyle = theme("muted");
    const lateY = map.late < 0 ? -99 : kTop + (map.late + 0.5) * cellHeight;
    const every = cellHeight >= 15 ? 1 : niceStep(15 / cellHeight);
    for (let r = 0; r < rows; r += every) {
      const y = kTop + (r + 0.5) * cellHeight;
      if (Math.abs(y - lateY) > 13) context.fillText(map.rows[r], kLeft - 12, y + 4);
    }
    context.textAlign = "center";
    const plot = plotWidth(width), step = Math.max(1, niceStep(map.columns / Math.max(2, plot / 60)));
    for (let c = step - 1; c < map.columns; c += step) context.fillText(String(c + 1), kLeft + ((c + 0.5) * plot) / map.columns, kTop + high + 15);
    context.textAlign = "left";
    context.fillText("collectives in time order", kLeft, kTop + high + 31);
    if (map.late < 0) return;
    context.fillStyle = context.strokeStyle = theme("accent");
    context.lineWidth = 2;
    if (cellHeight >= 9) context.strokeRect(kLeft - 1, lateY - cellHeight / 2, plot + 2, cellHeight);
    for (const [tipX, backX] of [[kLeft - 2, kLeft - 10], [width - kRight + 2, width - kRight + 10]]) {
      context.beginPath();
      context.moveTo(tipX, lateY);
      context.lineTo(backX, lateY - 5);
      context.lineTo(backX, lateY + 5);
      context.fill();
    }
    context.textAlign = "right";
    context.font = `600 ${context.font}`;
    context.fillText(map.rows[map.late], kLeft - 13, lateY + 4);
  }

  const marks = ticks(end / 1e6, 5).map((tick) => {
    const mark = el("span", {}, String(+tick.toPrecision(6)) + (clipped && tick * 1e6 > 0.999 * end ? " or more" : ""));
    mark.style.left = `${(100 * tick * 1e6) / end}%`;
    return mark;
  });
  host.append(el("div", {class: "heat-legend"},
                  el("span", {}, "waiting, ms"), el("div", {class: "scale"}, el("div", {class: "ramp"}), el("div", {class: "axis"}, marks)),
                  rows <= 60 ? el("span", {class: "dot"}, "last to arrive") : null,
                  map.values.some(Number.isNaN) ? el("span", {class: "none"}, "not a member") : null));

  const frame = el("div", {class: "heat"});
  host.append(frame);
  const canvas = drawing(frame, kTop + high + kBottom, (context, width) => {
    context.clearRect(0, 0, width, kTop + high + kBottom);
    drawCells(context, width);
    drawLabels(context, width);
  });
  const cursor = el("div", {class: "cursor", hidden: true});
  frame.append(cursor);
  let row = Math.max(0, map.late), column = 0;

  function point(x, y) {
    const plot = plotWidth(canvas.clientWidth), bounds = canvas.getBoundingClientRect();
    cursor.hidden = false;
    cursor.style.left = `${kLeft + (column * plot) / map.columns}px`;
    cursor.style.top = `${kTop + row * cellHeight}px`;
    cursor.style.width = `${Math.max(3, plot / map.columns)}px`;
    cursor.style.height = `${Math.max(3, cellHeight)}px`;
    tip.show(x ?? bounds.left + kLeft + ((column + 1) * plot) / map.columns, y ?? bounds.top + kTop + (row + 1) * cellHeight,
             map.describe(row, column));
  }
  function leave() {
    cursor.hidden = true;
    tip.hide();
  }
  canvas.addEventListener("pointermove", (event) => {
    const plot = plotWidth(canvas.clientWidth);
    const r = Math.floor((event.offsetY - kTop) / cellHeight), c = Math.floor(((event.offsetX - kLeft) / plot) * map.columns);
    if (r < 0 || r >= rows || c < 0 || c >= map.columns) return leave();
    [row, column] = [r, c];
    point(event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  const kMoves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
  canvas.addEventListener("keydown", (event) => {
    const move = kMoves[event.key];
    if (!move) return;
    event.preventDefault();
    row = Math.min(rows - 1, Math.max(0, row + move[0]));
    column = Math.min(map.columns - 1, Math.max(0, column + move[1]));
    point();
  });
  for (const [name, value] of [["role", "img"], ["tabindex", "0"], ["aria-label", map.label]]) canvas.setAttribute(name, value);
}
