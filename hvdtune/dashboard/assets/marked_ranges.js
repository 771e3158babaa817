// Stretches of time that somebody marks, with notes; they are part of the address. Methods of the
// swimlane's class (see swimlane.js).
(function () {
  "use strict";
  const { fitted, in_words } = window.hvdtuneDrawing;
  const { GUTTER, NOTES } = window.hvdtuneDrawing.SIZES;
  const MOST = 40; // as in pages/timeline.py
  const LONGEST = 200; // letters of a note

  function made(tag, values, ...children) {
    const element = Object.assign(document.createElement(tag), values);
    element.append(...children);
    return element;
  }

  window.hvdtuneMarkedRanges = {
    range_title([from, to]) {
      const exact = (to - from) / 100;
      return `${in_words(from, exact)} to ${in_words(to, exact)}`;
    },

    // What is to be marked: what was drawn with the mouse, the chosen slice, or what is in view.
    range_to_mark() {
      if (this.range) return this.range;
      return this.selected ? [this.selected.begin, this.selected.end] : [this.from, this.to];
    },

    ask_for_note() {
      this.range = this.range_to_mark();
      this.draw_soon();
      this.show_totals(...this.range).then(() => {
        const note = this.details && this.details.querySelector(".note-form input");
        if (note) note.focus();
      });
    },

    note_form(range) {
      const note = made("input", { type: "text", maxLength: LONGEST, autocomplete: "off" });
      const form = made("form", { className: "note-form" }, made("label", {}, "Note", note),
        made("button", { type: "submit", textContent: "Mark this range" }));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.mark(range, note.value.trim());
      });
      return form;
    },

    mark([from, to], note) {
      if (this.config.marks.length >= MOST) {
        this.say(`The address of this page keeps at most ${MOST} marked ranges: remove one first.`);
        return;
      }
      const mark = [Math.max(Math.round(from), 0), Math.round(to), note];
      this.config.marks.push(mark);
      this.config.marks.sort((a, b) => a[0] - b[0]);
      this.range = null;
      this.marks_changed();
      this.say(`Marked ${this.range_title(mark)}. The address of this page keeps it.`);
      this.canvas.focus();
    },

    marks_changed() {
      this.keep_address();
      this.list_marks();
      this.fit();
      this.draw_soon();
    },

    list_marks() {
      const list = this.part("marks");
      if (!list) return;
      const items = this.config.marks.map((mark) => {
        const title = this.range_title(mark);
        const go = made("button", { type: "button", textContent: title });
        go.addEventListener("click", () => {
          const margin = (mark[1] - mark[0]) / 4;
          this.look(mark[0] - margin, mark[1] + margin);
        });
        const remove = made("button", { type: "button", textContent: "Remove", ariaLabel: "Remove the mark of " + title });
        remove.addEventListener("click", () => {
          this.config.marks.splice(this.config.marks.indexOf(mark), 1);
          this.marks_changed();
          this.say("Removed the mark of " + title);
          this.canvas.focus();
        });
        return made("li", {}, go, made("span", { textContent: mark[2] }), remove);
      });
      const title = made("h2", { textContent: "Marked ranges" });
      list.replaceChildren(...(items.length ? [title, made("ul", {}, ...items)] : []));
    },

    mark_at(x, y) {
      const top = this.head - NOTES;
      if (!this.config.marks.length || x < GUTTER || y < top || y >= this.head) return null;
      const ns = this.ns_at(x);
      return this.config.marks.find(([from, to]) => from <= ns && ns <= to) || null;
    },

    // The notes above the lanes, and where the ranges begin and end in these.
    draw_notes() {
      const c = this.context, marks = this.config.marks, top = this.head - NOTES;
      if (!marks.length) return;
      c.fillStyle = this.surface;
      c.fillRect(0, top, this.canvas.clientWidth, NOTES);
      c.fillStyle = this.muted;
      c.fillText("notes", 58, top + NOTES / 2);
      c.save();
      c.beginPath();
      c.rect(GUTTER, top, this.width, this.canvas.clientHeight);
      c.clip();
      marks.forEach((mark, number) => {
        const left = this.x_of(mark[0]), right = Math.max(this.x_of(mark[1]), left + 2);
        c.globalAlpha = 0.25;
        c.fillStyle = this.accent;
        c.fillRect(left, top + 1, right - left, NOTES - 2);
        c.globalAlpha = 1;
        c.fillRect(left, top, 1, this.canvas.clientHeight);
        c.fillRect(right, top, 1, this.canvas.clientHeight);
        const next = number + 1 < marks.length ? this.x_of(marks[number + 1][0]) : right;
        const shown = Math.max(left, GUTTER), room = Math.min(right, next, GUTTER + this.width) - shown - 8;
        c.fillStyle = this.ink;
        if (room > 20) c.fillText(fitted(c, mark[2], room), shown + 4, top + NOTES / 2 + 1);
      });
      c.restore();
    },
  };
})();
