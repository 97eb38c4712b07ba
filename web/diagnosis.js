// The diagnosis of a job (schema paceline/diagnosis/1), section by section.

const result = JSON.parse(document.getElementById("result").textContent);
const timelineData = JSON.parse(document.getElementById("timeline-data").textContent);  // null: there is none

// The nine parts of a step, in the order they are stacked; they add up to it.
const kParts = [
  {key: "compute", label: "computing", help: "kernels or operators that compute"},
  {key: "exposed_wait", label: "waiting for a peer", help: "in a collective before its last rank arrived, nothing else running"},
  {key: "exposed_transfer", label: "transfer", help: "in a collective after its last rank arrived, nothing else running"},
  {key: "exposed_copies", label: "copies", help: "memory copies with nothing else running"},
  {key: "idle_host", label: "idle, host late", help: "nothing ran, as the next work was launched too late"},
  {key: "idle_gap", label: "idle, kernel gap", help: "short pauses between kernels that were launched in time"},
  {key: "idle_other", label: "idle, held back", help: "launched in time, but something else held it back"},
  {key: "lead", label: "before first work", help: "from the start of the step to its first work"},
  {key: "tail", label: "after last work", help: "from the last work to the end of the step"},
];

const lateRank = result.late_rank === null ? -1 : result.late_rank;
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
const meanPart = (key) => mean(result.ranks.map((rank) => rank.mean_step[`${key}_ns`]));
const meanStep = meanPart("duration");  // shares are of this, as in the titles of the findings
const ofStep = (ns) => (meanStep > 0 ? format.percent(ns / meanStep) : "");

function showVerdict() {
  const place = document.getElementById("verdict");
  const main = result.findings.find((finding) => finding.kind === "late_rank") || result.findings[0];
  const fact = (label, value, more) => el("div", {}, el("dt", {}, label), el("dd", {}, value, el("small", {}, more)));
  const late = result.ranks.find((rank) => rank.rank === lateRank);
  document.title = `${main ? main.title : "nothing stands out"} \u2013 Paceline`;
  place.append(
    el("h1", {id: "verdict-title", class: "verdict"}, main ? main.title : "Nothing stands out"),
    el("p", {class: "overview"},
       `${format.count(result.ranks.length)} of ${format.plural(result.world_size, "rank")}, ` +
       `${format.plural(result.steps, "step")}${result.marks_steps ? "" : " (no step marks: the whole recording)"}, ` +
       `${format.plural(result.collectives.length, "collective")}, ` +
       `${format.count(result.ranks.reduce((sum, rank) => sum + rank.events.total, 0))} events` +
       (result.has_device ? "" : "; no device in the trace, so the host's operators are the work")),
    el("dl", {class: "facts"},
       fact("Median step", format.time(result.median_step_ns), `over ${format.plural(result.steps, "step")} of each rank`),
       fact("Late rank", late ? String(lateRank) : "none",
            late ? `last in ${late.times_last} of ${format.plural(late.collectives, "collective")}` : "no rank stands out"),
       fact("Waiting for peers", format.time(meanPart("exposed_wait")), `${ofStep(meanPart("exposed_wait"))} of a step, mean over ranks`),
       fact("Computing", format.time(meanPart("compute")), `${ofStep(meanPart("compute"))} of a step, mean over ranks`)));
}

function causesTable() {
  if (result.causes.length === 0) return null;
  const kNames = {host_op: "host operator", host_gap: "host, no operator", device_work: "device work", device_idle: "device idle", late_start: "late start"};
  return el("div", {class: "causes"}, el("h4", {}, "What it did in that time, more than the others"),
    el("table", {}, el("tbody", {}, result.causes.slice(0, 6).map((cause) => {
      const fill = el("i", {});
      fill.style.width = `${100 * Math.min(1, cause.share)}%`;
      return el("tr", {}, el("th", {scope: "row"}, cause.what), el("td", {}, kNames[cause.kind] || cause.kind),
                el("td", {class: "ms", "data-ns": cause.per_step_ns}, `${format.ms(cause.per_step_ns)} ms per step`),
                el("td", {class: "share"}, el("span", {class: "meter", "aria-hidden": true}, fill), `${format.percent(cause.share)} of the lateness`));
    }))));
}

