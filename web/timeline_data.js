// The timeline's slices: from the compact form of paceline/report/timeline.h to columns, and the sums that let a picture
// of any zoom be drawn without a look at every slice.

// In the order of the compact form; waiting, the last one, is the first part of a collective's slice.
const kActivities = [
  {key: "compute", label: "computing"},
  {key: "communication", label: "communication"},
  {key: "copy", label: "copies"},
  {key: "host", label: "host operator"},
  {key: "annotation", label: "annotation"},
  {key: "runtime", label: "runtime call"},
  {key: "other", label: "other"},
  {key: "waiting", label: "waiting for the last rank of a collective"},
];
const kCommunication = 1, kWaiting = 7;
const kBlock = 16;  // slices between two stored sums

async function unpack(base64) {
  const text = atob(base64), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

/** LEB128 numbers one after the other; doubles, as times need more than 32 bits. */
class NumberReader {
  constructor(bytes) {
    [this.bytes, this.at] = [bytes, 0];
  }
  next() {
    const bytes = this.bytes;
    let byte = bytes[this.at++], value = byte & 127;
    for (let factor = 128; byte >= 128; factor *= 128) {
      byte = bytes[this.at++];
      value += (byte & 127) * factor;
    }
    return value;
  }
}

/** A row: slices of one lane that do not overlap, in order, as columns. Times are ns from the begin of the window. */
class TimelineRow {
  constructor(lane, level, count) {
    [this.lane, this.level, this.count] = [lane, level, count];
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    this.name = new Uint32Array(count);
    this.detail = new Uint32Array(count);
    this.members = new Map();  // slice -> {collective, wait}
    this.sums = [];            // of each activity: ns in slices before every kBlock-th; nothing for those it lacks
    this.marked = null;        // likewise, of the slices whose names are searched for
  }

  read(reader) {
    const {start, end, name, detail, count} = this;
    for (let i = 0; i < count; ++i) {
      const value = reader.next();
      if (i > 0) start[i] = start[i - 1] + value;
      else start[0] = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
    for (let i = 0; i < count; ++i) end[i] = start[i] + reader.next();
    for (let i = 0; i < count; ++i) name[i] = reader.next();
    for (let i = 0; i < count; ++i) detail[i] = reader.next();
  }

  /** ns of each slice summed up to every kBlock-th. */
  summed(time) {
    const sums = new Float64Array(Math.floor(this.count / kBlock) + 1);
    let sum = 0;
    for (let i = 0; i < this.count; ++i) {
      if (i % kBlock === 0) sums[i / kBlock] = sum;
      sum += time(i);
    }
    if (this.count % kBlock === 0) sums[this.count / kBlock] = sum;
    return sums;
  }

  wait(i) {
    const member = this.members.get(i);
    return member ? member.wait : 0;
  }

  /** Of slice `i` the ns in which it does `activity`. */
  time(i, activity, kinds) {
    if (activity === kWaiting) return this.wait(i);
    if (kinds[this.name[i]] !== activity) return 0;
    return this.end[i] - this.start[i] - (activity === kCommunication ? this.wait(i) : 0);
  }

  sumUp(kinds) {
    const present = new Set();
    for (let i = 0; i < this.count; ++i) present.add(kinds[this.name[i]]);
    if (this.members.size > 0) present.add(kWaiting);
    for (const activity of present) this.sums[activity] = this.summed((i) => this.time(i, activity, kinds));
  }

  /** The first slice that ends after `time`. */
  firstEndingAfter(time) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The first slice from `from` on that starts at `time` or later; near ones are found soonest. */
  firstStartingAt(from, time) {
    let low = from, high = from, step = 1;
    while (high < this.count && this.start[high] < time) {
      low = high + 1;
      high += step;
      step *= 2;
    }
    high = Math.min(high, this.count);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The sum over the slices from..end-1 of what `sums` sums up, `time(i)` for those between two stored sums. */
  between(sums, from, end, time) {
    const first = Math.ceil(from / kBlock), last = Math.floor(end / kBlock);
    let sum = 0;
    if (first >= last) {
      for (let i = from; i < end; ++i) sum += time(i);
      return sum;
    }
    for (let i = from; i < first * kBlock; ++i) sum += time(i);
    for (let i = last * kBlock; i < end; ++i) sum += time(i);
    return sum + sums[last] - sums[first];
  }
}

/**
 * The ranks, lanes and rows of a timeline. They are there at once, so that the page can be laid out; their slices are
 * once read() is done. `waitOf(rank, collective)` gives ns.
 */
class TimelineData {
  constructor(packed, waitOf) {
    [this.packed, this.waitOf] = [packed, waitOf];
    this.rows = [];
    this.ranks = packed.ranks.map((rank) => ({...rank, lanes: rank.lanes.map((lane) => ({...lane}))}));
    for (const rank of this.ranks) {
      for (const lane of rank.lanes) {
        lane.rank = rank;
        lane.rows = lane.rows.map((count, level) => new TimelineRow(lane, level, count));
        this.rows.push(...lane.rows);
      }
      rank.rows = rank.lanes.flatMap((lane) => lane.rows);
    }
    this.count = this.rows.reduce((sum, row) => sum + row.count, 0);
    this.begin = Math.min(0, ...this.ranks.map((rank) => rank.begin_ns));
    this.end = packed.length_ns;
    this.membersOf = new Map();  // collective -> [{row, index}]
  }

  async read() {
    const {packed} = this, reader = new NumberReader(await unpack(packed.data));
    for (const row of this.rows) row.read(reader);
    for (const [at, index, collective] of packed.collectives) {
      const row = this.rows[at], length = row.end[index] - row.start[index];
      row.members.set(index, {collective, wait: Math.min(length, this.waitOf(row.lane.rank.rank, collective))});
      if (!this.membersOf.has(collective)) this.membersOf.set(collective, []);
      this.membersOf.get(collective).push({row, index});
    }
    for (const row of this.rows) row.sumUp(packed.kinds);
    packed.data = null;
    return this;
  }

  nameOf(row, index) {
    return this.packed.names[row.name[index]];
  }
  activityOf(row, index) {
    return this.packed.kinds[row.name[index]];
  }
  /** [operator, shapes]; '' where the trace tells none. */
  detailOf(row, index) {
    return row.detail[index] === 0 ? ["", ""] : this.packed.details[row.detail[index] - 1];
  }

  /** Marks the slices whose name holds `text`; what they are in number and time, or null for no text. */
  search(text) {
    const wanted = text.trim().toLowerCase();
    this.marks = wanted === "" ? null : this.packed.names.map((name) => name.toLowerCase().includes(wanted));
    const found = {count: 0, time: 0};
    for (const row of this.rows) {
      row.marked = null;
      if (!this.marks) continue;
      row.marked = row.summed((i) => {
        if (!this.marks[row.name[i]]) return 0;
        found.count += 1;
        found.time += row.end[i] - row.start[i];
        return 1;
      });
    }
    return this.marks ? found : null;
  }

  /** The marked slice that starts next after `time` (or before it), of all rows for which `shown(row)`. */
  nextMarked(time, forward, shown) {
    let best = null;
    for (const row of this.rows) {
      if (!shown(row)) continue;
      const at = row.firstStartingAt(0, forward ? time + 1 : time);
      for (let i = forward ? at : at - 1; i >= 0 && i < row.count; i += forward ? 1 : -1) {
        if (!this.marks[row.name[i]]) continue;
        const nearer = !best || (forward ? row.start[i] < best.row.start[best.index] : row.start[i] > best.row.start[best.index]);
        if (nearer) best = {row, index: i};
        break;
      }
    }
    return best;
  }
}
