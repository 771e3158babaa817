// Counters of other programs: methods of the swimlane's class (see swimlane.js). A counter has a
// lane of its own, in which the area up to its value is drawn, from 0.
(function () {
  "use strict";
  const { color_of_name } = window.hvdtuneDrawing;
  const { GUTTER, COUNTER } = window.hvdtuneDrawing.SIZES;

  function in_figures(value) {
    const compact = Math.abs(value) >= 1e4;
    return value.toLocaleString("en", {
      maximumSignificantDigits: 4, notation: compact ? "compact" : "standard",
    });
  }

  function from_to(low, high) {
    return low === high ? in_figures(low) : `${in_figures(low)} to ${in_figures(high)}`;
  }

  window.hvdtuneCounters = {
    // Which counter of the tile a lane is; -1: none.
    counter_of(lane) {
      return this.tile ? this.tile.counters.findIndex(([own]) => own === lane) : -1;
    },

    draw_counters(places) {
      const c = this.context, tile = this.tile, width = (tile.to - tile.from) / tile.pixels;
      tile.counters.forEach(([lane, lowest, highest], number) => {
        const place = places[lane];
        if (place.y > this.canvas.clientHeight || place.y + place.height < this.head) return;
        const bottom = Math.min(lowest, 0), top = Math.max(highest, 0, bottom + 1e-300);
        const y_of = (value) => place.y + place.height * (1 - (value - bottom) / (top - bottom));
        const color = color_of_name(tile.labels[lane][1]);
        const low = this.levels(number, 0), high = this.levels(number, 1);
        // Where a pixel has several values: dense up to the lowest, pale up to the highest.
        [[high, 0.55], [low, 1]].forEach(([values, alpha]) => {
          c.globalAlpha = alpha;
          c.fillStyle = color;
          c.beginPath();
          for (let k = 0; k < tile.pixels; k++) {
            if (Number.isNaN(values[k])) continue;
            let last = k;
            while (last + 1 < tile.pixels && values[last + 1] === values[k]) last++;
            const left = this.x_of(tile.from + k * width), right = this.x_of(tile.from + (last + 1) * width);
            const y = y_of(values[k]), zero = y_of(0);
            c.rect(left, Math.min(y, zero), right - left, Math.max(Math.abs(zero - y), 0.5));
            k = last;
          }
          c.fill();
        });
        c.globalAlpha = 1;
        c.fillStyle = this.line;
        c.fillRect(GUTTER, place.y + place.height, this.width, 1);
        if (place.height < COUNTER) return;
        const text = "up to " + in_figures(highest);
        c.fillStyle = this.surface;
        c.fillRect(GUTTER, place.y, c.measureText(text).width + 8, 14);
        c.fillStyle = this.ink;
        c.fillText(text, GUTTER + 4, place.y + 8);
      });
    },

    // Of each pixel the lowest (0) or the highest (1) value of a counter.
    levels(number, which) {
      const at = (2 * number + which) * this.tile.pixels;
      return this.tile.levels.subarray(at, at + this.tile.pixels);
    },

    // What a lane's counter says between two times, in words; "": it is none, or says nothing yet.
    counted(lane, from, to) {
      const tile = this.tile, number = this.counter_of(lane);
      if (number < 0) return "";
      const pixel = (ns) => Math.floor(((ns - tile.from) / (tile.to - tile.from)) * tile.pixels);
      const first = Math.max(pixel(from), 0), last = Math.min(pixel(to), tile.pixels - 1) + 1;
      const known = (which) => Array.from(this.levels(number, which).subarray(first, last)).filter((v) => !Number.isNaN(v));
      const low = known(0), high = known(1);
      if (!low.length) return "";
      const [, lowest, highest] = tile.counters[number];
      return `${from_to(low.reduce((a, b) => Math.min(a, b)), high.reduce((a, b) => Math.max(a, b)))}` +
        ` (${from_to(lowest, highest)} in the whole trace)`;
    },
  };
})();
