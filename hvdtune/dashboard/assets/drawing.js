// What the swimlane draws with: colours, texts that fit, and tiles as they come (see tiles.py).
(function () {
  "use strict";
  // Okabe and Ito's colours, which people with any colour vision can tell apart.
  const COLORS = {
    busy: "#0072b2", wait: "#f0e442", negotiate: "#56b4e9", queue: "#b8a1d9",
    pack: "#e69f00", communicate: "#009e73", unpack: "#cc79a7", tensor: "#999999",
  };
  // In pixels: of what is left of the lanes, above them, and of a lane. Where there is room, names
  // of tensors fit.
  const GUTTER = window.innerWidth < 900 ? 148 : 196;
  const SIZES = { GUTTER, RULER: 34, BAND: 14, NOTES: 18, LANE: 18, COUNTER: 30, FOLDED: 5, ROW: 13, GAP: 3, RANK_GAP: 8 };
  const ABSENT = "this run has no such lane";
  const SPAN_COLOR = "#d55e00";
  // Kinds of slices that only other programs record are like lanes of ours.
  const KIND_COLORS = { COPY: "pack", INPUT: "wait", READY: "negotiate" };
  // For names: light enough for black text on both themes' ground.
  const NAME_COLORS = [
    "#8ecae6", "#f4a582", "#b5d99c", "#d7b5d8", "#ffd166", "#9fd8cb", "#f2b5d4", "#b8c4f0",
    "#d9c8a9", "#a5d6a7", "#ffb4a2", "#c9d46c", "#90caf9", "#e6b8af", "#80cbc4", "#cfc3ea",
  ];

  function hash(text) {
    let value = 2166136261;
    for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
    return value >>> 0;
  }

  // Numbers in a name count things that are alike: aten::mm_1, step#7.
  function color_of_name(name) {
    return NAME_COLORS[hash(name.replace(/[0-9]+/g, "")) % NAME_COLORS.length];
  }

  function luminance(color) {
    const parts = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16) / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4)));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  }

  // Black or white, whichever can be read better on a colour.
  const inks = new Map();
  function ink_on(color) {
    if (!inks.has(color)) {
      const light = luminance(color) + 0.05;
      inks.set(color, light / 0.05 >= 1.05 / light ? "#000000" : "#ffffff");
    }
    return inks.get(color);
  }

  // A text cut in its middle: names of one program often begin alike, and end alike.
  const LEAST_CUT = 5; // letters that still say something
  function fitted(context, text, width) {
    if (context.measureText(text).width <= width) return text;
    let low = 0, high = text.length;
    const cut = (kept) => text.slice(0, Math.ceil(kept / 2)) + "…" + (kept > 1 ? text.slice(-Math.floor(kept / 2)) : "");
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(cut(middle)).width <= width) low = middle; else high = middle - 1;
    }
    return low < LEAST_CUT ? "" : cut(low);
  }

  const in_slices = (count) => `${count.toLocaleString("en")} slice${count === 1 ? "" : "s"}`;

  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
  // A time in words, as exact as `step` needs: ns that two such times differ by.
  function in_words(ns, step) {
    const [size, unit] = UNITS.find(([size]) => Math.abs(ns) >= size) || UNITS[3];
    const exact = step || Math.abs(ns) / 1e4 || 1;
    const decimals = Math.min(Math.max(Math.ceil(-Math.log10(exact / size) - 1e-9), 0), Math.log10(size));
    return (ns / size).toLocaleString("en", { maximumFractionDigits: Math.round(decimals) }) + " " + unit;
  }

  function read_tile(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    let at = 4 + length;
    const take = (Type, count) => {
      const column = new Type(buffer, at, count);
      at += column.byteLength;
      return column;
    };
    const n = head.slices;
    return Object.assign(head, {
      begin: take(Float64Array, n), end: take(Float64Array, n), row: take(Int32Array, n),
      name: take(Uint32Array, n), levels: take(Float32Array, 2 * head.counters.length * head.pixels), lane: take(Uint16Array, n), kind: take(Uint8Array, n),
      depth: take(Uint8Array, n),
      busy: take(Uint8Array, head.exact ? 0 : head.lanes * head.pixels),
    });
  }

  window.hvdtuneDrawing = {
    ABSENT, COLORS, SIZES, SPAN_COLOR, KIND_COLORS, color_of_name, ink_on, fitted, in_slices, in_words, read_tile,
  };
})();