function showFindings(place) {
  if (result.findings.length === 0) place.append(el("p", {}, "Nothing stands out."));
  for (const finding of result.findings) {
    const cost = finding.cost_per_step_ns, fill = el("i", {});
    fill.style.width = `${Math.min(100, (100 * cost) / Math.max(1, meanStep))}%`;
    place.append(el("article", {class: `finding ${finding.kind}`, "data-id": finding.id, "data-ns": cost},
      el("div", {class: "cost"}, cost > 0
        ? [el("b", {}, format.time(cost)), el("span", {}, `per step, ${ofStep(cost)}`), el("div", {class: "meter", "aria-hidden": true}, fill)]
        : [el("b", {class: "quiet"}, "\u2013"), el("span", {}, "costs no step time itself")]),
      el("div", {class: "said"},
        el("h3", {}, el("span", {class: "id"}, finding.id), finding.title,
           el("span", {class: `basis ${finding.basis}`, title: finding.basis === "measured" ? "read off the trace" : "concluded from the trace"}, finding.basis)),
        el("ul", {}, finding.evidence.map((line) => el("li", {}, line))),
        finding.kind === "late_rank" ? causesTable() : null,
        finding.remedy ? el("p", {class: "remedy"}, el("b", {}, "What to do"), finding.remedy) : null)));
  }
  if (result.findings.filter((finding) => finding.cost_per_step_ns > 0).length > 1) {
    place.append(el("p", {class: "hint"}, "Each cost stands alone: they may count the same time, so they do not add up."));
  }
}

function showStep(place) {
  place.append(el("p", {class: "hint"}, "The mean step of all ranks, then of each. The nine parts add up to the step."));
  const average = Object.fromEntries(kParts.map((part) => [`${part.key}_ns`, meanPart(part.key)]));
  place.append(el("div", {class: "average"}, stackedBar(average, kParts, Math.max(1, meanStep))));
  place.append(el("ul", {class: "legend"}, kParts.map((part) =>
    el("li", {title: part.help, class: average[`${part.key}_ns`] > 0 ? null : "zero"}, el("i", {class: `swatch part-${part.key}`}),
       el("span", {}, part.label), el("b", {}, `${format.ms(average[`${part.key}_ns`])} ms`),
       el("small", {}, ofStep(average[`${part.key}_ns`]))))));
  const bars = rankBars(result.ranks, kParts, lateRank);
  if (result.ranks.length > 40) {
    const overview = el("div", {class: "overview-chart"});
    place.append(el("h3", {}, "All ranks side by side, ms"), overview, el("h3", {}, "Rank by rank"));
    rankOverview(overview, result.ranks, kParts, lateRank, bars.showRank);
  }
  place.append(bars.box, el("h3", {}, "The same in numbers"));
  const part = (key, title, help) => ({title, help, kind: "ms", value: (rank) => rank.mean_step[`${key}_ns`]});
  const kTitles = ["compute", "wait", "transfer", "copies", "host", "gap", "other", "lead", "tail"];
  place.append(sortableTable({
    caption: "Mean step of each rank, ms",
    rows: result.ranks,
    columns: [
      {title: "rank", kind: "rank", value: (rank) => rank.rank},
      part("duration", "step", "the whole step"),
      ...kParts.map((each, index) => part(each.key, kTitles[index], each.help)),
      {title: "overlap", kind: "share", help: "share of communication hidden behind computation",
       value: ({mean_step: m}) => (m.communication_ns > 0 ? m.overlap_ns / m.communication_ns : -1),
       show: (value) => (value < 0 ? "" : format.percent(value, 2))},
      {title: "last", kind: "count", help: "collectives in which it arrived last", value: (rank) => rank.times_last},
    ],
    pinned: (rank) => rank.rank === lateRank,
    marked: (rank) => rank.rank === lateRank,
  }));
}

