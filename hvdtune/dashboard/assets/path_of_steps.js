// The critical path: in each step along the rank that the others wait for. Methods of the swimlane's
// class (see swimlane.js).
(function () {
  "use strict";
  const { in_words } = window.hvdtuneDrawing;
  const { GUTTER } = window.hvdtuneDrawing.SIZES;
  const PATH_COLOR = "#e8308c";
  const WIDTH = 3;

  window.hvdtunePath = {
    toggle_path() {
      this.config.path = !this.config.path;
      this.path = null;
      this.keep_address();
      if (this.config.path) this.fetch_path(true);
      else { this.say("The critical path is no longer drawn."); this.draw_soon(); }
    },

    fetch_path(tell) {
      if (!this.config.path) return;
      const { from, to } = this;
      fetch("path?" + this.query({ from: Math.round(from), to: Math.round(to) }), { signal: this.events.signal })
        .then((answer) => {
          if (!answer.ok) return answer.text().then((text) => { throw new Error(text); });
          return answer.json();
        })
        .then((found) => {
          if (!this.config.path) return;
          this.path = found;
          const hidden = found.hidden ? ` Zoom in to see it: ${found.hidden.toLocaleString("en")} steps are in view, too many to draw it.` : "";
          if (tell) this.say(found.text + hidden);
          this.draw();
          this.canvas.dataset.path = found.steps.length;
        })
        .catch((error) => { if (error.name !== "AbortError") this.say("The critical path cannot be read: " + error.message); });
    },

    // The lane along which a rank's path runs, of those that are drawn.
    lane_of_path(rank) {
      return this.tile.labels.findIndex(([own, label]) => own === rank && label === "busy");
    },

    draw_path(places) {
      if (!this.path || !this.path.steps.length) return;
      const c = this.context;
      c.strokeStyle = PATH_COLOR;
      c.lineWidth = WIDTH;
      c.lineJoin = "round";
      c.beginPath();
      let before = null;
      this.path.steps.forEach(([begin, end, rank, step]) => {
        const place = places[this.lane_of_path(rank)];
        if (!place) { before = null; return; }
        const y = place.y + place.height;
        // Steps that are not known are gaps.
        if (before === step - 1) c.lineTo(this.x_of(begin), y); else c.moveTo(this.x_of(begin), y);
        c.lineTo(this.x_of(end), y);
        before = step;
      });
      c.stroke();
    },

    // What the path says at a point of it; "" elsewhere.
    path_at(x, y) {
      if (!this.path || x < GUTTER) return "";
      const ns = this.ns_at(x), places = this.rows();
      const found = this.path.steps.find(([begin, end]) => begin <= ns && ns < end);
      const place = found && places[this.lane_of_path(found[2])];
      if (!place || Math.abs(y - place.y - place.height) > WIDTH) return "";
      return `Critical path of step ${found[3].toLocaleString("en")}: rank ${found[2]}, ${in_words(found[1] - found[0])}`;
    },
  };
})();
