// One row of the timeline as one line of pixels. Slices wider than a pixel are drawn as they are; of all that begin in
// one pixel the activity with the most time gives the colour and the share of busy time its strength. So a line costs a
// few steps for each of its pixels, however many slices there are.

const kWide = 1.5;       // pixels from which on a slice is drawn for itself
const kFaintest = 0.35;  // strength of a pixel in which hardly anything runs: it must not vanish

/** "#rrggbb" as a pixel of an ImageData seen as 32-bit words. */
function pixelOf(hex) {
  const [red, green, blue] = channels(hex);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function mix(under, over, share) {
  if (share >= 1) return over;
  const part = (shift) => {
    const low = (under >>> shift) & 255, high = (over >>> shift) & 255;
    return Math.round(low + (high - low) * share) << shift;
  };
  return ((255 << 24) | part(16) | part(8) | part(0)) >>> 0;
}

/** The colours of the current theme as pixels; those of slices that a search does not want are paled. */
function timelinePalette() {
  const surface = pixelOf(theme("surface")), colour = kActivities.map(({key}) => pixelOf(theme(`act-${key}`)));
  return {surface, outside: pixelOf(theme("soft")), grid: pixelOf(theme("line")), colour, match: pixelOf(theme("match")),
          paled: colour.map((each) => mix(surface, each, 0.22))};
}

class RowPainter {
  /** Lines of `width` pixels, `scale` pixels a ns from `begin` on; `marks` as TimelineData.marks. */
  constructor(data, palette, width, begin, scale, labelWidth) {
    Object.assign(this, {data, palette, width, begin, scale, labelWidth, kinds: data.packed.kinds, marks: data.marks});
    this.line = new Uint32Array(width);
    this.hatched = new Uint8Array(width);  // pixels of waiting
    this.times = new Float64Array(kActivities.length);
  }

  /** Fills `line` and `hatched`; calls label(index, from, to) for slices that have room for text. */
  paint(row, background, label) {
    this.line.set(background);
    this.hatched.fill(0);
    this.anyHatched = false;
    const {begin, scale, width} = this, end = begin + width / scale;
    for (let i = row.firstEndingAfter(begin); i < row.count && row.start[i] < end;) {
      const from = (row.start[i] - begin) * scale, to = (row.end[i] - begin) * scale;
      if (to - from >= kWide) {
        this.paintWide(row, i, from, to);
        if (to - from >= this.labelWidth) label(i, from, to);
        ++i;
        continue;
      }
      const column = Math.min(width - 1, Math.max(0, Math.floor(from)));
      let next = row.firstStartingAt(i + 1, begin + (column + 1) / scale);
      if (next - 1 > i && (row.end[next - 1] - row.start[next - 1]) * scale >= kWide) --next;
      this.paintColumn(row, i, next, column);
      i = next;
    }
  }

  paintWide(row, i, from, to) {
    const kind = this.kinds[row.name[i]], member = row.members.get(i), {palette} = this;
    let colours = palette.colour;
    if (this.marks) colours = this.marks[row.name[i]] ? null : palette.paled;
    const ready = member ? from + member.wait * this.scale : from;
    if (ready > from) this.paintSpan(from, ready, colours ? colours[kWaiting] : palette.match, true);
    // A thin gap keeps neighbours of one colour apart.
    const stop = to - from >= 4 ? to - 0.6 : to;
    if (stop > ready) this.paintSpan(ready, stop, colours ? colours[kind] : palette.match, false);
  }

  paintSpan(from, to, colour, hatched) {
    const {line, width} = this;
    const first = Math.max(0, Math.floor(from)), last = Math.min(width - 1, Math.ceil(to) - 1);
    if (last < first) return;
    const begin = Math.max(0, Math.ceil(from)), end = Math.min(width, Math.floor(to));
    if (begin < end) line.fill(colour, begin, end);
    if (first < begin) line[first] = mix(line[first], colour, Math.min(begin, to) - from);
    if (last >= end && last >= begin) line[last] = mix(line[last], colour, to - Math.max(last, from));
    if (hatched) {
      this.hatched.fill(1, begin, Math.max(begin, end));
      this.anyHatched = true;
    }
  }

  /** The slices from..end-1, all of which begin in pixel `column`. */
  paintColumn(row, from, end, column) {
    const {palette, times, kinds} = this;
    let busy = 0, most = 0;
    times.fill(0);
    if (end - from === 1) {
      most = kinds[row.name[from]];
      busy = row.end[from] - row.start[from];
    } else {
      row.sums.forEach((sums, activity) => {
        times[activity] = row.between(sums, from, end, (i) => row.time(i, activity, kinds));
        busy += times[activity];
        if (times[activity] > times[most]) most = activity;
      });
    }
    let colour = palette.colour[most];
    if (row.marked) {
      const marked = row.between(row.marked, from, end, (i) => (this.marks[row.name[i]] ? 1 : 0)) > 0;
      colour = marked ? palette.match : palette.paled[most];
    }
    this.line[column] = mix(this.line[column], colour, Math.max(kFaintest, Math.min(1, busy * this.scale)));
  }
}