let timeline = null;

function showTimeline(place) {
  const packed = timelineData, whole = packed.step < 0;
  const fewer = packed.ranks.length < result.ranks.length
    ? `${format.count(packed.ranks.length)} of ${format.plural(result.ranks.length, "rank")}; --timeline chooses others.` : "";
  place.append(el("p", {class: "hint"}, [whole ? "The whole recording, as it marks no steps." : `Step ${packed.step}${packed.ranks.length > 1 ? ", all ranks on one clock" : ""}; --timeline-step chooses another.`,
    fewer, packed.left_out > 0 ? `The last ${format.plural(packed.left_out, "slice")} did not fit and are left out.` : ""].filter(Boolean).join(" ")));
  const waitOf = (rank, index) => {
    const collective = result.collectives[index];
    return Math.max(0, collective.waits_ns[collective.members.indexOf(rank)]);
  };
  const data = new TimelineData(packed, waitOf);
  timeline = new Timeline(place, data, lateRank, result.collectives);
  data.read().then(() => {
    data.ready = true;
    timeline.draw();
    document.documentElement.dataset.timeline = "ready";
  }).catch((error) => {
    reportError(`timeline: ${error.message}`);
    place.append(el("p", {class: "note"}, "This browser could not unpack the timeline; the tables below do not need it."));
  });
}

function showWaiting(place) {
  const columns = result.collectives, rowOf = new Map(result.ranks.map((rank, index) => [rank.rank, index]));
  const values = new Float64Array(result.ranks.length * columns.length).fill(NaN);
  let most = {wait: -1};
  columns.forEach((collective, column) => collective.members.forEach((member, index) => {
    const row = rowOf.get(member), wait = collective.waits_ns[index];
    if (row === undefined) return;
    values[row * columns.length + column] = wait;
    if (wait > most.wait) most = {wait, member, column};
  }));
  const lastRow = (column) => (columns[column].ranks > 1 ? rowOf.get(columns[column].last_rank) ?? -1 : -1);
  place.append(el("p", {class: "hint"}, "How long each rank stood in each collective before its transfer began. " +
    "A row that stays pale while the others are strong: the rank they wait for."));
  heatMap(place, {
    rows: result.ranks.map((rank) => `rank ${rank.rank}`),
    late: lateRank < 0 ? -1 : rowOf.get(lateRank) ?? -1,
    columns: columns.length,
    values,
    last: lastRow,
    describe: (row, column) => {
      const collective = columns[column], wait = values[row * columns.length + column], rank = result.ranks[row].rank;
      const last = collective.ranks > 1 ? `rank ${collective.last_rank}` : "\u2013";
      return [`rank ${rank} in #${column + 1} ${collective.name}`,
              ["waited", Number.isNaN(wait) ? "not a member" : format.exact(wait)],
              ["transfer after that", format.exact(collective.transfer_ns)],
              ["last to arrive", last],
              ["behind the others' median", format.exact(collective.behind_ns)],
              ["elements", collective.elements < 0 ? "not recorded" : format.count(collective.elements)],
              ["group", collective.group]];
    },
    label: `Waiting of ${format.plural(result.ranks.length, "rank")} in ${format.plural(columns.length, "collective")}. ` +
           (most.wait > 0 ? `The longest: rank ${most.member} waited ${format.time(most.wait)} in number ${most.column + 1}. ` : "") +
           "Arrow keys read it cell by cell; the table of collectives below holds the numbers.",
  });
}

