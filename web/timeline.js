// The timeline of one step: lanes of several ranks on one clock. Everything that is seen at once lies on one canvas, which
// stays where it is while the box around it scrolls through the rows.

const kKeys = [
  ["w s, + \u2212", "zoom in, out"], ["a d", "move left, right"], ["Home", "the whole step"],
  ["\u2190 \u2192", "the slice before, after"], ["\u2191 \u2193", "the row above, below"],
  ["f", "fit the chosen slice"], ["c", "open or close its rank"], ["Enter", "in the search: the next found, with Shift the one before"],
  ["Esc", "choose nothing"], ["?", "these keys"], ["wheel", "zoom around the pointer, once the timeline was clicked; with Ctrl always"],
];
const kAxis = 26, kRankHeight = 26, kLaneGap = 5, kRowHeight = 14, kDeviceRowHeight = 18, kTallest = 760;
const kPaperWidth = 680;  // CSS pixels of what @page leaves of A4: layout for paper comes too late for a canvas
const kShortestSpan = 50;  // ns, the narrowest window

/** A name as a label: without return type, namespace and arguments of templates. The details have all of it. */
function shortName(name) {
  const short = name.replace(/^void /, "").replaceAll("(anonymous namespace)::", "").replace("at::native::", "");
  const cut = short.slice(1).search(/[<(]/);
  return cut < 0 ? short : short.slice(0, cut + 1);
}

class Timeline {
  /** `late`: rank number or -1; `collectives`: those of the diagnosis. */
  constructor(host, data, late, collectives) {
    Object.assign(this, {data, late, collectives, begin: data.begin, end: data.end, chosen: null, found: null});
    this.labels = data.packed.names.map(() => null);
    const many = data.rows.length > 70;
    for (const rank of data.ranks) rank.open = !many || rank.rank === late;
    this.build(host);
    this.arrange();
  }

  // --- the elements --------------------------------------------------------------------------------------------------
  build(host) {
    const button = (text, label, act) => el("button", {type: "button", class: "tool", "aria-label": label, title: label,
                                                       onclick: () => { act(); this.request(); }}, text);
    this.search = el("input", {type: "search", placeholder: "Find a name", "aria-label": "Highlight slices whose name holds this",
                               spellcheck: "false", oninput: () => this.highlight(), onkeydown: (event) => this.searchKey(event)});
    this.searchResult = el("output", {class: "found"});
    this.range = el("output", {class: "range"});
    this.keys = el("dl", {class: "keys", hidden: true}, kKeys.map(([key, what]) => el("div", {}, el("dt", {}, key), el("dd", {}, what))));
    this.details = el("div", {class: "details", role: "status", "aria-live": "polite"});
    this.canvas = el("canvas", {tabindex: 0, role: "application", "aria-roledescription": "timeline", "aria-label": this.summary()});
    this.spacer = el("div", {});
    this.box = el("div", {class: "timeline-box"}, this.canvas, this.spacer);
    host.append(
      el("div", {class: "tools"}, this.search, this.searchResult,
         el("span", {class: "push"}), this.range,
         button("+", "Zoom in", () => this.zoom(0.5)), button("\u2212", "Zoom out", () => this.zoom(2)),
         button("Fit", "Fit the chosen slice", () => this.fit()), button("Whole step", "Show the whole step", () => this.show(this.data.begin, this.data.end)),
         button("Keys", "Show the keys", () => this.toggleKeys())),
      this.keys, this.legend(), this.box, this.details);
    this.showDetails();
    this.listen();
  }

  summary() {
    const {ranks, rows, count, packed} = this.data;
    return `Timeline of ${packed.step < 0 ? "the recording" : `step ${packed.step}`}: ${format.plural(ranks.length, "rank")}, ` +
           `${format.plural(count, "slice")} in ${format.plural(rows.length, "row")} over ${format.time(packed.length_ns)}. ` +
           "Arrow keys go from slice to slice, what is chosen is read out below; a question mark lists all keys. " +
           "The tables of this page hold the sums.";
  }

  legend() {
    const seen = new Set(this.data.packed.kinds);
    if (this.data.packed.collectives.length > 0) seen.add(kWaiting);
    const outside = this.data.ranks.some((rank) => rank.begin_ns > 0 || rank.end_ns < this.data.end);
    return el("ul", {class: "legend inline"}, [1, 7, 0, 2, 3, 4, 5, 6].filter((kind) => seen.has(kind)).map((kind) =>
      el("li", {}, el("i", {class: `swatch act-${kActivities[kind].key}`}), el("span", {}, kActivities[kind].label))),
      outside ? el("li", {}, el("i", {class: "swatch outside"}), el("span", {}, "not the rank's own step")) : null);
  }

  listen() {
    const {canvas, box} = this;
    canvas.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("scroll", () => this.request(), {passive: true});
    // Without the click first, the wheel would zoom when somebody only wants to get past.
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const pixels = event.deltaMode === 1 ? 16 : 1;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX * pixels * this.nsPerPixel());
      else this.zoom(Math.exp(event.deltaY * pixels * 0.0022), this.timeAt(event.offsetX));
      this.request();
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.focus({preventScroll: true});
      this.drag = {x: event.clientX, y: event.clientY, begin: this.begin, end: this.end, top: box.scrollTop, moved: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.drag ? this.dragTo(event) : this.point(event));
    canvas.addEventListener("pointerup", (event) => {
      if (this.drag && !this.drag.moved) this.click(event);
      this.drag = null;
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => tip.hide());
    canvas.addEventListener("blur", () => tip.hide());
    new ResizeObserver(() => this.arrange()).observe(this.box);
    redraws.push(() => this.draw());
  }

  // --- the rows ------------------------------------------------------------------------------------------------------
  /** Which rows of a rank are there while it is closed: the device's, or the outer ones of the host. */
  shownRows(rank) {
    if (rank.open) return rank.rows;
    const device = rank.rows.filter((row) => row.lane.device);
    return device.length > 0 ? device : rank.rows.filter((row) => row.level < 2);
  }

  /** Where everything lies: lines of {top, height, rank, row}, row = null for the head of a rank. */
  arrange() {
    this.lines = [];
    let top = 4, lane = null;
    for (const rank of this.data.ranks) {
      this.lines.push({at: this.lines.length, top, height: kRankHeight, rank, row: null});
      top += kRankHeight;
      for (const row of this.shownRows(rank)) {
        if (lane !== row.lane && lane && lane.rank === rank) top += kLaneGap;
        const height = row.lane.device ? kDeviceRowHeight : kRowHeight;
        this.lines.push({at: this.lines.length, top, height, rank, row, first: lane !== row.lane});
        lane = row.lane;
        top += height;
      }
      top += 6;
    }
    this.total = top;
    const view = Math.min(kTallest, kAxis + top);
    this.box.style.height = `${view}px`;
    this.canvas.style.height = `${view}px`;
    this.spacer.style.height = `${Math.max(0, kAxis + top - view)}px`;
    this.draw();
  }

  lineOf(row) {
    return this.lines.find((line) => line.row === row);
  }

  lineAt(y) {
    const at = y - kAxis + this.box.scrollTop;
    return y < kAxis ? null : this.lines.find((line) => at >= line.top && at < line.top + line.height) || null;
  }

  // --- the window ----------------------------------------------------------------------------------------------------
  get width() {
    return document.documentElement.classList.contains("on-paper") ? kPaperWidth : this.box.clientWidth;
  }
  /** Left of the plot: names of ranks and lanes. */
  get gutter() {
    return Math.min(168, Math.max(96, Math.round(0.18 * this.width)));
  }
  plotWidth() {
    return Math.max(1, this.width - this.gutter);
  }
  nsPerPixel() {
    return (this.end - this.begin) / this.plotWidth();
  }
  timeAt(x) {
    return this.begin + (x - this.gutter) * this.nsPerPixel();
  }

  /** Shows begin..end as far as the step goes. */
  show(begin, end) {
    const whole = this.data.end - this.data.begin, span = Math.min(whole, Math.max(kShortestSpan, end - begin));
    const middle = (begin + end) / 2;
    this.begin = Math.min(this.data.end - span, Math.max(this.data.begin, middle - span / 2));
    this.end = this.begin + span;
  }

  zoom(factor, around) {
    const chosen = this.chosen && this.chosen.row.start[this.chosen.index];
    const inside = chosen !== null && chosen >= this.begin && chosen <= this.end;
    const fixed = around ?? (inside ? chosen : (this.begin + this.end) / 2);
    const whole = this.data.end - this.data.begin, span = this.end - this.begin;
    const share = Math.min(whole, Math.max(kShortestSpan, span * factor)) / span;
    this.show(fixed + (this.begin - fixed) * share, fixed + (this.end - fixed) * share);
  }

  pan(time) {
    this.show(this.begin + time, this.end + time);
  }

  fit() {
    if (!this.chosen) return;
    const {row, index} = this.chosen, length = Math.max(kShortestSpan, row.end[index] - row.start[index]);
    this.show(row.start[index] - 0.15 * length, row.start[index] + 1.15 * length);
  }

  // --- choosing ------------------------------------------------------------------------------------------------------
  /** The slice under a point, and how many more begin within its pixel. */
  sliceAt(line, x) {
    if (!line || !line.row || x < this.gutter) return null;
    const {row} = line, pixel = this.nsPerPixel(), time = this.timeAt(x);
    let index = row.firstEndingAfter(time - 2 * pixel);
    if (index >= row.count || row.start[index] > time + 2 * pixel) return null;
    const end = Math.max(index + 1, row.firstStartingAt(index, time + pixel));
    const more = end - index - 1;
    // The one that holds the point, else the longest of the first few.
    const length = (i) => (row.start[i] <= time && row.end[i] > time ? Infinity : row.end[i] - row.start[i]);
    for (let i = index + 1; i < Math.min(end, index + 200); ++i) if (length(i) > length(index)) index = i;
    return {row, index, more};
  }

  choose(row, index) {
    this.chosen = row ? {row, index} : null;
    this.showDetails();
  }

  /** Moves the window and the box so that the chosen slice is seen. */
  reveal() {
    const {row, index} = this.chosen, start = row.start[index], stop = row.end[index];
    if (stop < this.begin || start > this.end) {
      const span = this.end - this.begin;
      this.show(start - span / 3, start + (2 * span) / 3);
    }
    if (!row.lane.rank.open && !this.lineOf(row)) this.toggle(row.lane.rank);
    const line = this.lineOf(row), view = this.box.clientHeight - kAxis;
    if (line.top < this.box.scrollTop) this.box.scrollTop = line.top - kRankHeight;
    else if (line.top + line.height > this.box.scrollTop + view) this.box.scrollTop = line.top + line.height + 8 - view;
  }

  toggle(rank) {
    rank.open = !rank.open;
    if (this.chosen && !rank.open && this.chosen.row.lane.rank === rank && !this.shownRows(rank).includes(this.chosen.row)) this.choose(null);
    this.arrange();
  }

  step(sideways, down) {
    const rows = this.lines.filter((line) => line.row).map((line) => line.row);
    if (rows.length === 0) return;
    const middle = (this.begin + this.end) / 2;
    let row = this.chosen ? this.chosen.row : rows[0], index;
    if (!this.chosen || down !== 0) {
      const time = this.chosen ? Math.max(this.begin, row.start[this.chosen.index]) : middle;
      if (this.chosen) row = rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(row) + down))];
      index = Math.min(row.count - 1, row.firstEndingAfter(time));
    } else {
      index = Math.min(row.count - 1, Math.max(0, this.chosen.index + sideways));
    }
    this.choose(row, index);
    this.reveal();
  }

  // --- what people do ------------------------------------------------------------------------------------------------
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = this.end - this.begin;
    const kActs = {
      w: () => this.zoom(0.6), s: () => this.zoom(1 / 0.6), "+": () => this.zoom(0.6), "=": () => this.zoom(0.6),
      "-": () => this.zoom(1 / 0.6), a: () => this.pan(-0.2 * span), d: () => this.pan(0.2 * span),
      Home: () => this.show(this.data.begin, this.data.end), f: () => this.fit(),
      c: () => this.chosen && this.toggle(this.chosen.row.lane.rank),
      ArrowLeft: () => this.step(-1, 0), ArrowRight: () => this.step(1, 0),
      ArrowUp: () => this.step(0, -1), ArrowDown: () => this.step(0, 1),
      Escape: () => this.choose(null), "?": () => this.toggleKeys(),
    };
    const act = kActs[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
    this.request();
  }

  searchKey(event) {
    if (event.key !== "Enter" || !this.data.marks) return;
    event.preventDefault();
    const time = this.chosen ? this.chosen.row.start[this.chosen.index] : this.data.begin - 1;
    const next = this.data.nextMarked(time, !event.shiftKey, () => true);
    if (!next) return;
    this.choose(next.row, next.index);
    this.reveal();
    this.request();
  }

  highlight() {
    const found = this.data.search(this.search.value);
    this.searchResult.replaceChildren(...(found ? [el("i", {class: "swatch match"}), `${format.plural(found.count, "slice")}, ${format.time(found.time)}`] : []));
    this.request();
  }

  toggleKeys() {
    this.keys.hidden = !this.keys.hidden;
  }

  point(event) {
    const line = this.lineAt(event.offsetY), slice = this.sliceAt(line, event.offsetX);
    this.canvas.style.cursor = slice || (line && !line.row) ? "pointer" : "default";
    if (!slice) return tip.hide();
    const more = slice.more > 0 ? [`${format.plural(slice.more, "more slice")} here: zoom in`] : [];
    tip.show(event.clientX, event.clientY, [this.data.nameOf(slice.row, slice.index),
                                            ...this.facts(slice.row, slice.index).map(([label, value]) => [label, value]), ...more]);
  }

  dragTo(event) {
    const {drag} = this, x = event.clientX - drag.x, y = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(x, y) < 4) return;
    drag.moved = true;
    tip.hide();
    const time = (x * (drag.end - drag.begin)) / this.plotWidth();
    this.show(drag.begin - time, drag.end - time);
    this.box.scrollTop = drag.top - y;
    this.request();
  }

  click(event) {
    const line = this.lineAt(event.offsetY);
    if (line && !line.row) {
      this.toggle(line.rank);
    } else {
      const slice = this.sliceAt(line, event.offsetX);
      this.choose(slice && slice.row, slice && slice.index);
    }
    this.request();
  }

  /** [label, text, ns or null] of a slice. */
  facts(row, index) {
    const {data} = this, lane = row.lane, [operator, shapes] = data.detailOf(row, index), member = row.members.get(index);
    const time = (label, ns) => [label, format.exact(ns), ns];
    const facts = [["activity", kActivities[data.activityOf(row, index)].label, null], time("start", row.start[index]),
                   time("duration", row.end[index] - row.start[index]), ["rank", String(lane.rank.rank), null], ["lane", lane.name, null]];
    if (member) {
      const collective = this.collectives[member.collective];
      facts.push(["collective", `#${member.collective + 1} ${collective.name}`, null], time("waited", member.wait),
                 time("transfer after that", collective.transfer_ns), ["last to arrive", `rank ${collective.last_rank}`, null]);
    }
    if (operator) facts.push(["launched by", operator, null]);
    if (shapes) facts.push(["shapes", shapes, null]);
    return facts;
  }

  showDetails() {
    if (!this.chosen) {
      const start = this.data.packed.step < 0 ? "the recording" : "the step";
      this.details.replaceChildren(el("p", {class: "hint"}, `Choose a slice to see what it is; a collective shows its members and who came last. Starts count from where the first rank began ${start}. Pale strips are short slices with pauses between them.`));
      return;
    }
    const {row, index} = this.chosen;
    this.details.replaceChildren(
      el("p", {class: "name"}, el("i", {class: `swatch act-${kActivities[this.data.activityOf(row, index)].key}`}), this.data.nameOf(row, index)),
      el("dl", {}, this.facts(row, index).map(([label, text, ns]) => el("div", {}, el("dt", {}, label), el("dd", {"data-ns": ns}, text)))));
  }

  // --- drawing -------------------------------------------------------------------------------------------------------
  /** Draws with the next frame, once for all that happens until then. */
  request() {
    if (this.requested) return;
    this.requested = true;
    requestAnimationFrame(() => {
      this.requested = false;
      this.draw();
    });
  }

  draw() {
    if (!this.data.ready || this.box.clientWidth === 0) return;
    const {width} = this, height = this.box.clientHeight, scale = window.devicePixelRatio || 1;
    const {canvas} = this;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      this.image = null;
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    this.font = getComputedStyle(document.body).fontFamily;
    context.fillStyle = theme("surface");
    context.fillRect(0, 0, width, height);
    this.range.textContent = `${this.axisText(this.begin, 1)} \u2013 ${this.axisText(this.end, 1)} of ${format.time(this.data.end)}`;
    const labels = this.drawRows(context, width, height, scale);
    this.drawLabels(context, labels);
    this.drawChosen(context, width, height);
    this.drawGutter(context, height);
    this.drawAxis(context, width);
  }

  axisTicks() {
    const step = niceStep(this.nsPerPixel() * 110), values = [];
    for (let tick = Math.ceil(this.begin / step) * step; tick <= this.end; tick += step) values.push(tick);
    return {step, values};
  }

  /** With as many decimals as tell the ticks apart, and `more`. */
  axisText(time, more = 0) {
    const [digits, unit] = this.data.end >= 1e10 ? [9, "s"] : [6, "ms"];
    const decimals = Math.ceil(digits - Math.log10(niceStep(this.nsPerPixel() * 110))) + more;
    return `${(time / 10 ** digits).toFixed(Math.min(digits, Math.max(0, decimals)))} ${unit}`;
  }

  /** The slices, as pixels. Returns the texts to write on them. */
  drawRows(context, width, height, scale) {
    const left = Math.round(this.gutter * scale), top = Math.round(kAxis * scale);
    const columns = canvasColumns(this.canvas, left), lines = Math.max(1, this.canvas.height - top);
    if (!this.image) this.image = new ImageData(columns, lines);
    const pixels = new Uint32Array(this.image.data.buffer), palette = timelinePalette();
    const perNs = columns / (this.end - this.begin), painter = new RowPainter(this.data, palette, columns, this.begin, perNs, 34 * scale);
    const labels = [], background = new Uint32Array(columns), ticks = this.axisTicks().values;
    const scroll = this.box.scrollTop;
    pixels.fill(palette.surface);
    let rankOf = null;
    for (const line of this.lines) {
      if (line.top + line.height <= scroll || line.top >= scroll + height - kAxis) continue;
      if (rankOf !== line.rank) {
        rankOf = line.rank;
        this.fillBackground(background, line.rank, palette, perNs, ticks);
      }
      const behind = this.lines[line.at + 1], space = behind && behind.rank === line.rank ? behind.top - line.top - line.height : 0;
      if (line.row) {
        painter.paint(line.row, background, (index, from, to) => labels.push({line, index, from: from / scale, to: to / scale}));
      } else {
        painter.line.set(background);
        painter.anyHatched = false;
      }
      const first = Math.round((line.top - scroll) * scale), end = Math.round((line.top + line.height + space - scroll) * scale);
      const gap = line.row ? Math.max(1, Math.round((space + 2) * scale)) : 0;
      copyLine(pixels, columns, lines, painter, background, first, end, gap, scale);
    }
    context.putImageData(this.image, left, top);
    return labels;
  }

  /** White within the rank's own step, grey before and after; the ticks of the axis. */
  fillBackground(background, rank, palette, perNs, ticks) {
    const pixel = (time) => Math.min(background.length, Math.max(0, Math.round((time - this.begin) * perNs)));
    background.fill(palette.outside);
    background.fill(palette.surface, pixel(rank.begin_ns), pixel(rank.end_ns));
    for (const tick of ticks) background[Math.min(background.length - 1, pixel(tick))] = palette.grid;
  }

  drawLabels(context, labels) {
    context.font = `11px ${this.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    const ink = kActivities.map(({key}) => {
      const [red, green, blue] = channels(theme(`act-${key}`));
      return 0.3 * red + 0.59 * green + 0.11 * blue > 120 ? "#16181b" : "#ffffff";
    });
    const muted = theme("muted"), matchInk = theme("match-ink"), width = this.plotWidth(), {data} = this;
    for (const {line, index, from, to} of labels) {
      const {row} = line, name = row.name[index], member = row.members.get(index);
      // On the transfer, if that has room: the hatching of the waiting is no ground for text.
      const ready = member ? from + (member.wait / (this.end - this.begin)) * width : from;
      const begin = Math.max(0, ready), room = Math.min(to, width) - begin - 8;
      if (room < 24) continue;
      const {text, size} = this.labelOf(context, name), letters = size <= room ? text.length : Math.floor((text.length * room) / size);
      if (letters < 3) continue;
      const kind = data.packed.kinds[name], marked = data.marks && data.marks[name];
      context.fillStyle = marked ? matchInk : data.marks ? muted : ink[kind];
      context.fillText(text.length <= letters ? text : `${text.slice(0, letters - 1)}\u2026`, this.gutter + begin + 4,
                       kAxis + line.top - this.box.scrollTop + line.height / 2);
    }
    context.textBaseline = "alphabetic";
  }

  /** A name's label and its width, measured once. */
  labelOf(context, name) {
    if (!this.labels[name]) {
      const text = shortName(this.data.packed.names[name]);
      this.labels[name] = {text, size: context.measureText(text).width};
    }
    return this.labels[name];
  }

  xOf(time) {
    return this.gutter + (time - this.begin) / this.nsPerPixel();
  }

  /** The chosen slice; of a collective all members, tied together, and the moment at which the last one came. */
  drawChosen(context, width, height) {
    if (!this.chosen) return;
    const {row, index} = this.chosen, member = row.members.get(index);
    context.save();
    context.beginPath();
    context.rect(this.gutter, kAxis, width - this.gutter, height - kAxis);
    context.clip();
    const frame = (each, at, colour, thick) => {
      const line = this.lineOf(each);
      if (!line) return null;
      const left = this.xOf(each.start[at]), right = Math.max(left + 3, this.xOf(each.end[at])), top = kAxis + line.top - this.box.scrollTop;
      context.strokeStyle = colour;
      context.lineWidth = thick;
      context.strokeRect(left - 1, top - 1, right - left + 2, line.height);
      return {left, right, top, bottom: top + line.height - 2};
    };
    if (member) this.drawCollective(context, member.collective, frame);
    frame(row, index, theme("text"), 2);
    context.restore();
  }

  drawCollective(context, number, frame) {
    const collective = this.collectives[number], accent = theme("accent");
    const members = this.data.membersOf.get(number);
    const frames = members.map((each) => frame(each.row, each.index, accent, 2)).filter(Boolean);
    frames.sort((a, b) => a.top - b.top);
    context.strokeStyle = context.fillStyle = accent;
    context.lineWidth = 1;
    // From member to member by where each arrives: the one who comes last sticks out to the right.
    context.beginPath();
    for (let i = 1; i < frames.length; ++i) {
      context.moveTo(frames[i - 1].left, frames[i - 1].bottom);
      context.lineTo(frames[i].left, frames[i].top);
    }
    context.stroke();
    const ready = ({row, index}) => row.start[index] + row.members.get(index).wait;
    const last = members.find(({row}) => row.lane.rank.rank === collective.last_rank);
    const at = this.xOf(last ? ready(last) : Math.max(...members.map(ready)));
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(at, kAxis);
    context.lineTo(at, this.canvas.clientHeight);
    context.stroke();
    context.setLineDash([]);
    const text = `rank ${collective.last_rank} came last${last ? "" : " (not shown)"}`;
    const line = last && this.lineOf(last.row);
    const y = line ? kAxis + line.top - this.box.scrollTop - 6 : kAxis + 14;
    context.font = `600 12px ${this.font}`;
    const size = context.measureText(text).width, right = at + 8 + size < this.width;
    context.fillStyle = theme("surface");
    context.fillRect(right ? at + 3 : at - size - 9, y - 12, size + 8, 16);
    context.fillStyle = accent;
    context.textAlign = right ? "left" : "right";
    context.fillText(text, right ? at + 7 : at - 5, y);
  }

  drawGutter(context, height) {
    context.save();
    context.beginPath();
    context.rect(0, kAxis, this.width, height - kAxis);
    context.clip();
    context.textBaseline = "middle";
    for (const line of this.lines) {
      const y = kAxis + line.top - this.box.scrollTop + line.height / 2;
      if (y < kAxis - 30 || y > height + 30) continue;
      if (!line.row) this.drawRankHead(context, line, y);
      else if (line.first) {
        context.font = `12px ${this.font}`;
        context.textAlign = "right";
        context.fillStyle = theme("muted");
        context.fillText(fitText(context, line.row.lane.name, this.gutter - 34), this.gutter - 10, y);
      }
    }
    context.restore();
  }

  drawRankHead(context, line, y) {
    const {rank} = line, isLate = rank.rank === this.late, hidden = rank.rows.length - this.shownRows({...rank, open: false}).length;
    context.font = `600 13px ${this.font}`;
    context.textAlign = "left";
    context.fillStyle = isLate ? theme("accent") : theme("text");
    context.fillText(`${hidden === 0 ? "" : rank.open ? "\u25be " : "\u25b8 "}rank ${rank.rank}${isLate ? ", late" : ""}`, 4, y);
    context.font = `12px ${this.font}`;
    context.fillStyle = theme("muted");
    const hint = [`${this.data.packed.step < 0 ? "recorded" : "step"} ${format.time(rank.end_ns - rank.begin_ns)}`];
    if (!rank.clock_known) hint.push("its clock is not tied to the others'");
    if (!rank.open && hidden > 0) hint.push(`${format.plural(hidden, "row")} of the host closed`);
    const x = Math.max(this.gutter + 4, this.xOf(rank.begin_ns) + 4);
    context.fillText(hint.join(", "), x, y);
    context.fillStyle = theme("line");
    context.fillRect(0, y - line.height / 2, this.width, 1);
  }

  drawAxis(context, width) {
    context.fillStyle = theme("surface");
    context.fillRect(0, 0, width, kAxis - 1);
    context.font = `12px ${this.font}`;
    context.textBaseline = "alphabetic";
    context.fillStyle = theme("muted");
    for (const tick of this.axisTicks().values) {
      const x = this.xOf(tick), text = this.axisText(tick), half = context.measureText(text).width / 2;
      context.textAlign = x + half < width ? "center" : "right";
      if (x - half > this.gutter - 40) context.fillText(text, Math.min(x, width - (x + half < width ? 0 : 2)), 16);
      context.fillRect(Math.round(x), kAxis - 6, 1, 6);
    }
    context.fillRect(this.gutter, kAxis - 1, width - this.gutter, 1);
  }
}

function canvasColumns(canvas, left) {
  return Math.max(1, canvas.width - left);
}

/** Copies the painter's line to the rows first..end-1 of the image, above a gap of background; hatches the waiting. */
function copyLine(pixels, columns, lines, painter, background, first, end, gap, scale) {
  const period = Math.max(4, Math.round(6 * scale)), thick = Math.max(1, Math.round(2 * scale)), {line, hatched, palette} = painter;
  const stripe = mix(palette.surface, palette.colour[kWaiting], 0.35);
  for (let y = Math.max(0, first); y < Math.min(lines, end); ++y) {
    const at = y * columns;
    if (y >= end - gap) {
      pixels.set(background, at);
      continue;
    }
    pixels.set(line, at);
    if (!painter.anyHatched) continue;
    for (let x = 0; x < columns; ++x) if (hatched[x] === 1 && (x + y) % period < thick) pixels[at + x] = stripe;
  }
}

/** As much of the text as fits into `width`, the middle left out. */
function fitText(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let keep = text.length;
  const cut = () => `${text.slice(0, Math.ceil(keep / 2))}\u2026${text.slice(text.length - Math.floor(keep / 2))}`;
  while (keep > 2 && context.measureText(cut()).width > width) --keep;
  return cut();
}
