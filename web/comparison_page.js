// The comparison of two runs (schema paceline/comparison/1, and what each side is) as a page of its own.

const result = JSON.parse(document.getElementById("result").textContent);

function showVerdict() {
  const title = comparisonTitle(result), side = ({source, ranks, steps}) => `${source} (${format.plural(ranks, "rank")}, ${format.plural(steps, "step")})`;
  document.title = `${title} \u2013 Paceline`;
  document.getElementById("verdict").append(
    el("h1", {id: "verdict-title", class: "verdict"}, title),
    el("p", {class: "overview"}, `A: ${side(result.before)}`, el("br", {}), `B: ${side(result.after)}`));
}

showVerdict();
section("comparison", "Where the difference comes from", (place) => showComparison(place, result));
document.documentElement.dataset.ready = "true";
