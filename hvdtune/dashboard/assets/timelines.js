// The timelines of a page: one, or a pair whose times are compared. What Dash calls is here.
(function () {
  "use strict";
  const Swimlane = window.hvdtuneSwimlane;
  const { match } = window.hvdtuneSideBySide;
  const MARGIN = 0.05; // of a step, before and behind it
  const PREFIXES = ["", "with-"]; // of what the address keeps of each; as in pages/compare.py

  // Two timelines with the same ranks, tensors and order of lanes. Each is aligned at the start of a
  // step, or of its trace. While they are linked both show as much time, equally far from there.
  class Pair {
    // sides: what each shows; spans: where each is aligned, see set_spans.
    constructor(roots, sides, { spans, linked, ranks, tensors }) {
      this.linked = linked;
      this.lanes = roots.map((root, side) => {
        const config = Object.assign({}, sides[side], { ranks, tensors, side, step: undefined, origin: 0 });
        return new Swimlane(root, config, this);
      });
      this.current = this.lanes[0]; // whose search "/" leads to
      this.set_spans(spans);
      const asked = this.lanes.filter(({ config }) => config.from !== null);
      asked.forEach((one) => one.show(one.config.from, one.config.to));
      if (asked.length) this.follow(asked[0]);
    }

    other(one) { return this.lanes[1 - one.config.side]; }

    // What one's times are ahead of the other's.
    shift(one) { return one.config.origin - this.other(one).config.origin; }

    extent(one) {
      const last = one.config.last_ns, shift = this.shift(one);
      return this.linked ? [Math.min(0, shift), Math.max(last, this.other(one).config.last_ns + shift)] : [0, last];
    }

    follow(one) {
      const shift = this.shift(one);
      if (this.linked) this.other(one).show(one.from - shift, one.to - shift);
    }

    scroll_with(one) {
      const other = this.other(one);
      if (!this.linked || other.scroll === one.scroll) return;
      other.scroll = Math.min(one.scroll, Math.max(other.total - other.canvas.clientHeight, 0) || 0);
      other.draw_soon();
    }

    // Each: side, step (null: the start of the trace) and from where to where that is.
    set_spans(spans) {
      const changed = spans.filter(({ side, step }) => this.lanes[side].config.step !== step);
      changed.forEach(({ side, step, first_ns, last_ns }) => {
        Object.assign(this.lanes[side].config, { step, origin: first_ns, length: last_ns - first_ns });
      });
      changed.forEach(({ side }) => this.frame(this.lanes[side]));
    }

    // Shows the step that one is aligned at, and as much of the other.
    frame(one) {
      const lengths = (this.linked ? this.lanes : [one]).map(({ config }) => config.length);
      const { origin } = one.config, longest = Math.max(...lengths);
      one.look(origin - MARGIN * longest, origin + (1 + MARGIN) * longest);
    }

    link(linked) {
      if (linked === this.linked) return;
      this.linked = linked;
      this.current.look(this.current.from, this.current.to);
      this.current.keep_address();
    }

    // Once both have lanes, these are those of either, each beside its like.
    match() {
      const tiles = this.lanes.map(({ tile }) => tile);
      if (tiles.every(Boolean)) match(tiles);
    }

    arranged(one, lanes) {
      const { places } = one.tile;
      return places ? [...lanes].sort((a, b) => places[a] - places[b]) : lanes;
    }

    height_beside(one, lane) {
      const { beside } = one.tile;
      return beside ? this.other(one).own_height_of(beside[lane]) : 0;
    }

    drawn(one) {
      const other = this.other(one);
      if (!other.tile) return;
      other.fit();
      other.draw_soon();
    }

    // Pinned and folded lanes are those of both.
    share_lanes(one) {
      const { pinned, folded } = one.config, other = this.other(one);
      Object.assign(other.config, { pinned: [...pinned], folded: [...folded] });
      other.fit();
      other.draw_soon();
    }

    kept() {
      const [one, second] = this.lanes;
      const views = this.lanes.flatMap((lane, side) => {
        const { step } = lane.config, kept = [["step", step === null ? "start" : step], ...lane.kept_view()];
        return kept.map(([name, value]) => [PREFIXES[side] + name, value]);
      });
      const linked = this.linked ? [] : [["linked", 0]];
      const runs = [["run", one.config.run], ["with", second.config.run]];
      return [...runs, ...linked, ...one.kept_ranks(), ...views, ...one.kept_lanes()];
    }

    close() { this.lanes.forEach((one) => one.close()); }
  }

  function open_help() {
    const help = document.querySelector("[data-part=help]");
    if (!help || help.open) return;
    help.showModal();
    // Else its button, which is its last part, has the focus and was scrolled to.
    help.focus();
    help.scrollTop = 0;
  }
  document.addEventListener("click", (event) => { if (event.target.closest("[data-do=keys]")) open_help(); });
  document.addEventListener("keydown", (event) => {
    const is_written = event.target.closest && event.target.closest("input, textarea, [contenteditable], dialog");
    if (event.key === "?" && !is_written && !event.ctrlKey && !event.metaKey) open_help();
  });

  let shown = null; // {given, roots, of: a Swimlane or a Pair}
  // Whether it is what is shown; else what is shown gives way.
  function is_shown(roots, given) {
    if (shown && shown.given === given && roots.every((root, k) => root === shown.roots[k])) return true;
    if (shown) shown.of.close();
    shown = null;
    return false;
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.timelines = {
    // A page that was just laid out, other ranks or tensors, or another theme.
    show: function (config, ranks, tensors) {
      const root = config && document.getElementById(config.root), given = JSON.stringify(config);
      if (!root) return "";
      const chosen = { ranks: ranks || [], tensors: tensors || [] };
      if (is_shown([root], given)) shown.of.choose(chosen.ranks, chosen.tensors);
      else shown = { given, roots: [root], of: new Swimlane(root, Object.assign({}, config, chosen)) };
      return "";
    },
    // The same for two; or other steps, or the two are linked or let go.
    compare: function (sides, spans, linked, ranks, tensors) {
      const roots = (sides || []).map(({ root }) => document.getElementById(root));
      const given = JSON.stringify(sides), chosen = { spans, linked, ranks: ranks || [], tensors: tensors || [] };
      if (!roots.length || roots.includes(null)) return "";
      if (!is_shown(roots, given)) {
        shown = { given, roots, of: new Pair(roots, sides, chosen) };
        return "";
      }
      const pair = shown.of;
      pair.link(linked);
      pair.set_spans(spans);
      pair.lanes.forEach((one) => one.choose(chosen.ranks, chosen.tensors));
      return "";
    },
  };
})();
