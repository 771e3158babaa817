// The swimlane: one canvas, drawn from tiles (see tiles.py). Names of a trace are text: they are
// drawn on the canvas or set as textContent, never as HTML. What it needs of a page are parts of one
// element (see timeline_view.py), so that a page can have several; timelines.js makes them.
(function () {
  "use strict";
  const { ABSENT, in_slices, in_words, read_tile } = window.hvdtuneDrawing;
  const { GUTTER, RULER, BAND, NOTES } = window.hvdtuneDrawing.SIZES;
  const LEAST_NS = 200; // that are in view

  class Swimlane {
    // With a pair it is one of two whose times are compared (see timelines.js).
    constructor(root, config, pair = null) {
      this.root = root;
      this.pair = pair;
      this.canvas = this.part("lanes");
      // run, last_ns, from, to, ranks, tensors, row, pinned, folded, path (whether it is drawn), marks
      // ([from, to, note] each); of one of two side, step, origin, length as well
      this.config = config;
      this.context = this.canvas.getContext("2d");
      this.status = this.part("status");
      this.details = this.part("details");
      this.from = config.from ?? 0;
      this.to = config.to ?? config.last_ns;
      this.scroll = 0;
      this.tile = null;
      this.strip = document.createElement("canvas");
      this.selected = null; // {lane, begin, end, row, name}
      this.lane = ""; // the chosen lane, as addresses call it
      this.told = config.row; // row of the slice that the words are about; -1: none
      this.range = null; // [from, to] chosen with the mouse
      this.is_in_sight = false; // what is not asks for nothing
      this.is_behind = false; // it has something to ask for when it is
      this.events = new AbortController();
      this.listen();
      this.open_overview();
      this.list_marks();
      this.resize();
    }

    part(name) { return this.root.querySelector(`[data-part=${name}]`); }

    get search() { return this.root.querySelector("[data-part=search] input"); }

    // Where the lanes begin.
    get head() {
      const all = (this.pair && this.pair.lanes) || [this];
      const settings = all.some(({ tile }) => tile && tile.adopted.length) ? BAND : 0;
      return RULER + settings + (all.some(({ config }) => config.marks.length) ? NOTES : 0);
    }

    get width() { return Math.max(this.canvas.clientWidth - GUTTER, 50); }

    x_of(ns) { return GUTTER + ((ns - this.from) / (this.to - this.from)) * this.width; }

    ns_at(x) { return this.from + ((x - GUTTER) / this.width) * (this.to - this.from); }

    // From where to where there is something to be seen.
    get extent() { return this.pair ? this.pair.extent(this) : [0, this.config.last_ns]; }

    look(from, to) {
      const [begin, end] = this.extent, limit = end - begin;
      let span = Math.min(Math.max(to - from, LEAST_NS), limit * 1.1 + LEAST_NS);
      let first = from;
      if (to - from !== span) first = (from + to - span) / 2;
      first = Math.min(Math.max(first, begin - 0.05 * limit), end + 0.05 * limit - Math.min(span, limit));
      this.show(first, first + span);
      if (this.pair) this.pair.follow(this);
    }

    show(from, to) {
      this.from = from;
      this.to = to;
      this.draw_soon();
      this.fetch_soon();
    }

    // Other ranks or tensors, or another theme.
    choose(ranks, tensors) {
      this.draw_soon();
      const { config } = this, is_same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
      if (is_same(ranks, config.ranks) && is_same(tensors, config.tensors)) return;
      Object.assign(config, { ranks, tensors });
      this.selected = null;
      this.fetch_soon();
      this.fetch_overview();
    }

    zoom(factor, around) {
      this.look(around - (around - this.from) * factor, around + (this.to - around) * factor);
    }

    pan(share) {
      const by = share * (this.to - this.from);
      this.look(this.from + by, this.to + by);
    }

    query(more) {
      const query = new URLSearchParams({ run: this.config.run });
      this.config.ranks.forEach((rank) => query.append("rank", rank));
      Object.entries(more).forEach(([key, value]) => query.set(key, value));
      return query;
    }

    fetch_soon() {
      if (!this.is_in_sight) { this.is_behind = true; return; }
      if (this.fetching) { this.again = true; return; }
      this.fetching = true;
      this.again = false;
      const asked_at = performance.now();
      const pixels = Math.round(this.width * (window.devicePixelRatio || 1));
      const query = this.query({ from: this.from, to: this.to, px: pixels });
      this.config.tensors.forEach((name) => query.append("tensor", name));
      fetch("tile?" + query, { signal: this.events.signal })
        .then((answer) => {
          if (!answer.ok) return answer.text().then((text) => { throw new Error(text); });
          return answer.arrayBuffer();
        })
        .then((buffer) => {
          this.tile = read_tile(buffer);
          this.paint_strip();
          this.fetch_path(false);
          this.fit();
          this.draw();
          if (this.pair) this.pair.drawn(this);
          this.canvas.dataset.answerMs = (performance.now() - asked_at).toFixed(1);
          this.canvas.dataset.tiles = Number(this.canvas.dataset.tiles || 0) + 1;
          this.tell_view();
          if (this.config.row !== -1) this.open_row(this.config.row);
        })
        .catch((error) => {
          if (error.name === "AbortError") return;
          this.say("The timeline cannot be read: " + error.message + " Is the dashboard still running?");
        })
        .finally(() => {
          this.fetching = false;
          if (this.again && !this.events.signal.aborted) this.fetch_soon();
        });
    }

    draw_soon() {
      if (this.drawing) return;
      this.drawing = true;
      requestAnimationFrame(() => { this.drawing = false; this.draw(); });
    }

    resize() {
      const ratio = window.devicePixelRatio || 1, before = this.canvas.width;
      this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
      this.canvas.height = Math.round(this.canvas.clientHeight * ratio);
      this.draw();
      if (this.canvas.width === before && this.tile) return;
      this.is_same_view = true; // so that what is said of a chosen slice stays
      this.fetch_soon();
      this.fetch_overview();
    }

    fit() {
      // As high as its lanes, within the window.
      this.rows();
      const room = (this.pair ? 0.4 : 0.7) * window.innerHeight;
      const wanted = Math.round(Math.max(Math.min(this.total + 10, room, 720), 220));
      if (this.canvas.style.height !== wanted + "px") this.canvas.style.height = wanted + "px";
    }

    say(text) { if (this.status) this.status.textContent = text; }

    tell_view() {
      const tile = this.tile;
      const what = tile.exact
        ? in_slices(tile.slices) + " drawn" + (tile.flows_hidden
          ? `; zoom in to see ${tile.flows_hidden.toLocaleString("en")} more arrows` : "")
        : "too many slices to draw: colours show how busy each lane is; zoom in for slices";
      const counters = tile.counters_hidden
        ? `; choose a rank to see its counters (${tile.counters_hidden.toLocaleString("en")} more)` : "";
      this.canvas.dataset.exact = tile.exact;
      const span = this.to - this.from, exact = span / 1e4;
      if (!this.selected || !this.is_same_view) this.say(`${in_words(this.from, exact)} to ${in_words(this.to, exact)} (${in_words(span)}): ${what}${counters}`);
      this.is_same_view = false;
      this.keep_address();
    }

    keep_address() {
      const query = new URLSearchParams(this.pair ? this.pair.kept() : [
        ["run", this.config.run], ...this.kept_ranks(), ...this.kept_view(), ...this.kept_lanes(),
      ]);
      window.history.replaceState(window.history.state, "", window.location.pathname + "?" + query);
    }

    // What an address keeps: names and values.
    kept_ranks() { return this.config.ranks.map((rank) => ["rank", rank]); }

    kept_view() {
      const { marks, path, evidence, finding } = this.config;
      const kept = [["from", Math.round(this.from)], ["to", Math.round(this.to)]];
      marks.forEach(([from, to, note]) => kept.push(["mark", `${from}-${to} ${note}`.trim()]));
      if (path) kept.push(["path", 1]);
      if (this.told !== -1) kept.push(["row", this.told]);
      if (evidence) kept.push(["finding", finding], ["step", evidence.step]);
      return kept;
    }

    kept_lanes() {
      const of = (name, values) => values.map((value) => [name, value]);
      const { tensors, pinned, folded } = this.config;
      return [...of("tensor", tensors), ...of("pin", pinned), ...of("fold", folded)];
    }

    select(k) {
      const tile = this.tile;
      this.selected = {
        lane: tile.lane[k], begin: tile.begin[k], end: tile.end[k], row: tile.row[k],
        name: tile.names[tile.name[k]],
      };
      const [rank, lane] = tile.labels[tile.lane[k]];
      const chosen = this.selected;
      this.lane = this.lane_key(chosen.lane);
      this.say(`${chosen.name}, ${rank < 0 ? "tensor" : "rank " + rank} ${lane}, at ` +
        `${in_words(chosen.begin)}, lasts ${in_words(chosen.end - chosen.begin)}`);
      if (chosen.begin > this.to || chosen.end < this.from) {
        const half = (this.to - this.from) / 2;
        this.look(chosen.begin - half, chosen.begin + half);
      }
      this.draw_soon();
      if (chosen.row !== -1) { this.open_row(chosen.row); return; }
      this.told = -1;
      this.keep_address();
      this.show_lines(chosen.name, [["rank", String(rank)], ["lasts", in_words(chosen.end - chosen.begin)]]);
    }

    open_row(row) {
      this.config.row = -1;
      this.told = row;
      this.keep_address();
      fetch("event?" + this.query({ row }), { signal: this.events.signal })
        .then((answer) => (answer.ok ? answer.json() : null))
        .then((found) => { if (found) this.show_lines(found.title, found.lines); })
        .catch((error) => { if (error.name !== "AbortError") this.say(String(error)); });
    }

    show_lines(title, lines, form = null) {
      if (!this.details) return;
      const heading = document.createElement("h3");
      heading.textContent = title;
      const list = document.createElement("dl");
      lines.forEach(([what, value]) => {
        const term = document.createElement("dt"), text = document.createElement("dd");
        term.textContent = what;
        text.textContent = value;
        list.append(term, text);
      });
      this.details.replaceChildren(heading, ...(form ? [form, list] : [list, this.lane_controls()]));
    }

    show_totals(from, to) {
      return fetch("totals?" + this.query({ from: Math.round(from), to: Math.round(to) }), { signal: this.events.signal })
        .then((answer) => answer.json())
        .then((rows) => {
          const lines = rows.map((row) => [
            `rank ${row.rank} ${row.lane}`,
            `${row.busy_ms.toFixed(3)} ms, ${row.percent.toFixed(1)} %, ${in_slices(row.slices)}`,
          ]);
          this.show_lines(`Totals of ${in_words(to - from)} from ${in_words(from)}`, lines, this.note_form([from, to]));
        })
        .catch((error) => { if (error.name !== "AbortError") this.say(String(error)); });
    }

    // Asked again for the same text it goes to the next hit, or with -1 to the one before.
    find(text, by = 1) {
      const again = this.found && this.found.text === text;
      const number = again ? this.found.number + by : 0;
      return fetch("find?" + this.query({ text, number }), { signal: this.events.signal })
        .then((answer) => answer.json())
        .then((place) => {
          if (!place) { this.found = null; this.tell_hits(`no name contains ${text}`); return; }
          this.found = { text, number: place.number };
          this.tell_hits(`${(place.number + 1).toLocaleString("en")} of ${place.count.toLocaleString("en")}`);
          const margin = Math.max(place.end_ns - place.begin_ns, 1e5) * 2;
          this.look(place.begin_ns - margin, place.end_ns + margin);
          this.open_row(place.row);
        })
        .catch((error) => { if (error.name !== "AbortError") this.say(String(error)); });
    }

    tell_hits(text) {
      const hits = this.part("hits");
      if (hits) hits.textContent = text;
    }

    next_hit(by) {
      const { search } = this;
      if (search && search.value) this.find(search.value, by);
    }

    slice_at(x, y) {
      if (!this.tile || !this.tile.exact || !this.deepest) return -1;
      const places = this.rows(), lane = this.lane_at(y);
      for (let k = this.tile.slices - 1; k >= 0; k--) {
        if (this.tile.lane[k] !== lane) continue;
        const box = this.box(k, places);
        if (x >= box.x - 1 && x <= box.x + box.width + 1 && y >= box.y && y <= box.y + box.height) return k;
      }
      return -1;
    }

    // What is at a point, in a few words.
    told_at(x, y) {
      const k = this.slice_at(x, y), tile = this.tile, marked = this.mark_at(x, y);
      const path = this.path_at(x, y);
      if (path) return path;
      if (marked) return `${this.range_title(marked)}: ${marked[2]}`;
      if (k >= 0) return `${tile.names[tile.name[k]]}, ${in_words(tile.end[k] - tile.begin[k])}`;
      const lane = tile ? this.lane_at(y) : -1;
      if (x < GUTTER) return lane < 0 ? "" : this.lane_title(lane);
      if (lane >= 0 && this.is_absent(lane)) return `${this.lane_title(lane)}: ${ABSENT}`;
      const counted = lane < 0 ? "" : this.counted(lane, this.ns_at(x), this.ns_at(x));
      return counted ? `${tile.labels[lane][1]}: ${counted}` : this.setting_at(x, y);
    }

    neighbour(by) {
      // The next slice of the same lane; of the first lane that has one where none is selected.
      const tile = this.tile;
      if (!tile || !tile.exact || !tile.slices) { this.zoom(0.25, (this.from + this.to) / 2); return; }
      const chosen = this.current_lane(), lane = chosen < 0 ? tile.lane[0] : chosen;
      let best = -1;
      for (let k = 0; k < tile.slices; k++) {
        if (tile.lane[k] !== lane) continue;
        const at = tile.begin[k];
        if (!this.selected) { if (at >= this.from) { best = k; break; } continue; }
        if (by > 0 && at > this.selected.begin && (best < 0 || at < tile.begin[best])) best = k;
        if (by < 0 && at < this.selected.begin && (best < 0 || at > tile.begin[best])) best = k;
      }
      if (best >= 0) this.select(best); else this.pan(0.5 * by);
    }

    // Returns whether there were lanes to go on to.
    move_up(by) {
      const most = Math.max(this.total - this.canvas.clientHeight, 0), before = this.scroll;
      this.scroll = Math.min(Math.max(before + by, 0), most);
      this.draw_soon();
      if (this.pair) this.pair.scroll_with(this);
      return this.scroll !== before;
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const middle = this.pointer || (this.from + this.to) / 2;
      const actions = {
        w: () => this.zoom(0.6, middle), s: () => this.zoom(1 / 0.6, middle),
        a: () => this.pan(-0.25), d: () => this.pan(0.25),
        ArrowRight: () => this.neighbour(1), ArrowLeft: () => this.neighbour(-1),
        ArrowDown: () => this.other_lane(1), ArrowUp: () => this.other_lane(-1),
        Home: () => this.look(...this.extent),
        f: () => this.selected && this.look(
          this.selected.begin - (this.selected.end - this.selected.begin),
          this.selected.end + (this.selected.end - this.selected.begin)),
        t: () => this.show_totals(this.from, this.to),
        Enter: () => this.details && this.details.focus(),
        Escape: () => {
          this.selected = this.range = null;
          this.lane = "";
          this.told = -1;
          this.draw_soon();
          if (this.tile) this.tell_view();
        },
        n: () => this.next_hit(event.shiftKey ? -1 : 1),
        p: () => this.pin(),
        e: () => this.fold(event.shiftKey),
        m: () => this.ask_for_note(),
        c: () => this.toggle_path(),
      };
      const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!action) return;
      event.preventDefault();
      action();
    }

    listen() {
      const on = (target, name, action, more) =>
        target.addEventListener(name, action, Object.assign({ signal: this.events.signal }, more));
      on(this.canvas, "keydown", (event) => this.key(event));
      if (this.details) {
        on(this.details, "keydown", (event) => { if (event.key === "Escape") this.canvas.focus(); });
      }
      on(this.canvas, "wheel", (event) => {
        if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY / 300), this.ns_at(event.offsetX));
        else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          this.pan((event.deltaX || event.deltaY) / this.width);
        } else if (!this.move_up(event.deltaY)) return; // then the page is scrolled
        event.preventDefault();
      }, { passive: false });
      on(this.canvas, "pointerdown", (event) => {
        this.canvas.setPointerCapture(event.pointerId);
        this.drag = { x: event.offsetX, y: event.offsetY };
      });
      on(this.canvas, "pointermove", (event) => {
        this.pointer = event.offsetX > GUTTER ? this.ns_at(event.offsetX) : null;
        if (this.drag && Math.abs(event.offsetX - this.drag.x) > 4) {
          this.range = [this.drag.x, event.offsetX].sort((a, b) => a - b).map((x) => this.ns_at(x));
          this.draw_soon();
        } else if (!this.drag) {
          this.canvas.title = this.told_at(event.offsetX, event.offsetY);
        }
      });
      on(this.canvas, "pointerleave", () => { this.pointer = null; });
      on(this.canvas, "pointercancel", () => { this.drag = null; });
      on(this.canvas, "pointerup", (event) => {
        const moved = this.drag && Math.abs(event.offsetX - this.drag.x) > 4;
        this.drag = null;
        if (moved) { this.show_totals(...this.range); return; }
        this.range = null;
        const k = this.slice_at(event.offsetX, event.offsetY);
        const lane = event.offsetX < GUTTER ? this.lane_at(event.offsetY) : -1;
        const marked = this.mark_at(event.offsetX, event.offsetY);
        if (marked) this.say(`${this.range_title(marked)}: ${marked[2]}`);
        else if (lane >= 0) this.choose_lane(lane);
        else if (k >= 0) this.select(k);
        else this.draw_soon();
      });
      on(this.canvas, "dblclick", (event) => this.zoom(0.2, this.ns_at(event.offsetX)));
      on(this.root, "keydown", (event) => {
        if (event.target !== this.search) return;
        if (event.key === "Enter") this.next_hit(event.shiftKey ? -1 : 1);
        if (event.key === "Escape") this.canvas.focus();
      });
      on(document, "keydown", (event) => {
        if (!event.target.closest || event.target.closest("input, textarea, [contenteditable], dialog") || event.ctrlKey || event.metaKey) return;
        if (event.key !== "/" || (this.pair && this.pair.current !== this)) return;
        event.preventDefault();
        this.search.focus();
        this.search.select();
      });
      on(this.root, "click", (event) => {
        const button = event.target.closest("[data-do]");
        if (button) this.do(button.dataset.do);
      });
      on(this.root, "focusin", () => { if (this.pair) this.pair.current = this; });
      this.observer = new ResizeObserver(() => this.resize());
      this.observer.observe(this.canvas);
      this.sight = new IntersectionObserver((changes) => this.see(changes[changes.length - 1].isIntersecting));
      this.sight.observe(this.canvas);
    }

    see(is_in_sight) {
      this.is_in_sight = is_in_sight;
      if (!is_in_sight || !this.is_behind) return;
      this.is_behind = false;
      this.fetch_soon();
      this.fetch_overview();
    }

    // What a button asks for.
    do(what) {
      const actions = {
        find: () => this.next_hit(1),
        whole: () => this.look(...this.extent),
        path: () => this.toggle_path(),
        save: () => this.save(),
      };
      const action = actions[what];
      if (action) action();
    }

    save() {
      this.canvas.toBlob((picture) => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(picture);
        link.download = "timeline.png";
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      });
    }

    close() {
      this.events.abort();
      this.observer.disconnect();
      this.sight.disconnect();
    }
  }

  Object.assign(
    Swimlane.prototype, window.hvdtunePainting, window.hvdtuneCounters, window.hvdtuneLaneOrder,
    window.hvdtuneMarkedRanges, window.hvdtuneOverview, window.hvdtunePath,
  );

  window.hvdtuneSwimlane = Swimlane;
})();
