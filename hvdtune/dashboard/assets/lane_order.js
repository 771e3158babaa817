// Which lanes are where: pinned ones stay above the others, folded ones are thin. Methods of the
// swimlane's class (see swimlane.js).
(function () {
  "use strict";
  const { ABSENT, in_words } = window.hvdtuneDrawing;
  const { LANE, COUNTER, FOLDED, ROW, GAP, RANK_GAP } = window.hvdtuneDrawing.SIZES;

  const MOST = 50; // pinned or folded, that an address keeps; as in pages/timeline.py

  function button(text, action) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", action);
    return made;
  }

  window.hvdtuneLaneOrder = {
    // What an address calls a lane.
    lane_key(lane) { return this.tile.labels[lane].slice(0, 2).join("/"); },

    lane_title(lane) {
      const [rank, text] = this.tile.labels[lane];
      return rank < 0 ? text : `rank ${rank} ${text}`;
    },

    is_pinned(lane) { return this.config.pinned.includes(this.lane_key(lane)); },

    // A rank is folded as a whole, but for its pinned lanes, by the key of its lanes without a label.
    rank_key(lane) { return this.tile.labels[lane][0] + "/"; },

    is_folded(lane) {
      const { folded } = this.config;
      return folded.includes(this.lane_key(lane)) || (folded.includes(this.rank_key(lane)) && !this.is_pinned(lane));
    },

    // Lanes from top to bottom.
    order() {
      if (this.pair) this.pair.match();
      const lanes = this.tile ? this.tile.labels.map((_, lane) => lane) : [];
      const place = (lane) => this.config.pinned.indexOf(this.lane_key(lane));
      const pinned = lanes.filter((lane) => place(lane) >= 0).sort((a, b) => place(a) - place(b));
      const others = lanes.filter((lane) => place(lane) < 0);
      return [...pinned, ...(this.pair ? this.pair.arranged(this, others) : others)];
    },

    // Whether a lane is there only because the other of two that are compared has it.
    is_absent(lane) { return lane >= this.tile.lanes; },

    height_of(lane) {
      if (this.is_folded(lane)) return FOLDED;
      return Math.max(this.own_height_of(lane), this.pair ? this.pair.height_beside(this, lane) : 0);
    },

    own_height_of(lane) {
      const [rank, , rows] = this.tile.labels[lane];
      if (this.is_absent(lane)) return LANE;
      if (this.counter_of(lane) >= 0) return COUNTER;
      return rank < 0 ? 2 * LANE : Math.max(LANE, rows * ROW);
    },

    // Top and height of each lane, and how much of that its slices take; ranks are set apart. The last pinned lane ends at `pin_end`.
    rows() {
      const places = [];
      let y = this.head, before = null;
      this.pin_end = y;
      this.order().forEach((lane) => {
        const [rank] = this.tile.labels[lane], pinned = this.is_pinned(lane);
        const is_first = !before || before.pinned || before.rank !== rank;
        if (before && !pinned && (is_first || rank < 0)) y += RANK_GAP;
        const height = this.height_of(lane);
        places[lane] = { y: pinned ? y : y - this.scroll, height, slices: Math.min(height, this.own_height_of(lane)), rank, pinned, is_first: pinned || is_first };
        y += height + (height === FOLDED ? 1 : GAP);
        if (pinned) this.pin_end = y;
        before = places[lane];
      });
      this.total = y + 8;
      return places;
    },

    // The places of pinned lanes, or of the others; those of the rest are out of sight.
    rows_that_are(pinned, places) {
      return places.map((place) => (place.pinned === pinned ? place : { ...place, y: -1e6 }));
    },

    lane_at(y) {
      if (y < this.head) return -1;
      const places = this.rows();
      return places.findIndex((place) => place.pinned === (y < this.pin_end) && y >= place.y && y <= place.y + place.height);
    },

    current_lane() {
      if (!this.tile) return -1;
      return this.tile.labels.findIndex((_, lane) => this.lane_key(lane) === this.lane);
    },

    other_lane(by) {
      const order = this.order(), at = order.indexOf(this.current_lane());
      const next = at < 0 ? (by > 0 ? 0 : order.length - 1) : at + by;
      if (next >= 0 && next < order.length) this.go_to_lane(order[next]);
    },

    // To the slice of a lane that is nearest in time, or to the lane where none is in view.
    go_to_lane(lane) {
      const tile = this.tile, at = this.selected ? this.selected.begin : this.from;
      let best = -1;
      for (let k = 0; tile.exact && k < tile.slices; k++) {
        if (tile.lane[k] !== lane) continue;
        if (best < 0 || Math.abs(tile.begin[k] - at) < Math.abs(tile.begin[best] - at)) best = k;
      }
      if (best >= 0) this.select(best); else this.choose_lane(lane);
      const place = this.rows()[lane];
      if (!place.pinned && (place.y < this.pin_end || place.y > this.canvas.clientHeight - LANE)) {
        this.move_up(place.y - this.pin_end - LANE);
      }
    },

    choose_lane(lane) {
      this.lane = this.lane_key(lane);
      this.selected = null;
      this.told = -1;
      this.keep_address();
      this.draw_soon();
      const counted = this.counted(lane, this.from, this.to), title = this.lane_title(lane);
      const said = this.is_absent(lane) ? ABSENT : counted;
      this.say(said ? `${title}: ${said}` : title);
      this.show_lines(title, counted ? [["in view", counted], ["from", in_words(this.from)], ["to", in_words(this.to)]] : []);
    },

    pin() {
      const lane = this.current_lane();
      if (lane < 0) return;
      const { pinned } = this.config, there = this.is_pinned(lane);
      if (!there && pinned.length >= MOST) { this.say(`No more than ${MOST} lanes can be pinned.`); return; }
      if (there) pinned.splice(pinned.indexOf(this.lane), 1); else pinned.push(this.lane);
      this.lanes_changed(`${this.lane_title(lane)} is ${there ? "no longer pinned" : "pinned"}`);
    },

    // Folds the lane, or all lanes of its rank; or unfolds them. One lane of a folded rank unfolds
    // the rank.
    fold(whole_rank) {
      const lane = this.current_lane();
      if (lane < 0) return;
      const { config } = this, rank = this.tile.labels[lane][0], of_rank = this.rank_key(lane);
      const whole = rank >= 0 && (whole_rank || (config.folded.includes(of_rank) && !this.is_pinned(lane)));
      const there = whole ? config.folded.includes(of_rank) : this.is_folded(lane);
      const key = whole ? of_rank : this.lane;
      if (!there && config.folded.length >= MOST) { this.say(`No more than ${MOST} lanes can be folded: fold whole ranks instead.`); return; }
      config.folded = config.folded.filter((other) => other !== key && !(whole && other.startsWith(of_rank)));
      if (!there) config.folded.push(key);
      this.lanes_changed(`${whole ? "rank " + rank : this.lane_title(lane)} is ${there ? "unfolded" : "folded"}`);
    },

    lanes_changed(text) {
      if (this.pair) this.pair.share_lanes(this);
      this.keep_address();
      this.fit();
      this.move_up(0);
      this.say(text);
      const controls = this.details && this.details.querySelector(".lane-controls");
      const focused = controls && [...controls.children].indexOf(document.activeElement);
      if (!controls) return;
      const again = this.lane_controls();
      controls.replaceWith(again);
      if (focused >= 0) again.children[focused].focus();
    },

    // Buttons for the chosen lane.
    lane_controls() {
      const made = document.createElement("div"), lane = this.current_lane();
      made.className = "lane-controls";
      if (lane < 0) return made;
      const rank = this.tile.labels[lane][0];
      const whole = this.config.folded.includes(this.rank_key(lane)) ? ` rank ${rank}` : "";
      const folds = (this.is_folded(lane) ? "Unfold" : "Fold") + whole;
      const what = document.createElement("p");
      what.className = "hint";
      what.textContent = "Lane: " + this.lane_title(lane);
      made.append(what, button(this.is_pinned(lane) ? "Unpin" : "Pin", () => this.pin()), button(folds, () => this.fold(false)));
      if (rank >= 0 && !whole) made.append(button(`Fold rank ${rank}`, () => this.fold(true)));
      return made;
    },
  };
})();
