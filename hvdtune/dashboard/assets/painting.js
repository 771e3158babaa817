// How the swimlane is drawn: methods of its class (see swimlane.js). Names of a trace are text: they
// are drawn on the canvas or set as textContent, never as HTML.
(function () {
  "use strict";
  const { ABSENT, COLORS, SPAN_COLOR, KIND_COLORS, color_of_name, ink_on, fitted, in_words } = window.hvdtuneDrawing;
  const { GUTTER, RULER, BAND, LANE } = window.hvdtuneDrawing.SIZES;

  // Two settings that follow one another rarely have one colour, and equal ones always have.
  function color_of_setting(text) {
    let value = 0;
    for (let i = 0; i < text.length; i++) value = (Math.imul(value, 31) + text.charCodeAt(i)) >>> 0;
    return `hsl(${value % 360}, 55%, ${45 + (value >>> 9) % 25}%)`;
  }

  window.hvdtunePainting = {
    paint_strip() {
      // One pixel row per lane, scaled when it is drawn.
      const tile = this.tile;
      if (!tile.lanes || tile.exact) return;
      this.strip.width = tile.pixels;
      this.strip.height = tile.lanes;
      const image = new ImageData(tile.pixels, tile.lanes);
      tile.labels.forEach((label, lane) => {
        const color = this.color_of(label);
        const [red, green, blue] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
        for (let k = lane * tile.pixels; k < (lane + 1) * tile.pixels; k++) {
          const level = tile.busy[k];
          if (!level) continue;
          image.data[4 * k] = red;
          image.data[4 * k + 1] = green;
          image.data[4 * k + 2] = blue;
          image.data[4 * k + 3] = 50 + Math.round((205 * level) / 255);
        }
      });
      this.strip.getContext("2d").putImageData(image, 0, 0);
    },

    color_of(label) {
      return label[0] < 0 ? COLORS.tensor : COLORS[label[1]] || color_of_name(label[1]);
    },

    color_of_slice(k) {
      const tile = this.tile, label = tile.labels[tile.lane[k]];
      if (label[1] === "busy" && tile.row[k] >= 0) return SPAN_COLOR;
      const name = tile.names[tile.name[k]];
      if (label[0] < 0) return name === "NEGOTIATE" ? COLORS.negotiate : COLORS.tensor;
      const foreign = KIND_COLORS[tile.kinds[tile.kind[k]]];
      if (foreign) return COLORS[foreign];
      return COLORS[label[1]] || color_of_name(name);
    },

    draw() {
      const c = this.context, ratio = window.devicePixelRatio || 1;
      const style = getComputedStyle(document.documentElement);
      this.ink = style.getPropertyValue("--ink").trim() || "#1f2933";
      this.muted = style.getPropertyValue("--muted").trim() || "#5d6b7a";
      this.line = style.getPropertyValue("--line").trim() || "#dde3ea";
      this.accent = style.getPropertyValue("--accent").trim() || "#2563a8";
      this.surface = style.getPropertyValue("--surface").trim() || "#ffffff";
      this.page = style.getPropertyValue("--page").trim() || "#f4f6f9";
      this.draw_overview();
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.fillStyle = this.surface;
      c.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
      c.font = "12px system-ui, sans-serif";
      c.textBaseline = "middle";
      if (!this.tile) return;
      const places = this.rows();
      const clipped = (left, top, right, bottom, draw) => {
        c.save();
        c.beginPath();
        c.rect(left, top, right - left, bottom - top);
        c.clip();
        draw();
        c.restore();
      };
      const right = GUTTER + this.width, bottom = this.canvas.clientHeight;
      clipped(GUTTER, this.head, right, bottom, () => this.draw_marks());
      [[false, this.pin_end, bottom], [true, this.head, this.pin_end]].forEach(([pinned, first, last]) => {
        const own = this.rows_that_are(pinned, places);
        clipped(GUTTER, first, right, last, () => this.draw_lanes(own));
        clipped(0, first, GUTTER - 6, last, () => this.draw_labels(own));
      });
      clipped(GUTTER, this.head, right, bottom, () => {
        if (this.tile.exact) this.draw_flows(places);
        this.draw_path(places);
        this.draw_range();
      });
      c.fillStyle = this.muted;
      if (this.pin_end > this.head) c.fillRect(0, this.pin_end - 2, right, 1);
      this.draw_ruler();
      this.draw_settings();
      this.draw_notes();
    },

    draw_lanes(places) {
      if (this.tile.exact) this.draw_slices(places); else this.draw_busy(places);
      this.draw_counters(places);
      this.draw_ticks(places);
      this.draw_absent(places);
      this.draw_evidence(places);
    },

    draw_busy(places) {
      const c = this.context, tile = this.tile;
      c.imageSmoothingEnabled = false;
      const left = this.x_of(tile.from), right = this.x_of(tile.to);
      places.slice(0, tile.lanes).forEach((place, lane) => {
        if (place.y > this.canvas.clientHeight || place.y + place.height < this.head) return;
        c.drawImage(this.strip, 0, lane, tile.pixels, 1, left, place.y, right - left, place.slices);
      });
    },

    draw_slices(places) {
      const c = this.context, tile = this.tile;
      const deepest = Uint8Array.from(tile.labels, (label) => label[2] - 1);
      for (let k = 0; k < tile.slices; k++) {
        deepest[tile.lane[k]] = Math.max(deepest[tile.lane[k]], tile.depth[k]);
      }
      this.deepest = deepest;
      for (let k = 0; k < tile.slices; k++) {
        const box = this.box(k, places);
        if (box.x > GUTTER + this.width || box.x + box.width < GUTTER) continue;
        const color = this.color_of_slice(k);
        c.fillStyle = color;
        c.fillRect(box.x, box.y, box.width, box.height);
        if (this.selected && this.selected.row === tile.row[k]
            && this.selected.begin === tile.begin[k] && this.selected.lane === tile.lane[k]) {
          c.strokeStyle = this.ink;
          c.lineWidth = 2;
          c.strokeRect(box.x - 1, box.y - 1, box.width + 2, box.height + 2);
        }
        if (box.width > 40 && box.height > 10) {
          const left = Math.max(box.x, GUTTER) + 3;
          const room = Math.min(box.x + box.width, GUTTER + this.width) - left - 3;
          c.fillStyle = ink_on(color);
          c.fillText(fitted(c, tile.names[tile.name[k]], room), left, box.y + box.height / 2 + 1);
        }
      }
    },

    // Arrows from slice to slice; those of the chosen slice stand out.
    draw_flows(places) {
      const c = this.context, chosen = this.selected;
      const height = (lane, ns) => {
        const k = this.slice_around(lane, ns);
        const box = k < 0 ? places[lane] : this.box(k, places);
        return box.y + box.height / 2;
      };
      const is_of = (lane, ns) =>
        chosen && chosen.lane === lane && chosen.begin <= ns && ns <= chosen.end;
      this.tile.flows.forEach(([lane, from, other, to]) => {
        const x = this.x_of(from), y = height(lane, from), right = this.x_of(to), end = height(other, to);
        const stands_out = is_of(lane, from) || is_of(other, to);
        c.strokeStyle = c.fillStyle = stands_out ? this.ink : this.muted;
        c.globalAlpha = stands_out ? 1 : 0.45;
        c.lineWidth = stands_out ? 2 : 1;
        const bend = Math.max(Math.abs(right - x) / 2, 12);
        c.beginPath();
        c.moveTo(x, y);
        c.bezierCurveTo(x + bend, y, right - bend, end, right, end);
        c.stroke();
        c.beginPath();
        c.moveTo(right, end);
        c.lineTo(right - 6, end - 3);
        c.lineTo(right - 6, end + 3);
        c.fill();
      });
      c.globalAlpha = 1;
    },

    // The innermost slice of a lane at a time, or -1; looked for once for each end of an arrow.
    slice_around(lane, ns) {
      const tile = this.tile, key = lane + "/" + ns;
      tile.around = tile.around || new Map();
      if (!tile.around.has(key)) {
        let best = -1;
        for (let k = 0; k < tile.slices; k++) {
          if (tile.lane[k] === lane && tile.begin[k] <= ns && ns <= tile.end[k]
              && (best < 0 || tile.depth[k] > tile.depth[best])) best = k;
        }
        tile.around.set(key, best);
      }
      return tile.around.get(key);
    },

    box(k, places) {
      const tile = this.tile, place = places[tile.lane[k]];
      const share = place.slices / (this.deepest[tile.lane[k]] + 1);
      const x = this.x_of(tile.begin[k]);
      return {
        x, y: place.y + share * tile.depth[k],
        width: Math.max(this.x_of(tile.end[k]) - x - 0.5, 1), height: Math.max(share - 0.5, 1),
      };
    },

    // What stands in the place of lanes that only the other of two has.
    draw_absent(places) {
      const c = this.context, { lanes } = this.tile;
      places.slice(lanes).forEach((place) => {
        const middle = place.y + place.height / 2;
        c.fillStyle = this.line;
        c.fillRect(GUTTER, middle, this.width, 1);
        if (place.height < LANE) return;
        c.fillStyle = this.surface;
        c.fillRect(GUTTER, middle - 7, c.measureText(ABSENT).width + 8, 14);
        c.fillStyle = this.muted;
        c.fillText(ABSENT, GUTTER + 4, middle + 1);
      });
    },

    draw_ticks(places) {
      const c = this.context;
      this.tile.ticks.forEach(([lane, ns, rank, last]) => {
        const x = this.x_of(ns), place = places[lane];
        c.fillStyle = last ? SPAN_COLOR : this.ink;
        c.fillRect(x - 1, place.y, last ? 3 : 2, place.height);
        if (last) c.fillText("r" + rank, x + 4, place.y + place.height - 7);
      });
    },

    draw_marks() {
      const c = this.context, top = this.head;
      const height = Math.min(this.total - this.scroll, this.canvas.clientHeight) - top;
      c.fillStyle = this.line;
      if (this.tile.cycles.length < 200) {
        this.tile.cycles.forEach((ns) => c.fillRect(this.x_of(ns), top, 1, height));
      }
      const steps = this.tile.steps;
      const apart = steps.length > 1 ? this.x_of(steps[1][0]) - this.x_of(steps[0][0]) : this.width;
      c.fillStyle = apart > 24 ? this.muted : this.line;
      steps.forEach(([ns]) => c.fillRect(this.x_of(ns), top, 1, height));
      if (!this.pair) return;
      c.fillStyle = this.accent;
      c.fillRect(this.x_of(this.config.origin), top, 2, height);
    },

    // The setting in force, from each change to the next.
    draw_settings() {
      const c = this.context, adopted = this.tile.adopted;
      if (!adopted.length) return;
      c.fillStyle = this.surface;
      c.fillRect(0, RULER, this.canvas.clientWidth, BAND);
      c.save();
      c.beginPath();
      c.rect(GUTTER, RULER, this.width, BAND);
      c.clip();
      adopted.forEach(([ns, text], index) => {
        const next = index + 1 < adopted.length ? adopted[index + 1][0] : this.to;
        const x = this.x_of(ns);
        c.fillStyle = color_of_setting(text);
        c.fillRect(x, RULER + 1, Math.max(this.x_of(next) - x, 1), BAND - 3);
      });
      c.restore();
      c.fillStyle = this.muted;
      c.fillText("settings", 58, RULER + BAND / 2);
    },

    setting_at(x, y) {
      if (!this.tile || y < RULER || y >= RULER + BAND || x < GUTTER) return "";
      const before = this.tile.adopted.filter(([ns]) => this.x_of(ns) <= x);
      return before.length ? before[before.length - 1][1] : "";
    },

    // The lanes in which a finding shows.
    draw_evidence(places) {
      const shown = this.config.evidence, c = this.context;
      if (!shown) return;
      const left = this.x_of(shown.first_ns), right = this.x_of(shown.last_ns);
      c.strokeStyle = this.accent;
      c.lineWidth = 2;
      c.setLineDash([6, 3]);
      this.tile.labels.forEach(([rank, label], lane) => {
        if (label !== shown.lane || !shown.ranks.includes(rank)) return;
        c.strokeRect(left - 1, places[lane].y - 2, right - left + 2, places[lane].height + 3);
      });
      c.setLineDash([]);
    },

    draw_range() {
      if (!this.range) return;
      const [left, right] = this.range.map((ns) => this.x_of(ns));
      this.context.fillStyle = "rgba(37, 99, 168, 0.18)";
      this.context.fillRect(left, this.head, right - left, this.canvas.clientHeight);
    },

    draw_labels(places) {
      const c = this.context, chosen = this.current_lane();
      this.tile.labels.forEach(([rank, text], lane) => {
        const place = places[lane], middle = place.y + place.height / 2 + 1;
        if (place.y + place.height < this.head || place.y > this.canvas.clientHeight) return;
        if (lane === chosen) {
          c.fillStyle = this.accent;
          c.fillRect(0, place.y, 3, place.height);
        }
        const folded = this.is_folded(lane);
        c.fillStyle = this.ink;
        if (place.is_first && rank >= 0) c.fillText("rank " + rank, 6, folded ? middle + 3 : middle);
        if (folded) return;
        c.fillStyle = rank < 0 ? this.ink : this.muted;
        const left = rank < 0 ? 6 : 58;
        c.fillText(fitted(c, text, GUTTER - 8 - left), left, middle);
      });
    },

    draw_ruler() {
      const c = this.context, span = this.to - this.from;
      // Two that are compared count from what both are aligned at.
      const origin = this.pair ? this.config.origin : 0, sign = this.pair ? "+" : "";
      c.fillStyle = this.surface;
      c.fillRect(0, 0, this.canvas.clientWidth, RULER);
      let step = Math.pow(10, Math.floor(Math.log10(span / (this.width / 90))));
      for (const factor of [1, 2, 5, 10]) {
        if ((span / (step * factor)) * 90 <= this.width) { step *= factor; break; }
      }
      c.fillStyle = this.muted;
      for (let k = Math.ceil((this.from - origin) / step) || 0; origin + k * step < this.to; k++) {
        const x = this.x_of(origin + k * step);
        c.fillRect(x, 12, 1, 6);
        c.fillText((k > 0 ? sign : "") + in_words(k * step, step), x + 3, 8);
      }
      c.fillStyle = this.ink;
      let free = GUTTER;
      this.tile.steps.forEach(([ns, text]) => {
        const x = this.x_of(ns);
        if (x < free) return;
        c.fillText(text, x + 2, 26);
        free = x + c.measureText(text).width + 12;
      });
      c.fillStyle = this.line;
      c.fillRect(0, RULER - 1, this.canvas.clientWidth, 1);
    },
  };
})();
