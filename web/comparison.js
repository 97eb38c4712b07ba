// Where the difference between two runs comes from: a staircase from the step before to the step after, and its numbers.

const kStairs = 12, kSmall = 0.01;  // at most so many causes, and none below this share of the largest

/**
 * The stairs of a comparison (schema paceline/comparison/1): the largest causes, the sum of the others and what is not
 * explained, which lead from the step before to the step after exactly. {label, group, rank, from, to} in ns.
 */
function stairsOf(comparison) {
  const stairs = [], changes = comparison.changes.filter((change) => change.change_ns !== 0);  // the largest first
  const large = (change) => Math.abs(change.change_ns) >= kSmall * Math.abs(changes[0].change_ns);
  let at = comparison.step_before_ns;
  const climb = (label, group, ns, rank = null) => {
    if (ns !== 0) stairs.push({label, group, rank, from: at, to: at + ns});
    at += ns;
  };
  const shown = changes.slice(0, kStairs).filter(large), rest = changes.slice(shown.length);
  for (const change of shown) climb(change.what || change.group, change.group, change.change_ns, change.rank ?? null);
  climb(`${format.plural(rest.length, "smaller cause")}`, "", rest.reduce((sum, change) => sum + change.change_ns, 0));
  climb("not explained", "clocks and rounding", comparison.not_explained_ns);
  return stairs;
}

const signedTime = (ns) => `${ns > 0 ? "+" : ""}${format.ms(ns)} ms`;

function showStairs(place, comparison) {
  const stairs = stairsOf(comparison), {step_before_ns: before, step_after_ns: after} = comparison;
  const levels = [before, after, ...stairs.map((stair) => stair.to)];
  // From 0 where the changes can be seen then, else from below the lowest level.
  const highest = Math.max(...levels), range = highest - Math.min(...levels);
  const low = range > 0.25 * highest ? 0 : Math.max(0, Math.min(...levels) - 0.35 * range), high = highest + 0.03 * (highest - low) + 1;
  const at = (ns) => `${(100 * (ns - low)) / (high - low)}%`;
  const bar = (from, to, kind) => {
    const element = el("i", {class: kind});
    element.style.left = at(Math.min(from, to));
    element.style.width = `max(2px, ${(100 * Math.abs(to - from)) / (high - low)}%)`;
    return element;
  };
  const row = (label, note, bars, amount, ns, kind) => el("div", {class: `stair ${kind}`},
    el("span", {class: "what"}, el("b", {title: label}, label), note ? el("small", {}, note) : null),
    el("span", {class: "track", "aria-hidden": true}, bars), el("span", {class: "amount", "data-ns": ns}, amount));
  const whole = (label, ns) => row(label, "", [bar(low, ns, "whole")], `${format.ms(ns)} ms`, ns, "whole");
  place.append(
    el("div", {class: "stairs"},
       whole("A, before", before),
       stairs.map((stair) => {
         const ns = stair.to - stair.from;
         return row(stair.label, [stair.group, stair.rank === null ? "" : `rank ${stair.rank}`].filter(Boolean).join(", "),
                    [bar(stair.from, stair.to, ns > 0 ? "slower" : "faster")], signedTime(ns), ns, "");
       }),
       whole("B, after", after)),
    el("p", {class: "hint axis-note"}, low > 0 ? `The bars begin at ${format.ms(low)} ms.` : "The bars begin at 0.",
       " Time per step along the critical path over all ranks; the stairs add up exactly."));
}

/** A section's content; also part of the page of a diagnosis that was held against another run. */
function showComparison(place, comparison) {
  showStairs(place, comparison);
  const change = {title: "change", kind: "ms", value: (row) => row.change_ns, show: (value) => (value > 0 ? "+" : "") + format.ms(value)};
  const sides = [{title: "A", kind: "ms", value: (row) => row.before_ns}, {title: "B", kind: "ms", value: (row) => row.after_ns}, change];
  place.append(
    sortableTable({
      caption: "By group, ms per step",
      rows: [...comparison.groups, {group: "not explained", before_ns: 0, after_ns: 0, change_ns: comparison.not_explained_ns},
             {group: "step", before_ns: comparison.step_before_ns, after_ns: comparison.step_after_ns, change_ns: comparison.change_ns}],
      columns: [{title: "where", kind: "text", value: (row) => row.group}, ...sides],
      marked: (row) => row.group === "step",
    }),
    sortableTable({
      caption: "Every cause, ms per step",
      rows: comparison.changes,
      columns: [{title: "cause", kind: "text", value: (row) => row.group}, {title: "what", kind: "text", value: (row) => row.what || ""}, ...sides,
                {title: "rank", kind: "rank", help: "on which nearly all of it lies", value: (row) => row.rank ?? -1, show: (value) => (value < 0 ? "" : String(value))}],
    }));
}

/** "the step grew by 12.3 ms (10 %): load_batch on rank 2" */
function comparisonTitle(comparison) {
  const {change_ns: change, step_before_ns: before} = comparison, first = comparison.changes[0];
  if (change === 0) return "the step takes the same time";
  const grew = `the step ${change > 0 ? "grew" : "shrank"} by ${format.time(Math.abs(change))}` +
               (before > 0 ? ` (${format.percent(Math.abs(change) / before, 1)})` : "");
  if (!first || Math.sign(first.change_ns) !== Math.sign(change)) return grew;
  return `${grew}: ${first.what || first.group}${first.rank === undefined ? "" : ` on rank ${first.rank}`}`;
}