/** Collectives alike in name, elements and group, summed as in the terminal's table. */
function collectiveKinds() {
  const kinds = new Map();
  for (const row of result.collectives) {
    const key = JSON.stringify([row.name, row.elements, row.group]);
    if (!kinds.has(key)) kinds.set(key, {...row, count: 0, transfer: 0, wait: 0, spread: 0, last: new Map()});
    const kind = kinds.get(key);
    kind.count += 1;
    kind.transfer += row.transfer_ns;
    kind.wait += row.waits_ns.reduce((sum, wait) => sum + Math.trunc(wait / row.waits_ns.length), 0);
    kind.spread = Math.max(kind.spread, row.start_spread_ns);
    if (row.ranks > 1) kind.last.set(row.last_rank, (kind.last.get(row.last_rank) || 0) + 1);
  }
  return [...kinds.values()].sort((a, b) => b.wait + b.transfer - a.wait - a.transfer);
}

function showCollectives(place) {
  const several = new Set(result.collectives.map((row) => row.group)).size > 1;
  const group = several ? [{title: "group", kind: "text", value: (row) => row.group}] : [];
  const elements = {title: "elements", kind: "count", value: (row) => row.elements, show: (value) => (value < 0 ? "" : format.count(value))};
  const lastText = (row) => [...row.last].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 3)
    .map(([rank, count]) => `rank ${rank} ${count}x`).join(", ");
  place.append(sortableTable({
    caption: "By kind, ms summed over the recording",
    rows: collectiveKinds(),
    columns: [
      {title: "collective", kind: "text", value: (row) => row.name}, ...group, elements,
      {title: "count", kind: "count", value: (row) => row.count},
      {title: "transfer", kind: "ms", help: "from the arrival of the last rank on", value: (row) => row.transfer},
      {title: "mean wait", kind: "ms", help: "mean over the ranks", value: (row) => row.wait},
      {title: "worst spread", kind: "ms", help: "between the first and the last arrival", value: (row) => row.spread},
      {title: "last to arrive", kind: "text", value: lastText},
    ],
  }));
  place.append(sortableTable({
    caption: "Each one in time order, ms",
    rows: result.collectives.map((row, index) => ({...row, index})),
    columns: [
      {title: "#", kind: "rank", value: (row) => row.index + 1},
      {title: "collective", kind: "text", value: (row) => row.name}, ...group, elements,
      {title: "transfer", kind: "ms", value: (row) => row.transfer_ns},
      {title: "mean wait", kind: "ms", value: (row) => Math.round(mean(row.waits_ns))},
      {title: "longest wait", kind: "ms", value: (row) => Math.max(0, ...row.waits_ns)},
      {title: "start spread", kind: "ms", value: (row) => row.start_spread_ns},
      {title: "end spread", kind: "ms", value: (row) => row.end_spread_ns},
      {title: "last", kind: "rank", help: "the rank that arrived last", value: (row) => row.last_rank, show: (value, row) => (row.ranks > 1 ? `rank ${value}` : "")},
      {title: "behind", kind: "ms", help: "its arrival behind the others' median", value: (row) => row.behind_ns},
    ],
  }));
}

function showKernels(place) {
  const all = result.kernels.reduce((sum, row) => sum + row.total_ns, 0);
  place.append(sortableTable({
    caption: "Device work by name, all ranks",
    rows: result.kernels,
    columns: [
      {title: "kernel", kind: "text", value: (row) => row.name},
      {title: "kind", kind: "text", value: (row) => row.kind},
      {title: "count", kind: "count", value: (row) => row.count},
      {title: "total ms", kind: "ms", value: (row) => row.total_ns},
      {title: "share", kind: "share", value: (row) => (all > 0 ? row.total_ns / all : 0)},
      {title: "mean us", kind: "us", value: (row) => row.total_ns / Math.max(1, row.count)},
      {title: "min us", kind: "us", value: (row) => row.min_ns},
      {title: "max us", kind: "us", value: (row) => row.max_ns},
    ],
  }));
}

