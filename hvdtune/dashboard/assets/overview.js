// The strip above the swimlane: how busy the ranks are over the whole trace, and which part of it
// is shown below. Methods of the swimlane's class (see swimlane.js).
(function () {
  "use strict";
  const { fitted } = window.hvdtuneDrawing;
  const { GUTTER } = window.hvdtuneDrawing.SIZES;
  const GRIP = 6; // pixels around an edge of the window by which it is taken
  const LEAST = 4; // pixels that a new window has, lest a click make one

  window.hvdtuneOverview = {
    open_overview() {
      this.overview = this.part("overview");
      this.shares = [];
      if (!this.overview) return;
      const on = (name, action) => this.overview.addEventListener(name, action, { signal: this.events.signal });
      on("pointerdown", (event) => {
        this.overview.setPointerCapture(event.pointerId);
        this.hold = this.held_at(event.offsetX);
      });
      on("pointermove", (event) => {
        if (this.hold) this.drag_window(event.offsetX);
        else this.overview.style.cursor = { move: "grab", from: "ew-resize", to: "ew-resize", draw: "crosshair" }[this.held_at(event.offsetX).what];
      });
      on("pointerup", (event) => {
        const { what, x, from, to } = this.hold || {};
        this.hold = null;
        if (what !== "draw" || Math.abs(event.offsetX - x) >= LEAST) return;
        const half = (to - from) / 2, at = this.overview_ns(event.offsetX);
        this.look(at - half, at + half);
      });
    },

    fetch_overview() {
      if (!this.overview || !this.is_in_sight) return;
      const pixels = Math.round(this.width * (window.devicePixelRatio || 1));
      fetch("overview?" + this.query({ px: pixels }), { signal: this.events.signal })
        .then((answer) => {
          if (!answer.ok) return answer.text().then((text) => { throw new Error(text); });
          return answer.json();
        })
        .then((found) => {
          this.shares = found.shares;
          const ranks = found.ranks === 1 ? "the rank is" : `the ${found.ranks} ranks are on average`;
          this.overview.title = `How busy ${ranks} over the whole trace. Drag the frame to move the view.`;
          this.draw_overview();
        })
        .catch((error) => { if (error.name !== "AbortError") this.say("The overview cannot be read: " + error.message); });
    },

    overview_x(ns) { return GUTTER + (ns / this.config.last_ns) * this.width; },

    overview_ns(x) { return ((x - GUTTER) / this.width) * this.config.last_ns; },

    // What is taken at an x of the strip: an edge of the window, the window, or neither.
    held_at(x) {
      const { from, to } = this, left = this.overview_x(from), right = this.overview_x(to);
      const whole = from <= 0 && to >= this.config.last_ns;
      let what = "draw";
      if (!whole && x > left + GRIP && x < right - GRIP) what = "move";
      else if (!whole && Math.abs(x - left) <= GRIP) what = "from";
      else if (!whole && Math.abs(x - right) <= GRIP) what = "to";
      return { what, x, from, to };
    },

    drag_window(x) {
      const { what, x: began, from, to } = this.hold;
      const by = this.overview_ns(x) - this.overview_ns(began), at = this.overview_ns(x);
      if (what === "move") this.look(from + by, to + by);
      else if (what === "draw" && Math.abs(x - began) < LEAST) return;
      else {
        const other = { from: to, to: from, draw: this.overview_ns(began) }[what];
        this.look(Math.min(at, other), Math.max(at, other));
      }
    },

    draw_overview() {
      if (!this.overview || !this.ink) return;
      const ratio = window.devicePixelRatio || 1, c = this.overview.getContext("2d");
      const width = this.overview.clientWidth, height = this.overview.clientHeight;
      const pixels = [width, height].map((size) => Math.round(size * ratio));
      if (this.overview.width !== pixels[0]) this.overview.width = pixels[0];
      if (this.overview.height !== pixels[1]) this.overview.height = pixels[1];
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.fillStyle = this.surface;
      c.fillRect(0, 0, width, height);
      c.font = "12px system-ui, sans-serif";
      c.textBaseline = "middle";
      c.fillStyle = this.muted;
      c.fillText(fitted(c, "busy, whole trace", GUTTER - 12), 4, height / 2);
      const room = height - 6, share = this.width / this.shares.length;
      c.fillStyle = this.accent;
      c.globalAlpha = 0.75;
      c.beginPath();
      this.shares.forEach((busy, k) => c.rect(GUTTER + k * share, height - 2 - busy * room, share, busy * room));
      c.fill();
      c.globalAlpha = 1;
      const left = Math.max(this.overview_x(this.from), GUTTER);
      const right = Math.max(Math.min(this.overview_x(this.to), GUTTER + this.width), left + 2);
      c.fillStyle = this.page;
      c.globalAlpha = 0.72;
      c.fillRect(GUTTER, 0, left - GUTTER, height);
      c.fillRect(right, 0, GUTTER + this.width - right, height);
      c.globalAlpha = 1;
      c.strokeStyle = this.ink;
      c.lineWidth = 1.5;
      c.strokeRect(left + 0.5, 1, right - left - 1, height - 2);
    },
  };
})();