function showOperators(place) {
  place.append(sortableTable({
    caption: "Host operators by their own time, all ranks, ms",
    rows: result.operators,
    columns: [
      {title: "operator", kind: "text", value: (row) => row.name},
      {title: "count", kind: "count", value: (row) => row.count},
      {title: "self", kind: "ms", help: "without the operators inside it", value: (row) => row.self_ns},
      {title: "total", kind: "ms", help: "with the operators inside it", value: (row) => row.total_ns},
    ],
  }));
}

/** Every repair summed over ranks, with the first place. */
function repairLines() {
  const kinds = new Map();
  for (const rank of result.ranks) {
    for (const repair of rank.repairs) {
      if (!kinds.has(repair.repair)) kinds.set(repair.repair, {...repair, count: 0, ranks: 0, source: rank.source});
      const kind = kinds.get(repair.repair);
      kind.count += repair.count;
      kind.ranks += 1;
    }
  }
  return [...kinds.values()].map((kind) => el("li", {class: kind.loses_data ? "loses" : null},
    `${format.count(kind.count)}x on ${format.plural(kind.ranks, "rank")}: ${kind.meaning || kind.repair.replaceAll("_", " ")}`,
    kind.first_place ? el("small", {}, `first: ${kind.source}, ${kind.first_place} ${kind.first_detail}`) : null));
}

function showInput(place) {
  const notes = repairLines();
  for (const warning of result.warnings) notes.push(el("li", {}, warning));
  for (const row of result.mismatches.slice(0, 20)) {
    notes.push(el("li", {class: "loses"}, `rank ${row.rank}, ${row.group}, collective ${row.index + 1}: ${row.what}`));
  }
  if (result.mismatches.length > 20) notes.push(el("li", {}, `${format.count(result.mismatches.length - 20)} more collectives do not match`));
  if (result.causality_violations > 0) {
    notes.push(el("li", {}, `${format.plural(result.causality_violations, "collective")} ended on one rank before another began it, even on aligned clocks`));
  }
  if (notes.length === 0) notes.push(el("li", {}, "All events were read as they stood; nothing was repaired or left out."));
  const shifted = result.ranks.filter((rank) => rank.clock.offset_ns !== 0).length;
  notes.push(el("li", {}, shifted === 0 ? "The clocks of all ranks agree; none was corrected."
                                        : `The clocks of ${format.plural(shifted, "rank")} were corrected, see the table.`));
  const hosts = result.ranks.some((rank) => rank.host);
  place.append(el("ul", {class: "notes"}, notes), sortableTable({
    caption: "The files, their clocks (correction and what is left after it, us) and events",
    rows: result.ranks,
    columns: [
      {title: "rank", kind: "rank", value: (rank) => rank.rank},
      {title: "file", kind: "text", value: (rank) => rank.source},
      ...(hosts ? [{title: "host", kind: "text", value: (rank) => rank.host || ""}] : []),
      {title: "clock", kind: "us", value: (rank) => -rank.clock.offset_ns, show: (value) => (value === 0 ? "" : (value > 0 ? "+" : "") + format.us(value))},
      {title: "residual", kind: "us", value: (rank) => rank.clock.residual_ns},
      {title: "repairs", kind: "count", value: (rank) => rank.repairs.reduce((sum, repair) => sum + repair.count, 0)},
      {title: "events", kind: "count", value: (rank) => rank.events.total},
    ],
  }));
}

showVerdict();
section("findings", "Findings", showFindings);
if (result.comparison) section("comparison", "Against the baseline", (place) => showComparison(place, result.comparison));
if (result.ranks.length > 0) section("step", "Where a step goes", showStep);
if (timelineData) section("timeline", "Timeline", showTimeline);
if (result.collectives.length > 0) {
  section("waiting", "Who waits where", showWaiting);
  section("collectives", "Collectives", showCollectives);
}
if (result.kernels.length > 0) section("kernels", "Device work", showKernels);
if (result.operators.length > 0) section("operators", "Host operators", showOperators);
section("input", "About the input", showInput);
document.documentElement.dataset.ready = "true";
